"""A rewind of several tables, with a crash or a pause between any two of its steps, and whatever comes next."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from connector.engine.coordinator import Coordinator
from connector.protocol.decided import LogHeld, Row, State
from connector.protocol.rewind import goal, versions
from sinks.contract import Committed, Epoch, Position, Prepared
from sinks.errors import Fenced, LakelockError, PositionMismatch, PreparedLost
from sinks.offsets import OffsetRange, Offsets, TopicPartition

AT = TopicPartition("t", 0)
NAMES = ("a", "b", "late")


def records(table: str, start: int, end: int) -> list[int]:
    """Those of a range that name the table. Epochs have two records each; ``late`` gets none of the first one."""
    of = {"a": lambda n: n % 3 == 0, "b": lambda n: n % 3 == 1, "late": lambda n: n % 3 == 2 and n > 2}[table]
    return [number for number in range(start, end) if of(number)]


class Killed(BaseException):
    """As if the process had died here."""


@dataclass
class Version:
    rows: tuple[int, ...] = ()
    epoch: int = 0
    owner: str = ""
    end: int = 0
    restored: bool = False


@dataclass
class Table:
    """What a table holds: its versions, and the highest number that was taken."""

    versions: list[Version] = field(default_factory=lambda: [Version()])
    taken: int = 0

    def position(self) -> Position | None:
        now = self.versions[-1]
        if not self.taken:
            return None
        epoch = self.taken if now.restored else now.epoch
        restored_to = now.epoch if now.restored else None
        version = len(self.versions) - 1
        return Position(epoch, Offsets({AT: now.end}), owner=now.owner, version=version, restored_to=restored_to)


@dataclass
class World:
    tables: dict[str, Table] = field(default_factory=lambda: {name: Table() for name in NAMES})
    log: list[Sequence[Row]] = field(default_factory=list)
    letters: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    """Record -> the epoch that set it aside, and the one from which on it is read again."""
    ends: int = 6

    @property
    def rows(self) -> list[Row]:
        return [row for entry in self.log for row in entry]

    @property
    def exact(self) -> bool:
        return all(sorted(self.tables[name].versions[-1].rows) == records(name, 0, self.ends) for name in NAMES)


@dataclass
class Sink:
    """A table as one process has it. ``tick`` comes before each of its steps that others see."""

    name: str
    table: Table
    tick: Callable[[], None]
    held: tuple[Epoch, list[int]] | None = None

    def position(self) -> Position | None:
        return self.table.position()

    def commit(self, epoch: Epoch, prepared: Prepared) -> Committed:
        stands = self.position()
        if stands is not None and stands.epoch >= epoch.number:
            if (stands.epoch, stands.owner) == (epoch.number, epoch.owner) and stands.restored_to is None:
                return self._committed(stands)
            raise Fenced("", owner=stands.owner, epoch=stands.epoch)
        if prepared.restores is not None:
            self.tick()
            back = replace(self.table.versions[prepared.restores], restored=True)
            self.table.versions.append(back)
            return self._written(epoch, back.rows)
        after = prepared.after or 0
        if (stands.epoch if stands else 0) != after or (stands is not None and stands.restored_to is not None):
            raise PositionMismatch(f"{self.name}: expected {after}, found {stands}")
        if prepared.passes_by:
            assert stands is not None
            return self._committed(stands)
        if self.held is None or self.held[0].ranges != epoch.ranges:
            raise PreparedLost("")
        return self._written(epoch, (*self.table.versions[-1].rows, *self.held[1]))

    def _written(self, epoch: Epoch, rows: tuple[int, ...]) -> Committed:
        base = len(self.table.versions)
        self.tick()
        if self.table.taken >= epoch.number or len(self.table.versions) != base:
            raise Fenced("", owner="", epoch=self.table.taken)
        self.table.versions.append(Version(rows, epoch.number, epoch.owner, epoch.offsets[AT]))
        self.table.taken = epoch.number
        stands = self.position()
        assert stands is not None
        return self._committed(stands)

    def abort(self, _: int) -> None:
        self.held = None

    def _committed(self, stands: Position) -> Committed:
        return Committed(stands, rows=0, reads={"version": stands.version})


class Process:
    """A run, or a rewind. ``before(n)`` is called before its n-th step that others see: there it may be killed."""

    def __init__(self, world: World, name: str, before: Callable[[int], None] = lambda _: None) -> None:
        self.world, self.before, self.steps = world, before, 0
        self.sinks = {name: Sink(name, table, self._tick) for name, table in world.tables.items()}
        self.name = name
        it: Any = self
        self.coordinator = Coordinator(
            it, self._now, run=name, config="c", prepare=self._prepare,
            observe=lambda _: None, at_once=1, stages=False, take_back=self._take_back,
        )  # fmt: skip

    def run(self) -> None:
        """To the end of the topic, in epochs of two records."""
        while True:
            stands = self.coordinator.position()
            start = stands.offsets[AT] if stands is not None else 0
            if start == self.world.ends:
                return
            self.coordinator.run_epoch(self._epoch(stands, start), 0)
            self.coordinator.settle()

    def rewind(self, to: int) -> None:
        """As ``operations.rewind_together``: settle, plan, decide."""
        known = self.read()
        if known.in_doubt is not None:
            self.coordinator.recover()
            known = self.read()
        assert known.decided is not None
        aim = goal(self.world.rows, lambda row: row.epoch.number == to)
        assert aim is not None
        later = [row for row in self.world.rows if row.epoch.number >= aim.epoch]
        back, unknown = versions(aim, later, list(known.decided.prepared), of_route=True)
        assert not unknown
        prepared = {name: Prepared.going_back(version, aim.epoch, of_route=True) for name, version in back.items()}
        epoch = aim.epoch_after(known.decided.epoch.position(), pipeline="p", owner=self.name)
        self.coordinator.rewind(epoch, known.number, prepared, back_to=aim.epoch)

    def read(self) -> LogHeld:
        rows = self.world.rows
        decided = next((row for row in reversed(rows) if row.state is State.DECIDED), None)
        return LogHeld(len(self.world.log), rows[-1] if rows else None, decided)

    def append(self, number: int, rows: Sequence[Row]) -> None:
        self._tick()
        if number != len(self.world.log) + 1:
            raise Fenced("", owner="", epoch=0)
        for row in rows:
            if row.state is State.DONE and any(row.epoch.number == n and back for n, back in self._rewinds()):
                assert not self.open_from(row.epoch.offsets[AT]), "done comes last"
        self.world.log.append(rows)

    def _rewinds(self) -> Sequence[tuple[int, bool]]:
        return [(row.epoch.number, row.back_to is not None) for row in self.world.rows if row.state is State.DECIDED]

    def open_from(self, offset: int) -> list[int]:
        """The records at or after an offset whose letter is open."""
        return [at for at, (_, again) in self.world.letters.items() if at >= offset and again is None]

    def _take_back(self, epoch: Epoch, _: int) -> None:
        self._tick()
        for at in self.open_from(epoch.offsets[AT]):
            if self.world.letters[at][0] <= epoch.number:
                self.world.letters[at] = self.world.letters[at][0], epoch.number + 1

    def _tick(self) -> None:
        self.steps += 1
        self.before(self.steps)

    def _now(self, known: Collection[str]) -> Mapping[str, Any]:
        return {name: sink for name, sink in self.sinks.items() if name in known or sink.held is not None}

    def _epoch(self, stands: Position | None, start: int) -> Epoch:
        number, end = stands.epoch + 1 if stands else 1, start + 2
        since = Offsets({AT: 0})
        ranges = (OffsetRange(*AT, start, end),)
        return Epoch("p", number, self.name, ranges, Offsets({AT: end}), {}, None, stands, since)

    def _prepare(
        self, epoch: Epoch, names: Sequence[str], _again: bool, _behind: int
    ) -> tuple[Epoch, Mapping[str, Prepared]]:
        (range_,), prepared = epoch.ranges, {}
        for name, sink in self.sinks.items():
            if names and name not in names:
                continue
            mine, stands = records(name, range_.start, range_.end), sink.position()
            if mine or stands is not None:
                sink.held = (epoch, mine) if mine else None
                prepared[name] = Prepared(len(mine), "", {}, stands.epoch if stands is not None else 0)
        return epoch, prepared


def killed_at(step: int) -> Callable[[int], None]:
    def before(now: int) -> None:
        if now == step:
            raise Killed

    return before


def ran_to_the_end() -> World:
    world = World()
    Process(world, "first").run()
    assert world.exact
    return world


def steps_of(world: World, act: Callable[[Process], None]) -> int:
    process = Process(world, "counted")
    act(process)
    return process.steps


@pytest.mark.parametrize("to", [0, 1])
@pytest.mark.parametrize("then", ["run", "rewind"])
def test_a_crash_between_any_two_steps_is_followed_by_any_other_crash(to: int, then: str) -> None:
    """What comes next finishes the rewind, or finds that nothing was changed. In the end each record is there once."""
    steps = steps_of(ran_to_the_end(), lambda process: process.rewind(to))
    assert steps == 9, "the decision, RESTORE and commit of three tables, the letters, done"
    for first in range(1, steps + 2):
        second = 0
        while True:
            second += 1
            world = ran_to_the_end()
            world.letters = {1: (1, None), 5: (3, None)}
            before = {name: list(table.versions) for name, table in world.tables.items()}
            _killed(Process(world, "p1", killed_at(first)), "rewind", to)
            decided = any(row.back_to is not None for row in world.rows)
            assert decided or {name: table.versions for name, table in world.tables.items()} == before
            ended = _killed(Process(world, "p2", killed_at(second)), then, to)
            if decided and then == "rewind" and ended:
                assert {table.versions[-1].end for table in world.tables.values()} == {2 * to}
            Process(world, "p3").run()
            assert world.exact, (first, second)
            rewound = any(row.back_to is not None for row in world.rows)
            closed = {at for at, (_, again) in world.letters.items() if again is not None}
            assert closed == ({at for at in (1, 5) if at >= 2 * to} if rewound else set()), (first, second)
            if ended:
                break


@pytest.mark.parametrize("to", [0, 1])
def test_letters_are_taken_back_also_if_there_is_no_table_yet(to: int) -> None:
    """As if all records were bad so far. A crash anywhere is repeated by the next process."""
    for killed in range(1, 5):
        world = World(tables={})
        Process(world, "first").run()
        world.letters = {1: (1, None), 5: (3, None)}
        ended = _killed(Process(world, "p1", killed_at(killed)), "rewind", to)
        decided = any(row.back_to == to for row in world.rows)
        Process(world, "p2").run()
        closed = {at for at, (_, again) in world.letters.items() if again is not None}
        assert closed == ({at for at in (1, 5) if at >= 2 * to} if decided else set())
        assert ended == (killed == 4)
        aim = goal(world.rows, lambda row: row.epoch.number == 3)
        assert aim is not None
        assert aim.epoch == (0 if decided else 3), "epoch 3 was taken back"


def test_a_rewind_that_was_paused_anywhere_does_no_harm_in_silence() -> None:
    """Others finish it, go on, and maybe rewind again. At most it takes one table back, which the next run finds."""
    loud = 0
    for step in range(1, 10):
        for others in ("run", "rewind"):
            world = ran_to_the_end()

            def meanwhile(now: int, world: World = world, step: int = step, others: str = others) -> None:
                if now == step:
                    if others == "rewind":
                        Process(world, "p2").rewind(2)
                    world.ends += 2
                    Process(world, "p2").run()
                    assert world.exact

            with contextlib.suppress(LakelockError):
                Process(world, "p1", meanwhile).rewind(1)
            try:
                Process(world, "p3").run()
            except PositionMismatch:
                loud += 1
                Process(world, "p4").rewind(1)
                Process(world, "p4").run()
            assert world.exact, (step, others)
    assert loud, "a table that was taken back alone is found"


def test_a_run_that_was_paused_before_its_commit_never_writes_after_a_rewind() -> None:
    world = ran_to_the_end()
    world.ends += 2
    steps = steps_of(ran_to_the_end(), lambda process: (process.world.__setattr__("ends", 8), process.run())[1])
    for step in range(1, steps + 1):
        world = ran_to_the_end()
        world.ends += 2

        def meanwhile(now: int, world: World = world, step: int = step) -> None:
            if now == step:
                Process(world, "p2").rewind(1)

        with contextlib.suppress(LakelockError):
            Process(world, "p1", meanwhile).run()
        Process(world, "p3").run()
        assert world.exact, step


def test_epochs_that_a_rewind_took_back_are_no_goal_by_time() -> None:
    world = ran_to_the_end()
    Process(world, "p1").rewind(1)
    Process(world, "p2").run()

    def of(*offsets: int) -> int | None:
        found = goal(world.rows, lambda row: row.epoch.offsets[AT] in offsets)
        return found.epoch if found is not None else None

    assert of(6) == 6, "the newest: 4 was the rewind, 5 and 6 read the rest once more"
    assert (of(4), of(2)) == (5, 4), "not 2, which the rewind took back"
    assert of() == 0
    assert goal(world.rows[3:], lambda _: False) is None, "the log says no more how it began"


def test_a_sink_that_was_added_later_has_no_version_of_the_epoch() -> None:
    rows = ran_to_the_end().rows
    aim = goal(rows, lambda row: row.epoch.number == 1)
    assert aim is not None
    assert versions(aim, rows, NAMES, of_route=True) == ({"a": 1, "b": 1, "late": 0}, [])
    assert versions(aim, rows, NAMES, of_route=False) == ({"a": 1, "b": 1}, ["late"])


def test_a_table_that_was_merged_on_read_at_first_has_no_version_before_its_first_rows() -> None:
    """Its first version in the log has the epochs that were folded before."""
    merged = [
        replace(row, reads={**row.reads, "late": {"change log": 1}})
        if row.state is State.DONE and row.epoch.number == 2 else row
        for row in ran_to_the_end().rows
    ]  # fmt: skip
    for to in (0, 1):
        aim = goal(merged, lambda row, to=to: row.epoch.number == to)  # type: ignore[misc]
        assert aim is not None
        later = [row for row in merged if row.epoch.number >= to]
        assert versions(aim, later, ["late"], of_route=True) == ({}, ["late"])
    aim = goal(merged, lambda row: row.epoch.number == 2)
    assert aim is not None
    later = [row for row in merged if row.epoch.number >= 2]
    assert versions(aim, later, ["late"], of_route=True) == ({"late": 0}, []), "all of it was folded, as is compared"


def _killed(process: Process, what: str, to: int) -> bool:
    """Let a process do it. Returns whether it got to its end."""
    try:
        process.rewind(to) if what == "rewind" else process.run()
    except Killed:
        return False
    return True
