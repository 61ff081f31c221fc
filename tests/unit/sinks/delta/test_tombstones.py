"""Which deletes count, after any sequence of epochs, crashes, retries of dead letters, rewinds, and rewinds that undo a
rewind, while the pipeline file changes: by the real steps in their order, whose statements run in SQLite."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructField, StructType

from sinks.delta import tombstones
from sinks.delta.tombstones import Tombstones
from sinks.delta.which_tombstones import again_sql, ahead_sql, came_back, noted_until_sql, passed_sql
from sinks.offsets import Offsets, TopicPartition

AT = TopicPartition("t", 0)
END = 13
DELETES = {"right": frozenset({1, 2, 5, 7, 8, 11}), "wrong": frozenset({1, 3, 6, 7, 10})}
"""By each file the offsets of the records that delete."""
LETTERS = {"right": frozenset({4}), "wrong": frozenset({9})}
"""By each file those that delete of two dead letters, 4 and 9, once they are tried again."""


class Killed(BaseException):
    """The process is gone."""


class Spark:
    """Runs the statements for tombstones, in SQLite. ``before_write`` is called before each that writes."""

    def __init__(self, before_write: Callable[[], None]) -> None:
        self.before_write = before_write
        self.db = sqlite3.connect(":memory:")
        self.db.row_factory = sqlite3.Row
        self.db.create_function("substring_index", 3, lambda text, by, _: text and text.rpartition(by)[2])
        self.db.create_function("startswith", 2, lambda text, start: text and text.startswith(start))
        for name in ("unix_micros", "timestamp_micros"):
            self.db.create_function(name, 1, lambda time: time)

    def sql(self, text: str) -> Frame:
        text = re.sub(r"(\d)L\b", r"\1", text).replace("LEFT SEMI JOIN", "JOIN")
        if text.startswith("MERGE"):  # that of ``forgetting_sql``
            _, used, on, matched, _ = text.split("\n")
            there = f"{used.removeprefix('USING ')} WHERE {on.removeprefix('ON ')}"
            also = matched.removeprefix("WHEN MATCHED")
            text = f"DELETE FROM notes AS t WHERE EXISTS (SELECT 1 FROM {there}){also}"
        return Frame(self, text)

    def write(self, text: str) -> None:
        self.before_write()
        self.db.execute(text)


@dataclass
class Frame:
    """A query, as far as tombstones ask. A DELETE is done once it is collected."""

    spark: Spark
    text: str

    @property
    def names(self) -> list[str]:
        return [column[0] for column in self.spark.db.execute(f"SELECT * FROM ({self.text}) LIMIT 0").description]

    @property
    def schema(self) -> Any:
        return StructType([StructField(name, StringType()) for name in self.names])

    def collect(self) -> list[sqlite3.Row]:
        if self.text.startswith("DELETE"):
            self.spark.write(self.text)
            return []
        return list(self.spark.db.execute(self.text))

    def isEmpty(self) -> bool:
        return not self.collect()

    def drop(self, *names: str) -> Frame:
        return self.selectExpr(*(name for name in self.names if name not in names))

    def selectExpr(self, *columns: str) -> Frame:
        return Frame(self.spark, f"SELECT {', '.join(columns)} FROM ({self.text})")

    def writeTo(self, table: str) -> Any:
        def append() -> None:
            self.spark.write(f"INSERT INTO {table} ({', '.join(self.names)}) {self.text}")

        return SimpleNamespace(options=lambda **_: SimpleNamespace(append=append))


class Kept(Tombstones):
    """The real steps, over tables in SQLite."""

    def __init__(self, spark: Spark) -> None:
        made: Any = SimpleNamespace(spark=spark, detail=lambda: "there", label="t")
        super().__init__(made, ())
        self.notes = self._beside("notes")
        self._table = self.notes

    def _beside(self, folder: str) -> Any:
        name = "notes" if folder == "notes" else "aside"
        spark: Any = self._of.spark
        more = ", _forgotten_at" if name == "aside" else ""
        spark.db.execute(f"CREATE TABLE {name} (_topic, _partition, _offset, _noted_at, _noted_by{more})")
        return SimpleNamespace(
            sql=name, spark=spark, exists=lambda: True, evolves=False, allow_widening=lambda _: None,
            schema=SimpleNamespace(names=Frame(spark, f"SELECT * FROM {name}").names), path=name,
        )  # fmt: skip

    def _missing(self, notes: Any, names: Sequence[str]) -> Any:
        same = " AND ".join(f"s.{name} IS t.{name}" for name in names)
        there = f"SELECT 1 FROM notes AS t WHERE {same}"
        return Frame(notes.spark, f"SELECT * FROM ({notes.text}) AS s WHERE NOT EXISTS ({there})")


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
        self.spark = Spark(self.step)
        self.db = self.spark.db
        self.real = Kept(self.spark)
        self.real.aside  # noqa: B018 - make it

    @property
    def position(self) -> Offsets:
        return Offsets({AT: self.now.offset})

    def step(self) -> None:
        if next(self.steps, None) == 0:
            raise Killed

    def commit(self, offset: int, deletes: frozenset[int]) -> None:
        self.step()
        self.highest += 1
        self.now, self.restored_to = Version(self.highest, offset, deletes), None
        self.versions.append(self.now)

    def note(self, offset: int) -> None:
        by = f"'run/{self.highest + 1}'" if self.known else "NULL"
        self.spark.write(f"INSERT INTO notes VALUES ('t', 0, {offset}, {self.highest}, {by})")

    def went_back(self, at: int) -> None:
        if self.restored_to is not None:
            self.real.went_back(self.position, self.restored_to, at)

    def forget(self, offsets: set[int], at: int | None = None) -> None:
        for offset in offsets:
            self.real.forget(f"(SELECT 't' AS _topic, 0 AS _partition, {offset} AS _offset)", at)

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
        left = self.real.left_over(self.position, ["t"])
        if left is not None:
            self.commit(self.now.offset, self.now.deletes)
            left.delete(self.highest)

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
        self.now, self.restored_to = to, to.epoch
        if self.together:
            highest = self.highest
            left = self.real.left_over(self.position, ["t"])
            if left is not None:
                left.delete(highest + 1)
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
@settings(max_examples=200)
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


NAMES = {"t": "#A/t"}


def noted_as(world: World, table: str) -> set[tuple[str, int]]:
    return {(topic, offset) for topic, offset in world.db.execute(f"SELECT _topic, _offset FROM {table}")}


def renamed_for_a_retirement() -> World:
    """Its commit failed, and the old topic is back."""
    world = World(together=False)
    world.read(5, "right")
    world.db.execute("UPDATE notes SET _topic = '#A/t'")
    return world


@pytest.mark.parametrize("killed_before", [0, 1, 2, None])
def test_deletes_that_were_renamed_for_a_retirement_that_is_none_count_again(killed_before: int | None) -> None:
    world = renamed_for_a_retirement()
    assert world.counting == set()
    world.steps = iter(range(killed_before, -1, -1)) if killed_before is not None else iter(())
    for _ in range(2 if killed_before is not None else 1):
        left = world.real.not_retired(world.position, NAMES)
        if left is not None:
            with suppress(Killed):
                world.real.name_back(left, NAMES, world.highest)
        world.steps = iter(())
    assert world.counting == world.now.deletes == {1, 2}
    assert noted_as(world, "notes") == {("t", 1), ("t", 2)}
    assert world.real.not_retired(world.position, NAMES) is None


def test_a_restore_to_after_the_retirement_finds_its_deletes_by_their_retired_name() -> None:
    world = renamed_for_a_retirement()
    world.commit(0, world.now.deletes)  # the retirement, which a RESTORE takes back
    of_retired = Offsets({TopicPartition("#A/t", 0): 5, AT: 0})
    assert world.real.not_retired(of_retired, {"t": "#B/t"}) is None, "it is part of what led to the position"
    retired, world.now = world.now, world.versions[1]
    world.commit(world.now.offset, world.now.deletes)
    left = world.real.not_retired(world.position, NAMES)
    assert left is not None
    world.real.name_back(left, NAMES, world.highest)
    world.real.went_back(of_retired, retired.epoch, world.highest + 1)
    assert {("#A/t", 1), ("#A/t", 2)} <= noted_as(world, "notes")


def test_a_topic_that_came_back_and_retires_again_has_both_names() -> None:
    """Producers moved to another cluster, and back: its first records passed by the retired name, the others don't."""
    world = renamed_for_a_retirement()
    came_back = Offsets({TopicPartition("#A/t", 0): 2, AT: 5})
    left = world.real.not_retired(came_back, NAMES)
    assert left is not None
    world.real.name_back(left, NAMES, world.highest)
    assert noted_as(world, "notes") == {("#A/t", 1), ("t", 2)}


