"""The reference sink: the contract in plain Python, readable as its model, and the fake of the tests."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sinks.contract import Committed, Epoch, Position
from sinks.errors import Fenced, KeyMoved, PositionMismatch
from sinks.offsets import TopicPartition


class Record(NamedTuple):
    """A decoded record with its coordinates."""

    at: TopicPartition
    offset: int
    key: Hashable
    value: object


@dataclass
class MemoryTable:
    """What survives a crash: rows and position, replaced together."""

    rows: tuple[Record, ...] = ()
    position: Position | None = None
    commits: list[Position] = field(default_factory=list)


class MemoryAppend:
    """Keeps every record."""

    def __init__(self, table: MemoryTable) -> None:
        self._table = table

    def position(self) -> Position | None:
        return self._table.position

    def write(self, epoch: Epoch, rows: Sequence[Record]) -> Committed:
        found = self._table.position
        if found is not None and (found.owner, found.epoch) == (epoch.owner, epoch.number):
            return Committed(found, rows=0, already=True)
        if found != epoch.expected:
            if found is not None and found.owner != epoch.owner:
                raise Fenced(f"run {found.owner} has committed", owner=found.owner, epoch=found.epoch)
            raise PositionMismatch(f"expected {epoch.expected}, found {found}")
        position = Position(
            epoch.number, epoch.offsets, epoch.topics, epoch.owner, epoch.read_to, epoch.since, epoch.lost,
            epoch.delivery, epoch.clock,
        )  # fmt: skip
        version = len(self._table.commits)
        self._table.rows = self._merge(self._table.rows, rows)
        self._table.position = replace(position, version=version)
        self._table.commits.append(position)
        return Committed(self._table.position, rows=len(rows))

    def _merge(self, old: tuple[Record, ...], new: Sequence[Record]) -> tuple[Record, ...]:
        return (*old, *new)


class MemoryUpsert(MemoryAppend):
    """Keeps the latest record per key: an update whose offset is <= the stored one is ignored."""

    def _merge(self, old: tuple[Record, ...], new: Sequence[Record]) -> tuple[Record, ...]:
        latest = {record.key: record for record in old}
        for record in new:
            stored = latest.get(record.key)
            if stored is not None and stored.at != record.at:
                raise KeyMoved(f"key {record.key!r} was in {stored.at}, and is now in {record.at}")
            if stored is None or record.offset > stored.offset:
                latest[record.key] = record
        return tuple(latest.values())
