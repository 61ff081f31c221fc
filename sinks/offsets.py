"""Offset arithmetic: ranges and positions, half-open and next-to-read as in Kafka. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True, order=True)
class OffsetRange:
    """Offsets ``[start, end)`` of one partition.

    ``span`` is an upper bound on the records in it: transaction markers, aborted records and compaction leave holes.
    """

    topic: str
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"{self.topic}-{self.partition}: [{self.start}, {self.end}) is not a range of offsets")

    def __str__(self) -> str:
        """``flights-0 [100, 200)``."""
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def span(self) -> int:
        return self.end - self.start


class Offsets(Mapping[TopicPartition, int]):
    """Next offset to read per topic-partition, as Kafka's committed offsets: 5 means 0..4 are done. Immutable.

    Written as Spark writes them: ``{"topic": {"0": 123}}``.
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
        return frozenset(at.topic for at in self._next)

    def join(self, other: Offsets) -> Offsets:
        """The furthest of both, partition by partition: the least upper bound."""
        return Offsets({at: max(self.get(at, 0), other.get(at, 0)) for at in {**self, **other}})

    def advance(self, ranges: Iterable[OffsetRange]) -> Offsets:
        """The offsets after these ranges. A range must start where its partition stands: nothing is left out."""
        moved = dict(self._next)
        for range_ in ranges:
            if moved.get(range_.at) != range_.start:
                raise ValueError(f"{range_} doesn't start at the next offset, {moved.get(range_.at)}")
            moved[range_.at] = range_.end
        return Offsets(moved)

    def reaches(self, other: Offsets) -> bool:
        """Whether every partition of ``other`` is read at least as far here."""
        return all(self.get(at, -1) >= offset for at, offset in other.items())

    def ahead_of(self, other: Offsets) -> int:
        """How many offsets lie between; of a partition that ``other`` doesn't have, all."""
        return sum(max(0, offset - other.get(at, 0)) for at, offset in self.items())

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), separators=(",", ":"))

    def to_dict(self) -> dict[str, dict[str, int]]:
        return nested(self._next)

    @classmethod
    def from_dict(cls, written: object) -> Offsets:
        """Read ``{"topic": {"0": 123}}``; ValueError where it has another shape."""
        return cls(flat(written))


def nested(numbers: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """A number per partition as ``{"topic": {"0": 123}}``."""
    written: dict[str, dict[str, int]] = {}
    for at, number in numbers.items():
        written.setdefault(at.topic, {})[str(at.partition)] = number
    return written


def flat(written: object) -> dict[TopicPartition, int]:
    """What ``nested`` wrote; ValueError where it has another shape."""
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
