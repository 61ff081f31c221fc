"""Offsets of a topic, translated to the cluster that it was mirrored to: the file of `lakelock translate`.

A translation is for one move of one pipeline: from exactly these offsets of one topic to offsets of another, with both
topics known by their IDs. If it stays in the pipeline file, it applies to no later topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector.config import Source, Translated
from connector.protocol.recover import TopicsHeld
from connector.protocol.recreated import of_unknown_id
from sinks.contract import Position
from sinks.errors import ConfigurationError, UnsupportedFormat
from sinks.offsets import Offsets, TopicPartition

FORMAT = 1


@dataclass(frozen=True)
class Translation:
    """The offsets of a pipeline in the old and the new cluster."""

    pipeline: str
    ids: Mapping[str, tuple[str, str]]
    """Topic -> its ID in the old cluster and in the new one."""
    offsets: Mapping[TopicPartition, tuple[int, int]]
    """Partition -> the next offset in the old cluster and in the new one."""

    def to_json(self) -> str:
        """The translation as JSON text."""
        topics: dict[str, dict[str, Any]] = {
            topic: {"from": old, "to": new, "partitions": {}} for topic, (old, new) in sorted(self.ids.items())
        }
        for at, (old, new) in sorted(self.offsets.items()):
            topics[at.topic]["partitions"][str(at.partition)] = {"from": old, "to": new}
        return json.dumps({"lakelock": FORMAT, "pipeline": self.pipeline, "topics": topics}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, *, file: str) -> Translation:
        """Read a translation. Raises ConfigurationError or UnsupportedFormat."""
        try:
            fields = json.loads(text)
            if fields["lakelock"] > FORMAT:
                raise UnsupportedFormat(
                    f"{file} is in format {fields['lakelock']}; this version reads up to format {FORMAT}.",
                    hint="Upgrade lakelock to the version that wrote it, or write the file again.",
                )
            return cls(
                str(fields["pipeline"]),
                {topic: (str(each["from"]), str(each["to"])) for topic, each in fields["topics"].items()},
                {
                    TopicPartition(topic, int(number)): (int(offset["from"]), int(offset["to"]))
                    for topic, each in fields["topics"].items()
                    for number, offset in each["partitions"].items()
                },
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigurationError(
                f"source.on_recreated_topic.translated: {file} isn't a file of `lakelock translate`.",
                hint="Write it again: lakelock translate OLD NEW --output offsets.json.",
            ) from error

    def starts(self, pipeline: str, position: Position, held: TopicsHeld, names: Mapping[str, str]) -> Offsets:
        """The offsets at which to continue in the new topics. ``names`` are the recreated topics.

        Raises ConfigurationError if the translation is for another position or for other topics.
        """
        if self.pipeline != pipeline:
            raise _stale(f"it is for pipeline {self.pipeline!r}, and this is {pipeline!r}")
        found: dict[TopicPartition, int] = {}
        unknown = of_unknown_id(position, held) & self.ids.keys()
        if unknown:
            # Offsets of the old cluster would be taken for offsets of the new one.
            raise _stale(f"the table doesn't say of which topic {', '.join(sorted(unknown))} its offsets are")
        for topic in names:
            ids = (position.topics[topic], held.ids[topic])
            if self.ids.get(topic) != ids:
                raise _stale(f"for topic {topic!r} it is from id {' to '.join(self.ids.get(topic, ('none',)))}, and "
                             f"this is from {' to '.join(ids)}")  # fmt: skip
            for at, offset in position.offsets.items():
                if at.topic != topic:
                    continue
                old, new = self.offsets.get(at, (None, 0))
                if old != offset:
                    raise _stale(f"for {topic}-{at.partition} it translates offset {old}, but the table needs {offset}")
                if at not in held.ends or new > held.ends[at]:
                    raise _stale(f"{topic}-{at.partition} of the new topic doesn't reach offset {new}")
                found[at] = new
        return Offsets(found)


def translated(file: str) -> Translation:
    """The translation in ``file``. Raises ConfigurationError or UnsupportedFormat."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"source.on_recreated_topic.translated: {file} can't be read: {error}.",
            hint="Write it: lakelock translate OLD NEW --output offsets.json.",
        ) from error
    return Translation.from_json(text, file=file)


def refuse_without_position(source: Source) -> None:
    """Raises ConfigurationError if a pipeline without a position is to go on by a translation: it would read the mirror
    from its start, into a new table."""
    if isinstance(source.on_recreated_topic, Translated):
        raise ConfigurationError(
            "source.on_recreated_topic: {translated: ...} is for a table that goes on in a mirrored topic, and the "
            "table of this file has no position. Nothing was written.",
            hint="Does the file name the table that moves? A relative path belongs to the folder of its pipeline file. "
            "If a new table is to begin at source.start, remove the option.",
        )


def _stale(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"The translation of source.on_recreated_topic isn't for this run: {why}. Nothing was written.",
        hint="Stop all runs, and write it again: lakelock translate OLD NEW --output offsets.json. If the table has "
        "moved already, run without the option.",
    )
