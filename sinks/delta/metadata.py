"""What Lakelock writes beside the rows of a commit: Delta's user metadata, as JSON. Pure."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sinks.contract import Epoch, Folded, Position
from sinks.errors import UnsupportedFormat
from sinks.event_time import Clock
from sinks.offsets import OffsetRange, Offsets, flat, nested

FORMAT = 3
"""Major version. Readers ignore fields that they don't know, and refuse a newer major version.

3: there is a field that the next commit has to carry on, and that releases before this format drop. They refuse the
table, so that no commit of theirs comes in between. 2: what grows with the number of partitions is packed, where it is
much. Else commits are written as 1. A field that comes after a release needs the next number."""
_KNOWN = frozenset((
    "lakelock", "pipeline", "epoch", "owner", "offsets", "topics", "read_to", "base", "since", "delivery", "lost",
    "clock", "batch", "leaders", "table",
))  # fmt: skip
_KNOWN_OF_CLOCK = frozenset(("times", "so_far", "watermark", "late"))
"""The fields that releases before format 3 carry on."""
_MUCH = 32_768
"""Characters: some 500 partitions."""
_PACKED = ("offsets", "since", "lost", "missed", "gone", "clock", "leaders", "read_to_of", "tombstones_kept")
_UNPACKED_BYTES = 256 << 20
"""More isn't read: whoever may write to the table could pack anything."""


