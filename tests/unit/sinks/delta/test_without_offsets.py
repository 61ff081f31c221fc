"""Members of a consumer group that write at once, without a position: the class itself and the SQL of its MERGEs, over
tables in SQLite, with another member's whole write between any two of its steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from unit.sinks.delta.test_upsert_rule import (
    DELETE,
    HARD,
    PART_IDS,
    PARTS,
    TRUNCATE,
    Event,
    Row,
    Table,
    cached_merge,
    histories,
    newest,
    rows_sql,
    selected,
    stated,
    updates,
)  # fmt: skip

from sinks.delta import without_offsets
from sinks.delta.merge import Merge
from sinks.delta.upsert import Deletes
from sinks.delta.upsert_rule import UpsertRule, deleted_sql
from sinks.delta.upsert_source import newer_deletes_sql, source_sql
from sinks.delta.without_offsets import PlainUpsert
from sinks.spark.row_errors import raise_text

BY_SEQUENCE = [UpsertRule(("k",), sequenced=True, **parts) for parts in PARTS]
STEPS = 12
"""More than a member has in one write."""


@pytest.fixture(autouse=True)
def _nothing_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(without_offsets, "kept", nullcontext)


class Rows(list[Row]):
    """Net changes."""

    def isEmpty(self) -> bool:
        return not self


@dataclass
class World:
    """The table of one key, and each version of its tombstones, of which the first has none."""

    rule: UpsertRule
    table: Table = field(init=False)
    noted: list[list[Row]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = Table(self.rule)

    def note(self, *tombstones: Row) -> None:
        self.noted.append([*(self.noted or [[]])[-1], *tombstones])

    def history(self, _: int) -> Sequence[Any]:
        return [SimpleNamespace(version=len(self.noted) - 1)]

    def committed_after(self, version: int | None) -> bool:
        return version is None or len(self.noted) > version + 1


class Member(PlainUpsert):
    """A member that writes one batch, and before its step number ``at`` another one does so, from beginning to end."""

    def __init__(self, world: World, events: Sequence[Event], at: int = 0, other: Member | None = None) -> None:
        self._table: Any = world.table
        self._merges: Any = self
        self.tombstones = SimpleNamespace(table=world)
        self._world, self._events = world, events
        self._left, self._other = at, other
        self.merges: list[Rows] = []

    def go(self) -> None:
        changes = [event for event in self._events if event.kind != TRUNCATE]
        truncates = [event for event in self._events if event.kind == TRUNCATE]
        nets = ((1, changes), (None, truncates))
        self._write(Rows(self._world.table.net_change(key, events) for key, events in nets if events))  # type: ignore[arg-type]
        if self._left >= 0 and self._other is not None:
            self._other.go()

    def _step(self) -> None:
        self._left -= 1
        if self._left == -1 and self._other is not None:
            self._other.go()

    def stored(self, *_: object) -> str | None:
        self._step()
        return rows_sql(self._world.noted[-1] or [_NONE]) if self._world.noted else None

    def without_deletes(self, rows: Rows) -> Any:
        if any(row["_deleted_by"] is not None for row in rows):
            raise ValueError(raise_text("first_delete"))
        return self.beside(rows, None, Deletes(0, False, None))

    def deletes(self, rows: Rows, stored: str | None) -> Deletes:
        self._step()
        own = [event for event in self._events if event.kind in (DELETE, TRUNCATE)] if rows else []
        every = [row for row in (self._world.noted or [[]])[-1] if stored is not None and row["k"] is None]
        every += [event.tombstone(self._world.rule) for event in own if event.kind == TRUNCATE]
        highest = max(every, key=lambda row: row["_sequence"], default=None)
        values = {name[1:]: value for name, value in (highest or {}).items() if name != "k"}
        literals = ", ".join(f"{name!r}, {value!r}" for name, value in values.items())
        truncates = newest(own, TRUNCATE) is not None
        return Deletes(len(own), truncates, f"named_struct({literals})" if highest else None)

    def note(self, _: Rows) -> None:
        self._step()
        own = (newest(self._events, DELETE), newest(self._events, TRUNCATE))
        self._world.note(*(event.tombstone(self._world.rule) for event in own if event is not None))

    def beside(self, rows: Rows, stored: str | None, deletes: Deletes) -> tuple[Rows, Merge]:
        self._step()
        truncate = deletes.newest_truncate
        if stored is not None:  # a query of the tombstones as they are by now
            stored = rows_sql(self._world.noted[-1] or [_NONE])
        source = source_sql(self._world.rule, rows_sql(rows), list(rows[0]), stored, truncate)
        order = f"({deleted_sql(truncate, sequenced=True)})" if truncate and deletes.truncates else None
        return Rows(selected(source)), cached_merge(self._world.rule, tuple(rows[0]), order)

    def overtaken(self, rows: Rows, seen: int | None) -> Rows:
        self._step()
        then = rows_sql(self._world.noted[seen] or [_NONE]) if seen is not None else None
        newer = selected(newer_deletes_sql(self._world.rule, rows_sql(self._world.noted[-1] or [_NONE]), then))
        return Rows(row for row in rows if {"k": row["k"]} in newer and row["k"] is not None)

    def _run(self, source: Any, merge: Merge) -> int:
        self._step()
        self.merges.append(source)
        assert len(self.merges) <= 3, "merged again and again"
        self._world.table.merge(merge, source)
        return 0


_NONE: Row = {"k": 0, "_topic": "t", "_partition": 0, "_offset": 0, "_timestamp": 0, "_sequence": 0}
"""A tombstone of another key."""


def batches_of(events: Sequence[Event], members: int) -> Iterator[list[Sequence[Event]]]:
    """Every way in which the members may have got the events."""
    for owners in itertools.product(range(members), repeat=len(events)):
        batches = [[event for event, owner in zip(events, owners, strict=True) if owner == at] for at in range(members)]
        if all(batches):
            yield batches


@pytest.mark.parametrize(
    ("rule", "noted"),
    [(BY_SEQUENCE[0], []), *((rule, [[]]) for rule in BY_SEQUENCE)],
    ids=["the first deletes", *PART_IDS],
)
def test_by_sequence_the_newest_change_wins_whatever_another_member_does_meanwhile(
    rule: UpsertRule, noted: list[list[Row]]
) -> None:
    kinds = [*updates(rule), DELETE, *([] if rule.parts else [TRUNCATE])]
    for events in histories(*kinds, length=3):
        for batches in batches_of(events, 2):
            for at in range(STEPS):
                world = World(rule, noted=[*noted])
                member = Member(world, batches[0], at, Member(world, batches[1]))
                member.go()
                assert world.table.shown == stated(events, rule), (batches, at)
                assert len(member.merges) <= (2 if noted else 3)


def test_by_sequence_the_newest_change_wins_of_three_members() -> None:
    rule = BY_SEQUENCE[0]
    for events in histories("update", DELETE, length=3):
        for batches in batches_of(events, 3):
            for one, two in itertools.product(range(STEPS), repeat=2):
                world = World(rule, noted=[[]])
                member = Member(world, batches[0], one, Member(world, batches[1], two, Member(world, batches[2])))
                member.go()
                assert world.table.shown == stated(events, rule), (batches, one, two)


def test_by_offset_a_member_that_was_replaced_may_write_late() -> None:
    """The one that has its partition now has read its batch again, and what came after it."""
    rule = HARD["by offset"]
    for events in histories(*updates(rule), DELETE, length=4):
        for size, at in itertools.product(range(1, 4), range(STEPS)):
            world = World(rule)
            Member(world, events[:size], at, Member(world, events)).go()
            assert world.table.shown == stated(events, rule), (events, size, at)


@pytest.mark.parametrize("noted", [_NONE, Event(DELETE, 1).tombstone(BY_SEQUENCE[0])], ids=["another key", "older"])
def test_a_delete_of_another_key_or_an_older_one_is_no_reason_to_merge_again(noted: Row) -> None:
    """Members that delete in each batch would merge for ever, each because of the others."""
    world = World(BY_SEQUENCE[0])
    world.note(Event(DELETE, 2).tombstone(world.rule))
    member = Member(world, [Event("update", 3, "3")])
    member._step = lambda: world.note(noted)  # type: ignore[method-assign]
    member.go()
    assert len(member.merges) == 1
    assert world.table.shown == "v=3"


def test_the_second_merge_adds_no_row_that_another_member_has_deleted_meanwhile() -> None:
    world = World(BY_SEQUENCE[0], noted=[[]])
    member, others = Member(world, [Event("update", 3, "3")]), [Member(world, [Event(DELETE, at)]) for at in (4, 2)]
    run = member._run

    def overtaken(source: Any, merge: Merge) -> int:
        others.pop().go()
        return run(source, merge)

    member._run = overtaken  # type: ignore[method-assign]
    member.go()
    assert len(member.merges) == 2
    assert world.table.shown is None


def test_at_most_one_merge_follows_however_many_deletes_another_member_notes() -> None:
    rule = BY_SEQUENCE[0]
    world, order = World(rule, noted=[[]]), itertools.count(4)
    member = Member(world, [Event("update", 3, "3")])
    member._step = lambda: world.note(Event(DELETE, next(order)).tombstone(rule))  # type: ignore[method-assign]
    member.go()
    assert len(member.merges) == 2
    assert world.table.shown is None
