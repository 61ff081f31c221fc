"""What `status` and `check` find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from connector.protocol.recover import TopicsHeld
from connector.protocol.retire import recreated
from connector.protocol.two_phase import Row
from sinks.contract import Position
from sinks.offsets import Offsets, TopicPartition


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
        """Offsets that Kafka holds and that are still to be read, per partition: an upper bound on the records."""
        return {at: max(0, end - self.offsets.get(at, self.held.beginnings[at])) for at, end in self.held.ends.items()}

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
