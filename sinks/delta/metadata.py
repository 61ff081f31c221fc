"""What Lakelock writes beside the rows of a commit: Delta's user metadata, as JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sinks.clock import Clock
from sinks.contract import Epoch, Position
from sinks.errors import UnsupportedFormat
from sinks.offsets import OffsetRange, Offsets

FORMAT = 1
"""Major version. Readers ignore fields that they don't know, and refuse a newer major version."""


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

    @classmethod
    def of(cls, epoch: Epoch) -> CommitMetadata:
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
        )

    def to_json(self) -> str:
        fields: dict[str, object] = {
            "lakelock": FORMAT,
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
        return json.dumps(fields, separators=(",", ":"))

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
                lost=tuple(OffsetRange(*gap) for gap in fields.get("lost", ())),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
