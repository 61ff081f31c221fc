"""Offset arithmetic: half-open ranges, and positions that hold the next offset to read, as in Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, order=True)
class OffsetRange:
    """Offsets ``[start, end)`` of one partition. Raises ValueError unless ``0 <= start <= end``.

    ``span`` is an upper bound on the number of records: transaction markers, aborted records and compaction leave
    gaps.
    """

    topic: str
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"{self.topic}-{self.partition}: [{self.start}, {self.end}) is not a range of offsets")

    def __str__(self) -> str:
        """The range as text: ``flights-0 [100, 200)``."""
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"

    @property
    def at(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def span(self) -> int:
        """The number of offsets, at least the number of records."""
        return self.end - self.start


class Offsets(Mapping[TopicPartition, int]):
    """The next offset to read per partition, as Kafka's committed offsets: 5 means that 0..4 are done. Immutable.

    Written as Spark writes them: ``{"topic": {"0": 123}}``. Raises ValueError for a negative offset or partition.
    """

    __slots__ = ("_next",)
    _next: dict[TopicPartition, int]

    def __init__(self, next_offsets: Mapping[TopicPartition, int] | None = None) -> None:
        if isinstance(next_offsets, Offsets):
            self._next = next_offsets._next
            return
        self._next = {TopicPartition(*at): offset for at, offset in sorted((next_offsets or {}).items(), key=_by_place)}
        for at, offset in self._next.items():
            if offset < 0 or at[1] < 0:
                raise ValueError(
                    f"{at.topic}-{at.partition}: {offset} is not an offset of a partition (both start at 0)"
                )

    def __getitem__(self, at: TopicPartition) -> int:
        return self._next[at]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._next)

    def __len__(self) -> int:
        return len(self._next)

    def __hash__(self) -> int:
        return hash(tuple(self._next.items()))

    def __repr__(self) -> str:
        return f"Offsets({self.to_json()})"

    @property
    def topics(self) -> frozenset[str]:
        """The names of all topics."""
        return frozenset(at.topic for at in self._next)

    def join(self, other: Offsets) -> Offsets:
        """The higher offset of both for each partition: the least upper bound."""
        return Offsets({at: max(self.get(at, 0), other.get(at, 0)) for at in {**self, **other}})

    def advance(self, ranges: Iterable[OffsetRange]) -> Offsets:
        """The offsets after reading these ranges. Raises ValueError where a range doesn't start at the next offset."""
        moved = dict(self._next)
        for range_ in ranges:
            if moved.get(range_.at) != range_.start:
                raise ValueError(f"{range_} doesn't start at the next offset, {moved.get(range_.at)}")
            moved[range_.at] = range_.end
        return Offsets(moved)

    def reaches(self, other: Offsets) -> bool:
        """Whether these offsets are at least as high in every partition of ``other``."""
        return all(self.get(at, -1) >= offset for at, offset in other.items())

    def ahead_of(self, other: Offsets) -> int:
        """The number of offsets between ``other`` and these. A partition that ``other`` lacks counts from 0."""
        return sum(max(0, offset - other.get(at, 0)) for at, offset in self.items())

    def to_json(self) -> str:
        """The offsets as JSON, ``{"topic":{"0":123}}``."""
        return json.dumps(self.to_dict(), separators=(",", ":"))

    def to_dict(self) -> dict[str, dict[str, int]]:
        """The offsets as ``{"topic": {"0": 123}}``."""
        return nested(self._next)

    @classmethod
    def from_dict(cls, written: object) -> Offsets:
        """Read ``{"topic": {"0": 123}}``. Raises ValueError for any other shape."""
        return cls(flat(written))


def nested(numbers: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Write a number per partition as ``{"topic": {"0": 123}}``."""
    written: dict[str, dict[str, int]] = {}
    for at, number in numbers.items():
        written.setdefault(at.topic, {})[str(at.partition)] = number
    return written


def flat(written: object) -> dict[TopicPartition, int]:
    """Read what ``nested`` wrote. Raises ValueError for any other shape."""
    if not isinstance(written, Mapping):
        raise ValueError(f"offsets are written as {{topic: {{partition: offset}}}}, not {written!r}")
    found: dict[TopicPartition, int] = {}
    for topic, partitions in written.items():
        if not isinstance(topic, str) or not isinstance(partitions, Mapping):
            raise ValueError(f"offsets of {topic!r} are written as {{partition: offset}}, not {partitions!r}")
        for partition, number in partitions.items():
            if isinstance(number, bool) or not isinstance(number, int):
                raise ValueError(f"{topic}-{partition}: {number!r} is not an offset")
            found[TopicPartition(topic, int(partition))] = number
    return found


def _by_place(item: tuple[TopicPartition, int]) -> TopicPartition:
    return item[0]
