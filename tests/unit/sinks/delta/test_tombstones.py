"""Which deletes count, after any sequence of epochs, crashes, retries of dead letters, rewinds, and rewinds that undo a
rewind, while the pipeline file changes: by the statements' own conditions, in SQLite."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.delta.which_tombstones import (
    again_sql,
    ahead_sql,
    came_back,
    copies_sql,
    forgetting_sql,
    noted_until_sql,
    other_copies_sql,
    passed_sql,
    undone_sql,
)
from sinks.offsets import Offsets, TopicPartition

AT = TopicPartition("t", 0)
END = 13
DELETES = {"right": frozenset({1, 2, 5, 7, 8, 11}), "wrong": frozenset({1, 3, 6, 7, 10})}
"""By each file the offsets of the records that delete."""
LETTERS = {"right": frozenset({4}), "wrong": frozenset({9})}
"""By each file those that delete of two dead letters, 4 and 9, once they are tried again."""


class Killed(Exception):
    """The process is gone."""


@dataclass(frozen=True)
class Version:
    """What a version of the table holds."""

    epoch: int
    offset: int
    deletes: frozenset[int] = frozenset()
    """Those that have led to its rows."""


@dataclass
class World:
    """A table with a position, its versions, the two tables beside it, and its dead letters."""

    together: bool
    """Whether it goes back as one of several tables (``sinks.delta.taken_back``); else alone, in two commits."""
    known: bool = True
    """Whether tombstones say which epoch has noted them."""
    now: Version = Version(1, 0)
    restored_to: int | None = None
    highest: int = 1
    versions: list[Version] = field(default_factory=lambda: [Version(1, 0)])
    letters: dict[int, int | None] = field(default_factory=lambda: {4: None, 9: None})
    """The epoch that closed each."""
    marked: set[int] = field(default_factory=set)
    steps: Iterator[int] = field(default_factory=lambda: iter(()))
    """Numbers down to the step that the process is killed before; none: it isn't killed."""

    def __post_init__(self) -> None:
        self.db = sqlite3.connect(":memory:")
        self.db.create_function("substring_index", 3, lambda text, by, _: text and text.rpartition(by)[2])
        self.db.create_function("startswith", 2, lambda text, start: text and text.startswith(start))
        self.db.execute("CREATE TABLE notes (_topic, _partition, _offset, _noted_by)")
        self.db.execute("CREATE TABLE aside (_topic, _partition, _offset, _noted_by, _forgotten_at)")

    @property
    def position(self) -> Offsets:
        return Offsets({AT: self.now.offset})

    def step(self, sql: str = "") -> None:
        if next(self.steps, None) == 0:
            raise Killed
        if sql:
            self.db.execute(re.sub(r"(\d)L\b", r"\1", sql))

    def commit(self, offset: int, deletes: frozenset[int]) -> None:
        self.step()
        self.highest += 1
        self.now, self.restored_to = Version(self.highest, offset, deletes), None
        self.versions.append(self.now)

    def note(self, offset: int) -> None:
        by = f"'run/{self.highest + 1}'" if self.known else "NULL"
        self.step(f"INSERT INTO notes VALUES ('t', 0, {offset}, {by})")

    def put_aside(self, where: str, at: int) -> None:
        self.step(f"INSERT INTO aside SELECT *, {at} FROM notes WHERE {where}")
        self.step(f"DELETE FROM notes WHERE {where}")

    def went_back(self, at: int) -> None:
        """As ``Tombstones.went_back``."""
        if self.restored_to is None:
            return
        self.put_aside(undone_sql(self.restored_to, at), at)
        by = came_back(self.restored_to, at)
        self.step(f"DELETE FROM notes WHERE {other_copies_sql(by)}")
        missing = f"NOT EXISTS (SELECT 1 FROM notes AS t WHERE t._offset = a._offset AND t._noted_by = '{by}')"
        self.step(
            f"INSERT INTO notes SELECT _topic, _partition, _offset, '{by}' FROM aside AS a "
            f"WHERE {again_sql(self.position, self.restored_to)} AND {missing}"
        )

    def forget(self, offsets: set[int], at: int | None = None) -> None:
        """As ``Tombstones.forget``."""
        for offset in offsets:
            records = f"(SELECT 't' AS _topic, 0 AS _partition, {offset} AS _offset)"
            if at is not None:
                copies = copies_sql("notes", records, at).replace("LEFT SEMI JOIN", "JOIN")
                self.step(f"INSERT INTO aside {copies}")
            _, used, on, matched, _ = forgetting_sql("notes", records, but_copies=at is None).split("\n")
            there = f"{used.removeprefix('USING ')} WHERE {on.removeprefix('ON ')}"
            matched = matched.removeprefix("WHEN MATCHED")
            self.step(f"DELETE FROM notes AS t WHERE EXISTS (SELECT 1 FROM {there}){matched}")

    def take_letters_back(self, restored_to: int, highest: int) -> None:
        """As ``DeadLetters.take_back``."""
        closed = {at for at, epoch in self.letters.items() if epoch is not None and restored_to < epoch <= highest + 1}
        undone = {at for at in closed | self.marked if at < self.now.offset}
        if undone:
            self.forget(undone)
            self.letters.update(dict.fromkeys(undone))
        self.marked.clear()

    def look_back(self) -> None:
        restored_to = self.restored_to
        if restored_to is not None:
            self.went_back(self.highest + 1)
            self.take_letters_back(restored_to, self.highest)

    def start(self) -> None:
        """What a run begins with."""
        self.look_back()
        where = ahead_sql(self.position)
        if self.db.execute(f"SELECT * FROM notes WHERE {where}").fetchone():
            self.commit(self.now.offset, self.now.deletes)
            self.put_aside(where, self.highest)

    def read(self, records: int, file: str) -> None:
        self.start()
        end = min(self.now.offset + records, END)
        deletes = DELETES[file] & {*range(self.now.offset, end)}
        for offset in sorted(deletes):
            self.note(offset)
        self.commit(end, self.now.deletes | deletes)

    def retry(self, file: str) -> None:
        """Isn't killed between ``forget`` and commit: until the next retry deletes would be missing, or early."""
        self.look_back()
        tried = {at for at, closed in self.letters.items() if closed is None and at < self.now.offset}
        self.marked |= tried
        self.steps = iter(())
        self.forget(tried, self.highest + 1)
        for offset in tried & LETTERS[file]:
            self.note(offset)
        self.commit(self.now.offset, (self.now.deletes - tried) | (tried & LETTERS[file]))
        self.letters.update(dict.fromkeys(tried, self.highest))
        self.marked.clear()

    def rewind(self, to: Version) -> None:
        self.step()
        left = ahead_sql(Offsets({AT: to.offset}))
        self.now, self.restored_to = to, to.epoch
        if self.together:
            highest = self.highest
            self.put_aside(left, highest + 1)
            self.went_back(highest + 1)
            self.commit(to.offset, to.deletes)
            self.take_letters_back(to.epoch, highest)
        else:
            self.look_back()
            self.commit(to.offset, to.deletes)

    @property
    def counting(self) -> set[int]:
        found = self.db.execute(f"SELECT _offset FROM notes WHERE NOT ({ahead_sql(self.position)})")
        return {offset for (offset,) in found}


