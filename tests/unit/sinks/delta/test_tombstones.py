"""Which deletes count, after any sequence of epochs, crashes, rewinds, and rewinds that undo a rewind: by the
statements' own conditions, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.delta.tombstones import again_sql, ahead_sql
from sinks.offsets import Offsets, TopicPartition

AT = TopicPartition("t", 0)
DELETES = frozenset({1, 2, 5, 7, 8, 11})
"""The offsets of the records that delete."""


class Killed(Exception):
    """The process is gone."""


@dataclass
class World:
    """A table with a position, its versions, and the two tables beside it."""

    together: bool
    """Whether it goes back as one of several tables (``sinks.delta.taken_back``); else alone, in two commits."""
    offset: int = 0
    epoch: int = 0
    restored_to: int | None = None
    highest: int = 0
    versions: list[tuple[int, int]] = field(default_factory=lambda: [(1, 0)])
    steps: Iterator[int] = field(default_factory=lambda: iter(()))
    """Numbers down to the step that the process is killed before; none: it isn't killed."""

    def __post_init__(self) -> None:
        self.db = sqlite3.connect(":memory:")
        self.db.execute("CREATE TABLE notes (_topic, _partition, _offset)")
        self.db.execute("CREATE TABLE aside (_topic, _partition, _offset, _forgotten_at)")
        self.highest = 1

    @property
    def position(self) -> Offsets:
        return Offsets({AT: self.offset})

    def step(self, sql: str = "") -> None:
        if next(self.steps, None) == 0:
            raise Killed
        if sql:
            self.db.execute(sql)

    def commit(self, offset: int) -> None:
        self.step()
        self.highest += 1
        self.offset, self.restored_to = offset, None
        self.versions.append((self.highest, offset))

    def forget(self, where: str, at: int) -> None:
        self.step(f"INSERT INTO aside SELECT *, {at} FROM notes WHERE {where}")
        self.step(f"DELETE FROM notes WHERE {where}")

    def bring_back(self) -> None:
        if self.restored_to is not None:
            where = again_sql(self.position, self.restored_to)
            self.step(f"INSERT INTO notes SELECT _topic, _partition, _offset FROM aside WHERE {where}")
            self.step(f"DELETE FROM aside WHERE {where}")

    def start(self) -> None:
        """What a run begins with."""
        self.bring_back()
        where = ahead_sql(self.position)
        if self.db.execute(f"SELECT * FROM notes WHERE {where}").fetchone():
            self.commit(self.offset)
            self.forget(where, self.highest)

    def read(self, records: int) -> None:
        self.start()
        end = min(self.offset + records, max(DELETES) + 2)
        for offset in sorted(DELETES & {*range(self.offset, end)}):
            self.step(f"INSERT INTO notes VALUES ('t', 0, {offset})")
        self.commit(end)

    def rewind(self, number: int, offset: int) -> None:
        self.step()
        left = ahead_sql(Offsets({AT: offset}))
        self.offset, self.restored_to = offset, number
        if self.together:
            self.forget(left, self.highest + 1)
        self.bring_back()
        self.commit(offset)

    @property
    def counting(self) -> set[int]:
        found = self.db.execute(f"SELECT _offset FROM notes WHERE NOT ({ahead_sql(self.position)})")
        return {offset for (offset,) in found}


ACTIONS = st.lists(st.tuples(st.sampled_from(["read", "rewind"]), st.integers(1, 6), st.none() | st.integers(0, 6)))


@pytest.mark.parametrize("together", [False, True], ids=["alone", "one of several"])
@given(actions=ACTIONS)
@settings(max_examples=300)
def test_the_deletes_that_count_are_those_that_the_position_has_passed(
    together: bool, actions: list[tuple[str, int, int | None]]
) -> None:
    world = World(together)
    for what, number, killed_before in actions:
        world.steps = iter(range(killed_before, -1, -1)) if killed_before is not None else iter(())
        target = world.versions[-(number % len(world.versions)) - 1]
        with suppress(Killed):
            world.read(number) if what == "read" else world.rewind(*target)
            killed_before = None
        world.steps = iter(())
        if killed_before is not None and what == "rewind" and together:
            world.rewind(*target)  # it was decided, so somebody finishes it
        world.start()
        assert world.counting == {offset for offset in DELETES if offset < world.offset}


def test_a_rewind_that_is_taken_back_brings_the_deletes_back() -> None:
    world = World(together=False)
    world.read(2)
    world.read(4)
    before = world.versions[-1]
    world.rewind(*world.versions[1])
    world.start()
    assert world.counting == {1}
    world.rewind(*before)
    world.start()
    assert world.counting == {1, 2, 5}
