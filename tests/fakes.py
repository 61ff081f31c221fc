"""Kafka and a consumer group in memory, for tests without one: what a delivery asks of them, and no more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from connector.delivery.ports import Destination
from connector.protocol.decided import LogHeld, Row, State
from connector.protocol.recover import Remaining, Remains, TopicsHeld
from sinks.contract import Committed, Epoch, Position
from sinks.errors import Fenced, GroupActive
from sinks.memory import Record
from sinks.offsets import OffsetRange, Offsets, TopicPartition


class Crash(BaseException):
    """The process is gone: nothing after it runs, and only tables, topics and groups survive."""


class To(Destination):
    """A destination made of functions; with ``retire`` it takes recreated topics."""

    def __init__(
        self,
        position: Callable[[], Position | None],
        run_epoch: Callable[[Epoch, int], Committed],
        retire: Callable[[Epoch, Mapping[str, str]], Committed] | None = None,
        added: Offsets | None = None,
    ) -> None:
        self._position, self._run_epoch, self._retire, self._added = position, run_epoch, retire, added or Offsets()

    @property
    def takes_recreated(self) -> bool:
        return self._retire is not None

    def position(self) -> Position | None:
        return self._position()

    def run_epoch(self, epoch: Epoch, behind: int) -> Committed:
        return self._run_epoch(epoch, behind)

    def added(self, topics: Collection[str]) -> Offsets:
        return Offsets({at: next_ for at, next_ in self._added.items() if at.topic in topics})

    def retire(self, epoch: Epoch, names: Mapping[str, str]) -> Committed:
        assert self._retire is not None
        return self._retire(epoch, names)


@dataclass
class Topic:
    """A Kafka topic in memory: one list of (key, value) per partition; the topic's id; the configured start."""

    partitions: list[list[tuple[str, int]]]
    id: str = "first"
    start: str = "earliest"
    deleted_up_to: dict[int, int] = field(default_factory=dict)
    ahead: int = 0
    """Records between the oldest one and where reading goes on after a loss."""
    leaders: dict[int, list[int]] = field(default_factory=dict)
    """Per partition: where each leader after the first has begun to write."""
    kept: timedelta | None = None
    """How long tombstones stay, where it is compacted."""
    clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc)

    def look(self) -> TopicsHeld:
        ends = {TopicPartition("t", p): len(records) for p, records in enumerate(self.partitions)}
        beginnings = {at: self.deleted_up_to.get(at.partition, 0) for at in ends}
        leaders = {at: len(self.leaders.get(at.partition, ())) for at in ends}
        keeps = {"t": self.kept} if self.kept is not None else {}
        ids, now = {"t": self.id}, self.clock()
        return TopicsHeld(Offsets(beginnings), Offsets(ends), ids, now, leaders, self.ends_of, keeps=keeps)

    def ends_of(self, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {
            at: min([*self.leaders.get(at.partition, ())[leader:], len(self.partitions[at.partition])])
            for at, leader in leaders.items()
        }

    def elect(self, partition: int, upto: int) -> None:
        """A leader that knows only so much of the log."""
        del self.partitions[partition][upto:]
        self.leaders.setdefault(partition, []).append(len(self.partitions[partition]))

    def starting(self, held: TopicsHeld) -> Callable[[], Offsets]:
        return lambda: held.beginnings if self.start == "earliest" else held.ends

    def began(self, held: TopicsHeld) -> Callable[[], Offsets]:
        return Offsets

    def remaining(self, held: TopicsHeld) -> Remaining:
        return lambda partitions: {at: Remains(held.beginnings[at] + self.ahead) for at in partitions}

    def deleted(self, topics: Collection[str]) -> Collection[str]:
        return {topic for topic in topics if topic == "gone"}

    def read(self, epoch: Epoch) -> list[Record]:
        return [
            Record(range_.at, offset, *self.partitions[range_.partition][offset])
            for range_ in epoch.ranges
            for offset in range(range_.start, range_.end)
        ]

    def append(self, partition: int, *records: tuple[str, int]) -> None:
        self.partitions[partition] += records

    @property
    def every(self) -> list[Record]:
        return [
            Record(TopicPartition("t", partition), offset, *record)
            for partition, records in enumerate(self.partitions)
            for offset, record in enumerate(records)
        ]


@dataclass
class Group:
    """A consumer group: the offsets that it has committed survive every crash."""

    name: str = "group"
    stored: Offsets = field(default_factory=Offsets)
    members: bool = False

    def committed(self, also: Collection[str] = ()) -> Offsets:
        return Offsets({at: next_ for at, next_ in self.stored.items() if at.topic in {"t", *also}})

    def store(self, offsets: Offsets) -> None:
        if self.members:
            raise GroupActive("members")
        self.stored = Offsets({**self.stored, **offsets})

    def has_members(self) -> bool:
        return self.members


class Steps:
    """Every step of a run has a point before it and one after it; the run ends, or is rebalanced, at the n-th."""

    def __init__(self, crash_at: int | str | None = None) -> None:
        self._crash_at = crash_at
        self._count = 0

    def point(self, name: str) -> None:
        self._count += 1
        if self._crash_at in (self._count, name):
            raise Crash(name)


@dataclass
class Member:
    """One run's membership: polls at most ``max_records``, from the group's offsets up to what the topic holds.

    ``taken`` are the batches (by number) whose first partition a rebalance takes away before the commit; it comes
    back at once, as it would to another member.
    """

    topic: Topic
    group: Group
    steps: Steps
    max_records: int = 3
    taken: frozenset[int] = frozenset()
    _next: dict[TopicPartition, int] = field(default_factory=dict)
    _polled: int = 0

    def batches(self) -> Iterator[Epoch]:
        held = self.topic.look()
        self._next = {at: self.group.stored.get(at, start) for at, start in held.beginnings.items()}
        while True:
            room, ranges = self.max_records, []
            for at, start in self._next.items():
                end = min(held.ends[at], start + room)
                if end > start:
                    ranges.append(OffsetRange(*at, start, end))
                    room -= end - start
            if not ranges:
                return
            self._polled += 1
            self._next.update({each.at: each.end for each in ranges})
            self.steps.point("before poll")
            self._batch = _batch(self._polled, ranges)
            self.steps.point("after poll")
            yield self._batch

    def auto_committed(self) -> Epoch:
        self.steps.point("before commit")
        mine = self._keep(self._batch)
        self.steps.point("after commit")
        return _batch(self._polled, mine)

    def commit(self, batch: Epoch) -> None:
        self.steps.point("before commit")
        self._keep(batch)
        self.steps.point("after commit")

    def _keep(self, batch: Epoch) -> list[OffsetRange]:
        mine = list(batch.ranges)
        if batch.number in self.taken:
            lost = mine.pop(0)
            self._next[lost.at] = self.group.stored.get(lost.at, 0)
        self.group.stored = Offsets({**self.group.stored, **{each.at: each.end for each in mine}})
        return mine


def _batch(number: int, ranges: list[OffsetRange]) -> Epoch:
    ends = Offsets({each.at: each.end for each in ranges})
    return Epoch("p", number, "run", tuple(ranges), ends, {"t": "first"}, None, None)


class Log:
    """A coordinator log in memory."""

    def __init__(self) -> None:
        self.entries: list[Sequence[Row]] = []
        self.appended: datetime | None = None

    def read(self) -> LogHeld:
        rows = [row for entry in self.entries for row in entry]
        decided = next((row for row in reversed(rows) if row.state is State.DECIDED), None)
        return LogHeld(len(self.entries), rows[-1] if rows else None, decided)

    def done(self, epoch: int) -> Row | None:
        rows = [row for entry in self.entries for row in entry]
        return next((row for row in rows if (row.state, row.epoch.number) == (State.DONE, epoch)), None)

    def since(self) -> datetime | None:
        return self.appended

    def append(self, number: int, rows: Sequence[Row]) -> None:
        if number != len(self.entries) + 1:
            raise Fenced("", owner="", epoch=0)
        self.entries.append(rows)

    def compute_state(self) -> None:
        pass