@dataclass(frozen=True)
class CommitMetadata:
    """The position that a commit left, with what identifies the commit."""

    pipeline: str
    position: Position
    """The position after the commit. Only the fields that are written to the JSON are there when it is read back."""
    base: int | None = None
    """Table version that the epoch was planned on. It shows a RESTORE between the planning and the commit."""
    table: str = ""
    """Delta's id of the table that the commit was made for. Another table of the same name has another id."""
    folded: Folded | None = None
    """As in ``Position``."""
    keeps_order: bool = False
    """Whether the table keeps what tells an older change from a newer one: deletes, or sequences. Release 0.2 let
    deletes expire without a note, and some of its ``_source_position`` come before those of now."""

    @classmethod
    def of(
        cls, epoch: Epoch, table: str = "", folded: Folded | None = None, *, keeps_order: bool = False
    ) -> CommitMetadata:
        """Of the commit that this epoch is about to make. ``table``: Delta's id of it; ``folded``: of a change log."""
        base = epoch.expected.version if epoch.expected else None
        return cls(epoch.pipeline, epoch.position(), base, table, folded, keeps_order)

    @classmethod
    def at(cls, pipeline: str, position: Position) -> CommitMetadata:
        """Of a position whose commit isn't at hand."""
        return cls(pipeline, position)

    @property
    def epoch(self) -> int:
        """The number of the commit's epoch."""
        return self.position.epoch

    @property
    def owner(self) -> str:
        """The run that made the commit."""
        return self.position.owner

    @property
    def offsets(self) -> Offsets:
        """The next offsets after the commit."""
        return self.position.offsets

    def to_json(self) -> str:
        """The text that goes into Delta's commit; `parse` reads it back."""
        position, clock = self.position, self.position.clock.to_dict()
        fields: dict[str, object] = {
            "lakelock": 1,
            "pipeline": self.pipeline,
            "epoch": position.epoch,
            "owner": position.owner,
            "offsets": position.offsets.to_dict(),
            "topics": dict(position.topics),
            "read_to": position.read_to.isoformat() if position.read_to else None,
            "base": self.base,
            "since": position.since.to_dict(),
            "delivery": position.delivery,
        }
        if position.group:
            fields["group"] = position.group
        if position.lost:
            fields["lost"] = _ranges(position.lost)
        if position.began_at:
            fields["began_at"] = position.began_at.isoformat()
        if position.missed:
            fields["missed"] = _ranges(position.missed)
        if position.read_to_of:
            fields["read_to_of"] = {
                topic: time.isoformat() if time else None for topic, time in position.read_to_of.items()
            }
        if position.gone:
            fields["gone"] = {topic: since and since.isoformat() for topic, since in position.gone.items()}
        if position.tombstones_kept:
            fields["tombstones_kept"] = {
                topic: time // timedelta(milliseconds=1) for topic, time in position.tombstones_kept.items()
            }
        if position.clock != Clock():
            fields["clock"] = clock
        if position.batch:
            fields["batch"] = position.batch
        if position.leaders:
            fields["leaders"] = nested(position.leaders)
        if self.table:
            fields["table"] = self.table
        if self.folded is not None:
            fields["folded"] = list(self.folded)
        if self.keeps_order:
            fields["keeps_order"] = True
        known = fields.keys() <= _KNOWN and clock.keys() <= _KNOWN_OF_CLOCK
        fields["lakelock"] = 1 if known else FORMAT
        text = _text(fields)
        if len(text) <= _MUCH:
            return text
        packed = _pack({name: fields.pop(name) for name in _PACKED if name in fields})
        return _text({**fields, "lakelock": 2 if known else FORMAT, "packed": packed})

    @classmethod
    def of_anybody(cls, text: str | None) -> CommitMetadata | None:
        """The metadata of a commit, whichever pipeline made it; None as in ``from_json``."""
        try:
            fields = json.loads(text or "")
        except (ValueError, RecursionError):
            return None
        name = fields.get("pipeline") if isinstance(fields, dict) else None
        return cls.from_json(text, pipeline=name) if isinstance(name, str) else None

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
            position = Position(
                epoch=int(fields["epoch"]),
                offsets=Offsets.from_dict(fields["offsets"]),
                topics={str(name): str(topic_id) for name, topic_id in fields.get("topics", {}).items()},
                owner=str(fields["owner"]),
                read_to=datetime.fromisoformat(fields["read_to"]) if fields.get("read_to") else None,
                since=Offsets.from_dict(fields.get("since", {})),
                lost=tuple(OffsetRange(*gap) for gap in fields.get("lost", ())),
                delivery=str(fields.get("delivery", "transactional")),
                group=str(fields.get("group", "")),
                clock=Clock.from_dict(fields.get("clock", {})),
                batch=str(fields.get("batch", "")),
                leaders=flat(fields.get("leaders", {})),
                began_at=datetime.fromisoformat(fields["began_at"]) if fields.get("began_at") else None,
                missed=tuple(OffsetRange(*gap) for gap in fields.get("missed", ())),
                read_to_of={
                    topic: datetime.fromisoformat(time) if time else None
                    for topic, time in fields.get("read_to_of", {}).items()
                },
                gone={
                    str(topic): datetime.fromisoformat(since) if since else None
                    for topic, since in fields.get("gone", {}).items()
                },
                tombstones_kept={
                    str(topic): timedelta(milliseconds=int(time))
                    for topic, time in fields.get("tombstones_kept", {}).items()
                },
            )
            of, epoch = fields.get("folded") or ("", None)
            folded = Folded(str(of), int(epoch)) if epoch is not None else None
            keeps = bool(fields.get("keeps_order"))
            return cls(pipeline, position, fields.get("base"), str(fields.get("table", "")), folded, keeps)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, zlib.error):
            return None


def of_batch(pipeline: str) -> str:
    """The text for the commit of a batch whose offsets are in a consumer group.

    It says that the commit isn't somebody else's, and nothing of a position. It doesn't name the pipeline as an epoch's
    commit does, so that no reader takes it for one.
    """
    return _text({"lakelock": 1, "batch_of": pipeline})


def pipeline_of(text: str | None) -> str | None:
    """The name of the pipeline that a commit's user metadata is of; None: it is no pipeline's."""
    try:
        fields = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or "lakelock" not in fields:
        return None
    name = fields.get("pipeline")
    return name if isinstance(name, str) else None


def _ranges(ranges: Sequence[OffsetRange]) -> list[list[object]]:
    return [[gap.topic, gap.partition, gap.start, gap.end] for gap in ranges]


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
