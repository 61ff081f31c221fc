"""Reference sinks in plain Python: the shortest implementations of both contracts. Tests use them as fakes."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sinks.contract import Committed, Epoch, Position, Prepared
from sinks.errors import Fenced, KeyMoved, PositionMismatch, PreparedLost
from sinks.offsets import TopicPartition


class Record(NamedTuple):
    """A decoded record with its partition and offset."""

    at: TopicPartition
    offset: int
    key: Hashable
    value: object


@dataclass
class MemoryTable:
    """The state that survives a crash: rows and position, always replaced together."""

    rows: tuple[Record, ...] = ()
    position: Position | None = None
    commits: list[Position] = field(default_factory=list)


class MemoryAppend:
    """A sink that keeps every record."""

    def __init__(self, table: MemoryTable) -> None:
        self._table = table

    def position(self) -> Position | None:
        """The position of the last commit, or None before the first."""
        return self._table.position

    def write(self, epoch: Epoch, rows: Sequence[Record]) -> Committed:
        """Write an epoch in one commit. Raises Fenced or PositionMismatch."""
        found = self._table.position
        if found is not None and (found.owner, found.epoch) == (epoch.owner, epoch.number):
            return Committed(found, rows=0, already=True)
        if found != epoch.expected:
            if found is not None and found.owner != epoch.owner:
                raise Fenced(f"run {found.owner} has committed", owner=found.owner, epoch=found.epoch)
            raise PositionMismatch(f"expected {epoch.expected}, found {found}")
        position = epoch.position()
        version = len(self._table.commits)
        self._table.rows = self._merge(self._table.rows, rows)
        self._table.position = replace(position, version=version)
        self._table.commits.append(position)
        return Committed(self._table.position, rows=len(rows))

    def _merge(self, old: tuple[Record, ...], new: Sequence[Record]) -> tuple[Record, ...]:
        return (*old, *new)


class MemoryUpsert(MemoryAppend):
    """A sink that keeps the latest record per key. An update at or below the stored offset is ignored."""

    def _merge(self, old: tuple[Record, ...], new: Sequence[Record]) -> tuple[Record, ...]:
        latest = {record.key: record for record in old}
        for record in new:
            stored = latest.get(record.key)
            if stored is not None and stored.at != record.at:
                raise KeyMoved(f"key {record.key!r} was in {stored.at}, and is now in {record.at}")
            if stored is None or record.offset > stored.offset:
                latest[record.key] = record
        return tuple(latest.values())


@dataclass
class MemoryPlace:
    """The state that survives a crash: the visible rows with the position, and the prepared rows."""

    rows: tuple[Record, ...] = ()
    position: Position | None = None
    staged: dict[str, tuple[Record, ...]] = field(default_factory=dict)
    """Name -> rows. Each ``prepare`` makes one name, which begins with the attempt number that ``abort`` looks at."""
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    """Makes one step of replacing rows and position if the position is as expected, as a real store does."""


class MemoryTwoPhase:
    """A sink for two-phase commit. It keeps no state between calls, so any process can continue."""

    def __init__(self, name: str, place: MemoryPlace) -> None:
        self._name = name
        self._place = place

    @property
    def name(self) -> str:
        """The sink's name in the coordinator log."""
        return self._name

    def position(self) -> Position | None:
        """The position of the last commit, or None before the first."""
        return self._place.position

    def prepare(self, epoch: Epoch, rows: Sequence[Record]) -> Prepared:
        """Store the rows where no reader sees them."""
        name = f"{epoch.attempt}-{uuid.uuid4().hex}"  # unique, so no other process touches it
        with self._place.lock:
            self._place.staged[name] = tuple(rows)
        return Prepared(len(rows), _checksum(rows), {"staged": name})

    def commit(self, epoch: Epoch, prepared: Prepared) -> Committed:
        """Make prepared rows visible, once. Raises Fenced, PositionMismatch or PreparedLost."""
        with self._place.lock:
            found = self._place.position
            # Check this first: after a commit, the prepared rows may have been removed.
            if found is not None and (found.epoch, found.owner) == (epoch.number, epoch.owner):
                return Committed(found, rows=0, already=True, reads={"epoch": found.epoch})
            if found is not None and found.epoch >= epoch.number:
                raise Fenced(f"run {found.owner} has committed", owner=found.owner, epoch=found.epoch)
            if not epoch.follows(found):
                raise PositionMismatch(f"expected {epoch.expected}, found {found}")
            rows = self._place.staged.get(prepared.receipt["staged"])
            if rows is None:
                raise PreparedLost(f"{prepared.receipt['staged']} is no longer there")
            position = Position(epoch.number, epoch.offsets, owner=epoch.owner)
            self._place.rows, self._place.position = (*self._place.rows, *rows), position
        return Committed(position, rows=len(rows), reads={"epoch": epoch.number})

    def abort(self, before: int) -> None:
        """Remove everything that was prepared under a lower attempt number."""
        with self._place.lock:
            for name in [name for name in self._place.staged if int(name.split("-")[0]) < before]:
                del self._place.staged[name]


def _checksum(rows: Sequence[Record]) -> str:
    """A checksum that depends neither on the order of the rows nor on the process."""
    return hashlib.sha256("\n".join(sorted(map(repr, rows))).encode()).hexdigest()
