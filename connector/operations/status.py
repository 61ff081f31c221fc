"""What `status` and `check` find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from connector.protocol.recover import TopicsHeld
from connector.protocol.recreated import recreated
from connector.protocol.two_phase import Row
from sinks.contract import Position
from sinks.offsets import OffsetRange, Offsets, TopicPartition


@dataclass(frozen=True)
class Status:
    """Where a pipeline stands: what its table holds, next to what Kafka holds."""

    pipeline: str
    delivery: str
    sinks: Sequence[str]
    position: Position | None
    """Of the table, or where all sinks stand by the coordinator's log."""
    offsets: Offsets
    """Next offsets: the table's, or the consumer group's where the delivery keeps them there."""
    held: TopicsHeld
    next_times: Mapping[TopicPartition, datetime] = field(default_factory=dict)
    """Kafka's timestamp of the next record, per partition that holds one that is still to be read."""
    unfolded: int | None = None
    """Merged on read: epochs that are in the log of changes, and not in the table yet; None: it isn't."""
    in_doubt: Row | None = None
    """An epoch that is in some of the sinks, maybe: a run is at work on it, or was killed."""

    @property
    def lag(self) -> Mapping[TopicPartition, int]:
        """Offsets from the next to the end, per partition, ``gone`` ones too: an upper bound on the records."""
        return {at: max(0, end - self._next[at]) for at, end in self.held.ends.items()}

    @cached_property
    def _next(self) -> Mapping[TopicPartition, int]:
        return next_offsets(self.position, self.offsets, self.held)

    @property
    def gone(self) -> Sequence[OffsetRange]:
        """What was never read, and Kafka no longer holds: a run stops there."""
        return [
            OffsetRange(at.topic, at.partition, self._next[at], beginning)
            for at, beginning in self.held.beginnings.items()
            if self._next[at] < beginning
        ]

    @property
    def cut(self) -> Sequence[OffsetRange]:
        """What was read, and lies behind Kafka's end: its log was cut, and a run stops there."""
        return [
            OffsetRange(at.topic, at.partition, end, self._next[at])
            for at, end in self.held.ends.items()
            if self._next[at] > end
        ]

    @property
    def recreated(self) -> frozenset[str]:
        """Topics that were deleted and made again since: the offsets are of the old ones."""
        return frozenset(recreated(self.position, self.held)) if self.position else frozenset()

    @property
    def lag_seconds(self) -> Mapping[TopicPartition, float]:
        """How long the next record has been waiting, per partition; 0 where none is."""
        now = self.held.asked_at
        return {
            at: max(0.0, (now - self.next_times[at]).total_seconds()) if at in self.next_times else 0.0
            for at in self.held.ends
        }


def next_offsets(position: Position | None, offsets: Offsets, held: TopicsHeld) -> dict[TopicPartition, int]:
    """What is to be read next of each partition that Kafka holds: of a topic that was made again since the old offsets
    say nothing, nor do any of one that was never read."""
    made_again = recreated(position, held) if position is not None else {}
    return {
        at: beginning if at.topic in made_again else offsets.get(at, beginning)
        for at, beginning in held.beginnings.items()
    }


@dataclass(frozen=True)
class CheckedSink:
    place: str
    exists: bool
    columns: Sequence[str]


@dataclass(frozen=True)
class Checked:
    """What `check` found: the sinks as they would be used, and where a run would start."""

    sinks: Sequence[CheckedSink]
    position: Position | None
    next_offsets: Offsets
    behind: int
