"""Where a mirrored topic has the record that a table wants next, found by the records themselves.

A mirror has offsets of its own: it starts where retention has come to, and transactions' markers and compaction leave
other holes. So of each partition the last records that were read are looked up in the mirror, from their timestamp on,
and have to be there in the same order, with the same key, value and timestamp, followed by what follows them. What is
compared has to be unique in both: as the mirror holds the old records in their order, it is the place then, even if the
mirror begins later or isn't complete. A group's offsets as mirrors translate them are earlier ones: at least once.
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
"""Records that are compared on each side of the place, where there are as many."""
_PAGE = 1000
_FAR = 100_000
"""Offsets behind a place in which it isn't looked for a second one any more."""


@dataclass(frozen=True)
class Record:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def content(self) -> tuple[int, bytes | None, bytes | None]:
        return self.timestamp, self.key, self.value


class Records(Protocol):
    """One partition."""

    @property
    def beginning(self) -> int: ...

    @property
    def end(self) -> int: ...

    def between(self, start: int, end: int) -> list[Record]:
        """Of these offsets, which may have holes."""
        ...

    def since(self, timestamp: int) -> int | None:
        """The first offset whose record is that young."""
        ...


@dataclass(frozen=True)
class Place:
    offset: int
    """Of the mirror: what is to be read next."""
    before: int = 0
    """Records before it that are the same in both."""
    after: int = 0

    @property
    def compared(self) -> int:
        """0: neither has any."""
        return self.before + self.after


class NotFound(Exception):
    """Says why."""


def find(old: Records, offset: int, new: Records) -> Place:
    """Where ``new`` has what ``old`` has at ``offset``. Raises NotFound."""
    before, after = _before(old, offset), _after(old, offset)
    if not before and not after:
        if new.end == new.beginning:
            return Place(new.end)
        raise NotFound("the topic holds no record any more to be looked up in the mirror, which holds some")
    # The last one that was read; or, in a mirror that begins behind it, the one that comes next.
    for anchor, step in [*((each, 1) for each in before[-1:]), *((each, 0) for each in after[:1])]:
        found = next(_places(new, anchor, step, before, after), None)
        if found is None:
            continue
        same = before[len(before) - found.before :], after[: found.after]
        # (the anchor's, as behind it there may be a hole)
        for where, records, at in (("the old topic", old, anchor.offset + step), ("the mirror", new, found.offset)):
            # As much of it as was found: less than the windows, where the mirror begins or ends among them.
            others = (each for each in _places(records, anchor, step, *same, until=at + _FAR) if each.offset != at)
            again = next((each for each in others if each.compared == found.compared), None)
            if again is not None:
                raise NotFound(
                    f"{where} has the {found.compared} records around offset {at} twice, also around {again.offset}: "
                    "it can't be told which of them was read"
                )
        return found
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
    """Where ``records`` have the same around the anchor, as far as they reach. ``step``: 1 if the place is behind the
    anchor, 0 if it is the anchor's."""
    start = records.since(anchor.timestamp)
    if start is None:
        return
    for candidate in _like(anchor, records, start, records.end if until is None else min(records.end, until)):
        offset = candidate.offset + step
        there, follows = _before(records, offset), _after(records, offset)
        same, same_after = _common(before[::-1], there[::-1]), _common(after, follows)
        if same == min(len(before), len(there)) and same_after == min(len(after), len(follows)):
            yield Place(offset, same, same_after)


def _like(anchor: Record, new: Records, start: int, end: int) -> Iterator[Record]:
    for page in range(start, end, _PAGE):
        yield from (each for each in new.between(page, min(page + _PAGE, end)) if each.content == anchor.content)


def _before(records: Records, offset: int) -> list[Record]:
    """The last ones before it."""
    span, end = WINDOW, min(offset, records.end)
    while True:
        start = max(records.beginning, end - span)
        found = records.between(start, end) if start < end else []
        if len(found) >= WINDOW or start == records.beginning or start >= end:
            return found[-WINDOW:]
        span *= 4


def _after(records: Records, offset: int) -> list[Record]:
    span, start = WINDOW, max(offset, records.beginning)
    while True:
        end = min(records.end, start + span)
        found = records.between(start, end) if start < end else []
        if len(found) >= WINDOW or end == records.end or start >= end:
            return found[:WINDOW]
        span *= 4


def _common(one: Sequence[Record], other: Sequence[Record]) -> int:
    """How many are the same from the start on."""
    same = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine.content != theirs.content:
            break
        same += 1
    return same


class Reader:
    """Records of one cluster, by offsets. To be closed."""

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
        self._consumer.close(autocommit=False)

    def partition(self, at: TopicPartition, beginning: int, end: int) -> Partition:
        return Partition(self, at, beginning, end)

    def between(self, at: TopicPartition, start: int, end: int) -> list[Record]:
        partition, found = KafkaPartition(*at), []
        deadline = time.monotonic() + ANSWER_WITHIN_MS / 1000
        with answering(self.servers):
            self._consumer.assign([partition])
            self._consumer.seek(partition, start)
            while (position := self._consumer.position(partition)) is not None and position < end:
                polled = self._consumer.poll(timeout_ms=200, max_records=_PAGE).get(partition, [])
                found += [Record(each.offset, each.timestamp, each.key, each.value) for each in polled]
                if polled:
                    deadline = time.monotonic() + ANSWER_WITHIN_MS / 1000
                elif time.monotonic() > deadline:
                    raise SourceError(
                        f"Kafka at {self.servers} gives no record of {at.topic}-{at.partition} from offset {position} "
                        f"on, though it ends at {end}.",
                        hint="Is a transaction open there? Try again when the topic is at rest.",
                    )
        return [each for each in found if each.offset < end]

    def since(self, at: TopicPartition, timestamp: int) -> int | None:
        with answering(self.servers):
            found = self._consumer.offsets_for_times({KafkaPartition(*at): timestamp}, timeout_ms=ANSWER_WITHIN_MS)
        first = found.get(KafkaPartition(*at))
        return first.offset if first else None


@dataclass(frozen=True)
class Partition:
    reader: Reader
    at: TopicPartition
    beginning: int
    end: int

    def between(self, start: int, end: int) -> list[Record]:
        return self.reader.between(self.at, start, end)

    def since(self, timestamp: int) -> int | None:
        return self.reader.since(self.at, timestamp)
