"""Histories as the lab would write them, from a tiny deterministic model of the four deliveries. No clock, no luck."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from connector.lab.check.history import Happened, History, Row, Sent, Sink, Version
from connector.lab.show.explanations import POINTS
from sinks.offsets import OffsetRange, Offsets, TopicPartition

TOPIC = "orders"
SKIPPED = {
    "auto_commit": {"after_offset_commit", "between_tables"},
    "manual_commit": {"after_auto_commit", "between_tables"},
    "idempotent": {"after_auto_commit", "between_tables"},
    "transactional": {"after_auto_commit", "between_tables"},
}
"""Moments that a delivery doesn't have in one table."""


class Killed(Exception):
    pass


@dataclass
class _World:
    delivery: str
    sink: Sink
    crash_point: str
    sent: tuple[Sent, ...]
    since: Offsets
    events: list[Happened] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)
    group: Offsets = field(default_factory=Offsets)
    rows: tuple[Row, ...] = ()
    run: int = 0
    batches: int = 0

    def say(self, what: str, ranges: tuple[OffsetRange, ...] = (), note: str = "") -> None:
        self.events.append(Happened(self.run, round(0.25 * len(self.events), 2), what, ranges, note))

    def moment(self, point: str) -> None:
        """Die here, if this is the moment. The third batch is the first run's last."""
        recovery = self.crash_point == "in_recovery"
        wanted = "after_write" if recovery else self.crash_point
        if point == wanted and ((self.run == 0 and self.batches == 3) or (self.run == 1 and recovery)):
            raise Killed

    def commit(self, ranges: tuple[OffsetRange, ...]) -> None:
        self.group = self.group.advance(ranges)
        self.say("offsets_committed", ranges)

    def write(self, ranges: tuple[OffsetRange, ...]) -> None:
        self.moment("before_write")
        self.say("writing", ranges)
        self.moment("mid_write")
        records = [
            sent for sent in self.sent if any(r.at == sent.at and r.start <= sent.offset < r.end for r in ranges)
        ]
        rows = [Row(sent.topic, sent.partition, sent.offset, sent.key, sent.value) for sent in records]
        if self.sink == "append":
            self.rows = (*self.rows, *rows)
        else:
            by_key = {row.key: row for row in self.rows}
            for row in rows:
                stored = by_key.get(row.key)
                if self.delivery == "manual_commit" or stored is None or stored.offset < row.offset:
                    by_key[row.key] = row
            self.rows = tuple(by_key.values())
        claims = None
        if self.delivery == "transactional":
            claims = self.group = self.group.advance(ranges)
        self.versions.append(Version(len(self.versions), self.rows, claims))
        self.say("committed", ranges, f"version {self.versions[-1].number}")
        self.moment("after_write")


def simulate(
    delivery: str,
    sink: Sink,
    crash_point: str,
    *,
    records: int = 40,
    partitions: int = 2,
    batch: int = 5,
    since: int = 0,
) -> History:
    """``batch`` is the records per partition and poll. A restarted process polls other, smaller batches."""
    sent = tuple(
        Sent(TOPIC, partition, offset, _key(partition, offset), 1000 * partition + offset)
        for partition in range(partitions)
        for offset in range(since, since + records // partitions)
    )
    start = Offsets({TopicPartition(TOPIC, partition): since for partition in range(partitions)})
    world = _World(delivery, sink, crash_point, sent, start, group=start)
    world.versions.append(Version(0, (), start if delivery == "transactional" else None))
    ends = {TopicPartition(TOPIC, p): since + records // partitions for p in range(partitions)}
    while world.run < 4:
        world.say("started")
        ranges = tuple(OffsetRange(at.topic, at.partition, offset, offset) for at, offset in world.group.items())
        world.say("resumed", ranges, world.group.to_json())
        try:
            _run(world, ends, batch if world.run == 0 else max(1, batch * 2 // 3))
        except Killed:
            world.say("crashed", note="SIGKILL")
            world.run += 1
            continue
        world.say("done")
        break
    return History(
        delivery, sink, crash_point, sent, tuple(world.events), tuple(world.versions), since=world.since, drained=True
    )


def _key(partition: int, offset: int) -> str:
    """A key that goes on all along; and per three offsets one with two updates, and one with one. So every batch has
    the newest update of some key, and an upsert shows that it was lost."""
    if offset % 5 == 0:
        return f"p{partition}-hot"
    return f"p{partition}-{'single' if offset % 3 == 1 else 'double'}-{offset // 3}"


def _run(world: _World, ends: Mapping[TopicPartition, int], batch: int) -> None:
    world.batches = 0
    position = world.group
    while True:
        ranges = tuple(
            OffsetRange(at.topic, at.partition, offset, min(offset + batch, ends[at]))
            for at, offset in position.items()
            if offset < ends[at]
        )
        if not ranges:
            return
        world.batches += 1
        position = position.advance(ranges)
        world.say("planned" if world.delivery == "transactional" else "polled", ranges)
        world.moment("after_poll")
        if world.delivery == "auto_commit":
            world.commit(ranges)
            world.moment("after_auto_commit")
            world.write(ranges)
        else:
            world.write(ranges)
            if world.delivery != "transactional":
                world.commit(ranges)
            world.moment("after_offset_commit")


def every(records: int = 40, **more: int) -> list[History]:
    """All cells of the lab that make sense."""
    return [
        simulate(delivery, sink, point, records=records, **more)
        for delivery in ("auto_commit", "manual_commit", "idempotent", "transactional")
        for sink in SINKS
        if (delivery, sink) != ("idempotent", "append")
        for point in POINTS
        if point not in SKIPPED[delivery]
    ]


SINKS: tuple[Sink, ...] = ("append", "upsert")
