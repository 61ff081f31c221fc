"""What `lakelock status` and `lakelock check` find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from connector.protocol.decided import Row
from connector.protocol.recover import TopicsHeld
from connector.protocol.recreated import recreated
from sinks.contract import Position
from sinks.offsets import OffsetRange, Offsets, TopicPartition


@dataclass(frozen=True)
class Status:
    """Where a pipeline stands: what its table holds, next to what Kafka holds."""

    pipeline: str
    delivery: str
    sinks: Sequence[str]
    position: Position | None
    """The table's position. With several sinks, where all of them stand by the coordinator log."""
    offsets: Offsets
    """The next offsets: the table's, or the consumer group's if the delivery keeps them there."""
    held: TopicsHeld
    next_times: Mapping[TopicPartition, datetime] = field(default_factory=dict)
    """Kafka's timestamp of the next record, per partition that has a record to read."""
    unfolded: int | None = None
    """The number of epochs that the change log has and the table lacks. None without ``merge: on_read``."""
    in_doubt: Row | None = None
    """An epoch that may be in some of the sinks only. Its run is at work on it, or was killed."""

    @property
    def lag(self) -> Mapping[TopicPartition, int]:
        """The offsets from the next one to the end, per partition, those in ``gone`` included: an upper bound on the
        records.
        """
        return {at: max(0, end - self._next[at]) for at, end in self.held.ends.items()}

    @cached_property
    def _next(self) -> Mapping[TopicPartition, int]:
        return next_offsets(self.position, self.offsets, self.held)

    @property
    def gone(self) -> Sequence[OffsetRange]:
        """Ranges that were never read and that Kafka no longer holds. A run stops there."""
        return [
            OffsetRange(at.topic, at.partition, self._next[at], beginning)
            for at, beginning in self.held.beginnings.items()
            if self._next[at] < beginning
        ]

    @property
    def cut(self) -> Sequence[OffsetRange]:
        """Ranges that were read and that lie after Kafka's end: the log was cut. A run stops there."""
        return [
            OffsetRange(at.topic, at.partition, end, self._next[at])
            for at, end in self.held.ends.items()
            if self._next[at] > end
        ]

    @property
    def recreated(self) -> frozenset[str]:
        """Topics that were recreated since. The stored offsets belong to the old ones."""
        return frozenset(recreated(self.position, self.held)) if self.position else frozenset()

    @property
    def lag_seconds(self) -> Mapping[TopicPartition, float]:
        """How many seconds the next record has been waiting, per partition; 0 if no record waits."""
        now = self.held.asked_at
        return {
            at: max(0.0, (now - self.next_times[at]).total_seconds()) if at in self.next_times else 0.0
            for at in self.held.ends
        }


def next_offsets(position: Position | None, offsets: Offsets, held: TopicsHeld) -> dict[TopicPartition, int]:
    """The next offset to read of each partition that Kafka holds.

    As in a run, a partition that isn't in the position has appeared since, and stands at offset 0. So do those of a
    recreated topic, of which the stored offsets say nothing.
    """
    if position is None:
        return {at: offsets.get(at, beginning) for at, beginning in held.beginnings.items()}
    recreated_topics = recreated(position, held)
    return {at: 0 if at.topic in recreated_topics else offsets.get(at, 0) for at in held.beginnings}


@dataclass(frozen=True)
class CheckedSink:
    """One sink as `check` found it.

    ``exists`` says whether it is there; ``columns`` are those that a run would write; ``rules`` are the table's own, in
    words.
    """

    place: str
    exists: bool
    columns: Sequence[str]
    rules: Sequence[str] = ()


@dataclass(frozen=True)
class Fault:
    """Records of a sample that have the same thing wrong with them."""

    detail: str
    count: int
    topic: str
    partition: int
    offset: int
    """The coordinates of the first one: this, and ``topic`` and ``partition``."""


@dataclass(frozen=True)
class Sample:
    """A few records of each topic, decoded."""

    records: Mapping[str, int] = field(default_factory=dict)
    """How many were read of each topic."""
    faults: Sequence[Fault] = ()
    rows: Sequence[str] = ()
    """The first rows for the first sink, as JSON objects."""
    tables: Mapping[str, int] = field(default_factory=dict)
    """Of a route: how many of them are for which table."""
    warnings: Sequence[str] = ()
    """About the fields of tables with a schema of their own."""


@dataclass(frozen=True)
class Checked:
    """What `check` found: the sinks as they would be used, and where a run would start."""

    sinks: Sequence[CheckedSink]
    position: Position | None
    next_offsets: Offsets
    behind: int
    sample: Sample
    """A few of the records that a run would read next."""
    warnings: Sequence[str] = ()
