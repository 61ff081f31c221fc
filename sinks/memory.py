"""The reference sinks: both contracts in plain Python, readable as their model, and the fakes of the tests."""

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
        position = epoch.position()
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


@dataclass
class MemoryPlace:
    """What survives a crash: what readers see, with the position, and beside it what is only prepared."""

    rows: tuple[Record, ...] = ()
    position: Position | None = None
    staged: dict[str, tuple[Record, ...]] = field(default_factory=dict)
    """Name -> rows. Each name is of one ``prepare``, and begins with its attempt: ``abort`` goes by it."""
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    """For what a real place does in one step: replacing rows and position together, if the position is as expected."""


class MemoryTwoPhase:
    """Takes part in two-phase commit. Keeps nothing between two calls: any process is as good as another."""

    def __init__(self, name: str, place: MemoryPlace) -> None:
        self._name = name
        self._place = place

    @property
    def name(self) -> str:
        return self._name

    def position(self) -> Position | None:
        return self._place.position

    def prepare(self, epoch: Epoch, rows: Sequence[Record]) -> Prepared:
        name = f"{epoch.attempt}-{uuid.uuid4().hex}"  # never another call's: what a successor prepares is its own
        with self._place.lock:
            self._place.staged[name] = tuple(rows)
        return Prepared(len(rows), _checksum(rows), {"staged": name})

    def commit(self, epoch: Epoch, prepared: Prepared) -> Committed:
        with self._place.lock:
            found = self._place.position
            # First of all: what was prepared for an epoch that is there may have been thrown away since.
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
        with self._place.lock:
            for name in [name for name in self._place.staged if int(name.split("-")[0]) < before]:
                del self._place.staged[name]


def _checksum(rows: Sequence[Record]) -> str:
    """The same for the same rows in any order, and in any process."""
    return hashlib.sha256("\n".join(sorted(map(repr, rows))).encode()).hexdigest()