def passes(world: World, actions: list[tuple[str, int, str, int | None, bool]]) -> None:
    """After each action the deletes that count are those that led to the table's rows, and to those of any version.

    Of an action: what it does, of how many records or to how old a version, by which file, before which step it is
    killed, and whether a run starts after it. One starts after a killed run in any case: a RESTORE to a version that
    has passed the killed run's records would let its deletes count, see ``sinks.delta.tombstones``.
    """
    for what, number, file, killed_before, starts in actions:
        world.steps = iter(range(killed_before, -1, -1)) if killed_before is not None else iter(())
        target = world.versions[-(number % len(world.versions)) - 1]
        with suppress(Killed):
            if what == "rewind":
                world.rewind(target)
            elif what == "retry" and world.known:
                world.retry(file)
            else:
                world.read(number, file if world.known else "right")
            killed_before = None
        world.steps = iter(())
        if killed_before is not None and what == "rewind" and world.together:
            world.rewind(target)  # it was decided, so somebody finishes it
        if starts or (killed_before is not None and what != "rewind"):
            world.start()
            assert world.counting == world.now.deletes
            for version in world.versions:
                assert counted(world, version) == version.deletes


def counted(world: World, then: Version) -> set[int]:
    """As a clone of this version takes them over: see ``Tombstones.take_over``."""
    position = Offsets({AT: then.offset})
    there = f"SELECT _offset FROM notes WHERE {passed_sql(position)} AND {noted_until_sql(then.epoch)}"
    aside = f"SELECT _offset FROM aside WHERE {again_sql(position, then.epoch)}"
    return {offset for (offset,) in world.db.execute(f"{there} UNION {aside}")}


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["read", "read", "rewind", "rewind", "retry"]),
        st.integers(1, 6),
        st.sampled_from(["right", "wrong"]),
        st.none() | st.integers(0, 9),
        st.booleans(),
    ),
    max_size=14,
)


