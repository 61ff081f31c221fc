"""What Lakelock writes beside the rows of a commit: Delta's user metadata, as JSON. Pure."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sinks.contract import Epoch, Position
from sinks.errors import UnsupportedFormat
from sinks.event_time import Clock
from sinks.offsets import OffsetRange, Offsets, TopicPartition, flat, nested

FORMAT = 2
"""Major version. Readers ignore fields that they don't know, and refuse a newer major version. 2: what grows with the
number of partitions is packed, where it is much; else commits are written as 1."""
_MUCH = 32_768
"""Characters: some 500 partitions."""
_PACKED = ("offsets", "since", "lost", "clock", "leaders")
_UNPACKED_BYTES = 256 << 20
"""More isn't read: whoever may write to the table could pack anything."""


@dataclass(frozen=True)
class CommitMetadata:
    pipeline: str
    epoch: int
    owner: str
    offsets: Offsets
    topics: Mapping[str, str] = field(default_factory=dict)
    read_to: datetime | None = None
    base: int | None = None
    """Table version that the epoch was planned on: a RESTORE after it, but before the commit, shows."""
    since: Offsets = field(default_factory=Offsets)
    lost: tuple[OffsetRange, ...] = ()
    delivery: str = "transactional"
    clock: Clock = field(default_factory=Clock)
    batch: str = ""
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict)
    table: str = ""
    """Delta's id of the table that the commit was made for: another one of that name isn't it."""

    @classmethod
    def of(cls, epoch: Epoch, table: str = "") -> CommitMetadata:
        base = epoch.expected.version if epoch.expected else None
        return cls(
            epoch.pipeline,
            epoch.number,
            epoch.owner,
            epoch.offsets,
            epoch.topics,
            epoch.read_to,
            base,
            epoch.since,
            epoch.lost,
            epoch.delivery,
            epoch.clock,
            epoch.batch,
            epoch.leaders,
            table,
        )

    @classmethod
    def at(cls, pipeline: str, position: Position) -> CommitMetadata:
        return cls(
            pipeline,
            position.epoch,
            position.owner,
            position.offsets,
            position.topics,
            position.read_to,
            None,
            position.since,
            position.lost,
            position.delivery,
            position.clock,
            position.batch,
            position.leaders,
        )

    def position(self) -> Position:
        return Position(
            self.epoch,
            self.offsets,
            self.topics,
            self.owner,
            self.read_to,
            self.since,
            self.lost,
            self.delivery,
            self.clock,
            self.batch,
            self.leaders,
        )

    def to_json(self) -> str:
        fields: dict[str, object] = {
            "lakelock": 1,
            "pipeline": self.pipeline,
            "epoch": self.epoch,
            "owner": self.owner,
            "offsets": self.offsets.to_dict(),
            "topics": dict(self.topics),
            "read_to": self.read_to.isoformat() if self.read_to else None,
            "base": self.base,
            "since": self.since.to_dict(),
            "delivery": self.delivery,
        }
        if self.lost:
            fields["lost"] = [[gap.topic, gap.partition, gap.start, gap.end] for gap in self.lost]
        if self.clock.so_far:
            fields["clock"] = self.clock.to_dict()
        if self.batch:
            fields["batch"] = self.batch
        if self.leaders:
            fields["leaders"] = nested(self.leaders)
        if self.table:
            fields["table"] = self.table
        text = _text(fields)
        if len(text) <= _MUCH:
            return text
        packed = _pack({name: fields.pop(name) for name in _PACKED if name in fields})
        return _text({**fields, "lakelock": 2, "packed": packed})

    @classmethod
    def from_json(cls, text: str | None, *, pipeline: str) -> CommitMetadata | None:
        """The metadata of this pipeline in a commit; None for anybody else's, or for text that isn't ours.

        Raises UnsupportedFormat where this pipeline's commit has a newer format.
        """
        try:
            fields = json.loads(text or "")
        except (ValueError, RecursionError):
            return None
        if not isinstance(fields, dict) or fields.get("pipeline") != pipeline or "lakelock" not in fields:
            return None
        if not isinstance(fields["lakelock"], int) or fields["lakelock"] > FORMAT:
            raise UnsupportedFormat(
                f"The table holds a commit of pipeline {pipeline!r} in format {fields['lakelock']}; this version "
                f"reads up to format {FORMAT}.",
                hint="Upgrade lakelock to the version that wrote the table, or a later one.",
            )
        try:
            if "packed" in fields:
                fields |= _unpack(fields["packed"])
            return cls(
                pipeline=pipeline,
                epoch=int(fields["epoch"]),
                owner=str(fields["owner"]),
                offsets=Offsets.from_dict(fields["offsets"]),
                topics={str(name): str(topic_id) for name, topic_id in fields.get("topics", {}).items()},
                read_to=datetime.fromisoformat(fields["read_to"]) if fields.get("read_to") else None,
                base=fields.get("base"),
                since=Offsets.from_dict(fields.get("since", {})),
                delivery=str(fields.get("delivery", "transactional")),
                clock=Clock.from_dict(fields.get("clock", {})),
                batch=str(fields.get("batch", "")),
                leaders=flat(fields.get("leaders", {})),
                table=str(fields.get("table", "")),
                lost=tuple(OffsetRange(*gap) for gap in fields.get("lost", ())),
            )
        except (KeyError, TypeError, ValueError, AttributeError, zlib.error):
            return None


def _text(fields: Mapping[str, object]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _pack(fields: Mapping[str, Any]) -> str:
    """Offsets of partitions 0, 1, 2, ... are a list: most of the text would be their numbers."""
    for name in ("offsets", "since"):
        for topic, partitions in fields[name].items():
            if list(partitions) == [str(number) for number in range(len(partitions))]:
                fields[name][topic] = list(partitions.values())
    return base64.b85encode(zlib.compress(_text(fields).encode(), 9)).decode()


def _unpack(packed: str) -> dict[str, Any]:
    text = zlib.decompressobj().decompress(base64.b85decode(packed), _UNPACKED_BYTES)
    fields: dict[str, Any] = json.loads(text)
    for name in ("offsets", "since"):
        for topic, partitions in fields[name].items():
            if isinstance(partitions, list):
                fields[name][topic] = dict(enumerate(partitions))
    return fields
