"""Finds the record that a table reads next in a mirrored topic, by comparing records.

A mirror has offsets of its own: it starts where retention has come to, and markers of transactions and compaction leave
other holes. So this module looks up the last records that the table has read, per partition, from their timestamp on.
They have to be in the mirror in the same order, with the same key, value and timestamp, followed by the same records.
The compared records have to be unique in both topics. Because the mirror keeps the order of the old records, the place
is then certain, even if the mirror begins later or isn't complete.

The group's offsets that mirrors translate themselves are no substitute: they lie earlier, and give at least once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kafka import KafkaConsumer
from kafka.structs import TopicPartition as KafkaPartition

from sinks.errors import SourceError
from sinks.kafka import ANSWER_WITHIN_MS, answering, client_options
from sinks.offsets import TopicPartition

WINDOW = 32
"""Records to compare on each side of the place, if there are as many."""
_PAGE = 1000
"""Offsets to read at a time."""
_FAR = 100_000
"""Offsets behind a place in which to look for a second one."""


@dataclass(frozen=True)
class Record:
    """A record of Kafka; its timestamp is in milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def content(self) -> tuple[int, bytes | None, bytes | None]:
        """What has to be the same in the mirror: timestamp, key and value."""
        return self.timestamp, self.key, self.value


class Records(Protocol):
    """The records of one partition."""

    @property
    def beginning(self) -> int:
        """The first offset that Kafka still holds."""

    @property
    def end(self) -> int:
        """The offset after the last record."""

    def between(self, start: int, end: int) -> list[Record]:
        """The records with offsets ``[start, end)``, which may have holes."""
        ...

    def since(self, timestamp: int) -> int | None:
        """The first offset whose record has this timestamp or a later one; None if there is none."""
        ...


@dataclass(frozen=True)
class Place:
    """Where the mirror has the record to read next, and what proves it."""

    offset: int
    """The mirror's offset of the record to read next."""
    before: int = 0
    """Number of records before the place that are the same in both."""
    after: int = 0
    """Number of records from the place on that are the same in both."""

    @property
    def compared(self) -> int:
        """Number of records that are the same in both. 0: both topics are empty."""
        return self.before + self.after


class NotFound(Exception):
    """Says why a place can't be found, or isn't certain."""


def find(old: Records, offset: int, new: Records) -> Place:
    """Find the place in ``new`` of the record that ``old`` has at ``offset``. Raises NotFound."""
    before, after = _before(old, offset), _after(old, offset)
    if not before and not after:
        if new.end == new.beginning:
            return Place(new.end)
        raise NotFound("the topic holds no record any more to look up in the mirror, and the mirror holds some")
    # Look for the last record that was read, or, if the mirror begins behind that, for the next record.
    for anchor, step in [*((record, 1) for record in before[-1:]), *((record, 0) for record in after[:1])]:
        place = next(_places(new, anchor, step, before, after), None)
        if place is None:
            continue
        same = before[len(before) - place.before :], after[: place.after]
        # In the old topic, the offset next to the anchor's: between it and ``offset`` there may be a hole.
        for where, records, at in (("the old topic", old, anchor.offset + step), ("the mirror", new, place.offset)):
            # Compare as many records as were the same: fewer than the windows, if the mirror begins or ends in them.
            others = (other for other in _places(records, anchor, step, *same, until=at + _FAR) if other.offset != at)
            again = next((other for other in others if other.compared == place.compared), None)
            if again is not None:
                raise NotFound(
                    f"{where} has the {place.compared} records around offset {at} twice, also around {again.offset}, "
                    "so nobody can tell which of them was read"
                )
        return place
    raise NotFound(
        f"the mirror doesn't have what is around offset {offset}, in the same order and with the same key, value and "
        "timestamp"
    )


def _places(
    records: Records,
    anchor: Record,
    step: int,
    before: Sequence[Record],
    after: Sequence[Record],
    until: int | None = None,
) -> Iterator[Place]:
    """The places where ``records`` have the anchor, with the same records around it as far as they reach.

    ``step``: 1 if the place is right behind the anchor, 0 if it is the anchor itself. ``until``: where to stop looking.
    """
    start = records.since(anchor.timestamp)
    if start is None:
        return
    for candidate in _like(anchor, records, start, records.end if until is None else min(records.end, until)):
        offset = candidate.offset + step
        its_before, its_after = _before(records, offset), _after(records, offset)
        same_before, same_after = _common(before[::-1], its_before[::-1]), _common(after, its_after)
        if same_before == min(len(before), len(its_before)) and same_after == min(len(after), len(its_after)):
            yield Place(offset, same_before, same_after)