def held(world: World) -> dict[str, set[int]]:
    return {name: {row[0] for row in world.db.execute(f"SELECT _offset FROM {name}")} for name in ("notes", "aside")}


@pytest.mark.parametrize("killed_before", [0, 1])
def test_a_delete_that_is_forgotten_is_kept_aside_first(killed_before: int) -> None:
    world = World(together=False)
    world.note(3)
    left = world.real.left_over(world.position, ["t"])
    assert left is not None
    world.steps = iter(range(killed_before, -1, -1))
    with pytest.raises(Killed):
        left.delete(1)
    assert held(world) == {"notes": {3}, "aside": {3} if killed_before else set()}


@pytest.mark.parametrize("killed_before", [0, 1])
def test_what_came_back_is_kept_aside_before_a_retry_forgets_it(killed_before: int) -> None:
    world = World(together=False)
    world.db.execute(f"INSERT INTO notes VALUES ('t', 0, 4, 0, '{came_back(1, 3)}')")
    world.steps = iter(range(killed_before, -1, -1))
    with pytest.raises(Killed):
        world.forget({4}, 5)
    assert held(world) == {"notes": {4}, "aside": {4} if killed_before else set()}


def test_a_delete_that_another_run_notes_meanwhile_is_not_left_over() -> None:
    """It is of an epoch that is on its way, and that is ahead of the position as well."""
    world = World(together=False)
    world.note(3)
    left = world.real.left_over(world.position, ["t"])
    assert left is not None
    world.highest += 1  # the other run has fenced this one
    world.note(4)
    left.delete(1)
    assert held(world) == {"notes": {4}, "aside": {3}}


@pytest.mark.parametrize(("killed_before", "gone"), [(0, 0), (1, 1), (None, 2)])
def test_deletes_are_said_to_expire_before_the_first_is_gone(
    killed_before: int | None, gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, said = World(together=False), list[datetime]()
    world.note(3)
    world.db.execute("INSERT INTO aside VALUES ('t', 0, 2, 0, NULL, 1)")
    now = datetime.now(timezone.utc)

    def before_write() -> None:
        assert now in said
        world.step()

    monkeypatch.setattr(tombstones, "say_expired", lambda _, before: said.append(before))
    world.spark.before_write = before_write
    world.steps = iter(range(killed_before, -1, -1)) if killed_before is not None else iter(())
    with suppress(Killed):
        world.real.expire(now)
    assert sum(map(len, held(world).values())) == 2 - gone