@pytest.mark.parametrize("known", [True, False], ids=["", "of an earlier version"])
@pytest.mark.parametrize("together", [False, True], ids=["alone", "one of several"])
@given(actions=ACTIONS)
@settings(max_examples=300)
def test_the_deletes_that_count_are_those_that_have_led_to_the_rows(
    together: bool, known: bool, actions: list[tuple[str, int, str, int | None, bool]]
) -> None:
    passes(World(together, known), actions)


@pytest.mark.parametrize("together", [False, True], ids=["alone", "one of several"])
def test_a_rewind_that_is_taken_back_brings_the_deletes_back(together: bool) -> None:
    world = World(together)
    world.read(2, "right")
    world.read(4, "right")
    before = world.versions[-1]
    world.rewind(world.versions[1])
    world.start()
    assert world.counting == {1}
    world.rewind(before)
    world.start()
    assert world.counting == {1, 2, 5}


@pytest.mark.parametrize("together", [False, True], ids=["alone", "one of several"])
def test_deletes_of_a_file_whose_epochs_were_taken_back_count_only_with_them(together: bool) -> None:
    world = World(together)
    world.read(9, "right")
    first = world.now
    world.rewind(world.versions[0])
    world.read(9, "wrong")
    second = world.now
    for _ in range(2):
        world.rewind(first)
        world.start()
        assert world.counting == {1, 2, 5, 7, 8}
        world.rewind(second)
        world.start()
        assert world.counting == {1, 3, 6, 7}


@pytest.mark.parametrize("together", [False, True], ids=["alone", "one of several"])
def test_a_retry_that_was_taken_back_and_then_not_has_its_delete(together: bool) -> None:
    world = World(together)
    world.read(5, "right")
    before = world.now
    world.retry("right")
    retried = world.now
    world.rewind(before)
    world.start()
    assert (world.counting, world.letters[4]) == ({1, 2}, None)
    world.rewind(retried)
    world.start()
    assert world.counting == {1, 2, 4}
    there = world.now
    world.retry("wrong")  # the letter is open: it is tried once more, and deletes nothing now
    assert world.counting == {1, 2}
    world.rewind(there)
    world.start()
    assert world.counting == {1, 2, 4}


def test_two_restores_before_a_commit_leave_the_deletes_of_the_last() -> None:
    world = World(together=False)
    world.read(3, "right")
    first = world.now
    world.rewind(world.versions[0])
    world.read(4, "wrong")
    second = world.now
    world.rewind(world.versions[0])
    for to in (first, second, first):
        world.now, world.restored_to = to, to.epoch
        world.look_back()
        assert world.counting == to.deletes