def _like(anchor: Record, new: Records, start: int, end: int) -> Iterator[Record]:
    """The records in ``[start, end)`` with the anchor's content."""
    for page in range(start, end, _PAGE):
        candidates = new.between(page, min(page + _PAGE, end))
        yield from (record for record in candidates if record.content == anchor.content)


def _before(records: Records, offset: int) -> list[Record]:
    """Up to `WINDOW` records right before the offset, across holes."""
    span, end = WINDOW, min(offset, records.end)
    while True:
        start = max(records.beginning, end - span)
        window = records.between(start, end) if start < end else []
        if len(window) >= WINDOW or start == records.beginning or start >= end:
            return window[-WINDOW:]
        span *= 4


def _after(records: Records, offset: int) -> list[Record]:
    """Up to `WINDOW` records from the offset on, across holes."""
    span, start = WINDOW, max(offset, records.beginning)
    while True:
        end = min(records.end, start + span)
        window = records.between(start, end) if start < end else []
        if len(window) >= WINDOW or end == records.end or start >= end:
            return window[:WINDOW]
        span *= 4


def _common(one: Sequence[Record], other: Sequence[Record]) -> int:
    """How many records are the same, counted from the start."""
    same = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine.content != theirs.content:
            break
        same += 1
    return same


class Reader:
    """Reads records of one cluster by offset. Has to be closed. Raises SourceError when Kafka doesn't answer."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self.servers = kafka["bootstrap.servers"]
        self._consumer: Any = KafkaConsumer(
            **{
                **client_options(KafkaConsumer, kafka),
                "isolation_level": "read_committed",
                "enable_auto_commit": False,
                "allow_auto_create_topics": False,
                "auto_offset_reset": "none",
            }
        )

    def close(self) -> None:
        """Close the connection to Kafka."""
        self._consumer.close(autocommit=False)

    def partition(self, at: TopicPartition, beginning: int, end: int) -> Partition:
        """The records of one partition within ``[beginning, end)``."""
        return Partition(self, at, beginning, end)

    def between(self, at: TopicPartition, start: int, end: int) -> list[Record]:
        """The records of a partition with offsets ``[start, end)``, which may have holes."""
        partition, records = KafkaPartition(*at), []
        deadline = time.monotonic() + ANSWER_WITHIN_MS / 1000
        with answering(self.servers):
            self._consumer.assign([partition])
            self._consumer.seek(partition, start)
            while (position := self._consumer.position(partition)) is not None and position < end:
                polled = self._consumer.poll(timeout_ms=200, max_records=_PAGE).get(partition, [])
                records += [Record(each.offset, each.timestamp, each.key, each.value) for each in polled]
                if polled:
                    deadline = time.monotonic() + ANSWER_WITHIN_MS / 1000
                elif time.monotonic() > deadline:
                    raise SourceError(
                        f"Kafka at {self.servers} gives no record of {at.topic}-{at.partition} from offset {position} "
                        f"on, though the partition ends at {end}.",
                        hint="A transaction may be open there. Try again when nobody writes to the topic.",
                    )
        return [record for record in records if record.offset < end]

    def since(self, at: TopicPartition, timestamp: int) -> int | None:
        """The first offset of a partition whose record has this timestamp or a later one."""
        with answering(self.servers):
            offsets = self._consumer.offsets_for_times({KafkaPartition(*at): timestamp}, timeout_ms=ANSWER_WITHIN_MS)
        first = offsets.get(KafkaPartition(*at))
        return first.offset if first else None


@dataclass(frozen=True)
class Partition:
    """The `Records` of one partition, read by a `Reader`."""

    reader: Reader
    at: TopicPartition
    beginning: int
    end: int

    def between(self, start: int, end: int) -> list[Record]:
        """The records with offsets ``[start, end)``, which may have holes."""
        return self.reader.between(self.at, start, end)

    def since(self, timestamp: int) -> int | None:
        """The first offset whose record has this timestamp or a later one; None if there is none."""
        return self.reader.since(self.at, timestamp)
