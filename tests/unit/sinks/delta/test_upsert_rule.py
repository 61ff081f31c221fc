"""The truth table of the offset guard: the MERGE's own conditions and values, run in SQLite, against a plain statement.

The SQL is the MERGE's, except that ``struct.field`` is written as a call.
"""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from spark_in_sqlite import STRUCTS, database, struct

from sinks.delta import upsert_rule
from sinks.delta.merge import Change, Merge
from sinks.delta.upsert_rule import COLUMNS, DELETED_BY, UpsertRule, deleted_sql, upserting
from sinks.delta.upsert_source import source_sql

Row = dict[str, Any]
SQLITE = database()
cached_merge = cache(upserting)
FIELD = re.compile(rf"((?:\w\.)?`?(?:{DELETED_BY}|{COLUMNS}|mark)`?|(?:greatest|named_struct)\([^()]*\))\.`?(\w+)`?")


@cache
def in_sqlite(sql: str) -> str:
    return FIELD.sub(r"field(\1, '\2')", sql)


def evaluate(expressions: Sequence[str], s: Row, t: Row) -> list[object]:
    """The values of SQL over a row of the source and a row of the table."""
    if not expressions:
        return []
    rows = (f"(SELECT {', '.join(f'? AS `{name}`' for name in row)}) AS {alias}" for alias, row in (("s", s), ("t", t)))
    sql = f"SELECT {', '.join(map(in_sqlite, expressions))} FROM {', '.join(rows)}"
    return list(SQLITE.execute(sql, [*s.values(), *t.values()]).fetchone())


@dataclass(frozen=True)
class Event:
    """A change of the one key, or a truncate."""

    kind: str
    order: int
    value: str | None = None
    partition: int = 0
    sent: bool = True
    """Whether an update has the value, which may be null."""
    topic: str = "t"

    def counts(self, rule: UpsertRule) -> bool:
        """Whether the value of an update replaces an older one."""
        return self.sent if rule.keeps else self.value is not None

    def coordinates(self, rule: UpsertRule) -> Row:
        if rule.sequenced:
            # Neither the partition nor the offset tells which event is newer.
            return {
                "sequence": self.order,
                "topic": self.topic,
                "partition": self.order % 2,
                "offset": 100 - self.order,
            }
        return {"topic": self.topic, "partition": self.partition, "offset": self.order}

    def deleted_by(self, rule: UpsertRule) -> Row:
        return {**self.coordinates(rule), "timestamp": 0}

    def tombstone(self, rule: UpsertRule) -> Row:
        places = {f"_{name}": value for name, value in self.deleted_by(rule).items()}
        return {"k": None if self.kind == "truncate" else 1, **places}


def newest(events: Iterable[Event], *kinds: str) -> Event | None:
    return max((event for event in events if event.kind in kinds), key=lambda event: event.order, default=None)


@dataclass
class Table:
    """A table of at most one row, and its tombstones."""

    rule: UpsertRule
    row: Row | None = None
    tombstones: list[Event] = field(default_factory=list)

    @property
    def shown(self) -> str | None:
        """The value that readers see; None: they see no row."""
        gone = self.row is None or bool(self.row.get("_deleted"))
        return None if gone or self.row is None else f"v={self.row['v']}"

    @property
    def newest_delete(self) -> object:
        """The order of the newest delete that the table remembers; None: it remembers none."""
        if not self.rule.soft:
            delete = newest(self.tombstones, "delete", "truncate")
            return delete.order if delete else None
        deleted_by = self.row[DELETED_BY] if self.row else None
        return STRUCTS[deleted_by]["sequence" if self.rule.sequenced else "offset"] if deleted_by else None

    def apply(self, *epoch: Event) -> None:
        """Merge one epoch, in the steps of ``sinks.delta.upsert``."""
        stored = [] if self.rule.soft else list(self.tombstones)
        self.tombstones += [event for event in epoch if event.kind != "update"]
        truncates = [event for event in epoch if event.kind == "truncate"]
        changes = [event for event in epoch if event.kind != "truncate"]
        net = [self.net_change(key, events) for key, events in ((1, changes), (None, truncates)) if events]
        if not net:
            return
        newest_truncate = newest([*stored, *truncates], "truncate")
        truncate = None
        if newest_truncate is not None:
            values = newest_truncate.deleted_by(self.rule).items()
            truncate = f"named_struct({', '.join(f'{name!r}, {value!r}' for name, value in values)})"
        source = source_sql(
            self.rule,
            rows_sql(net),
            list(net[0]),
            rows_sql([event.tombstone(self.rule) for event in stored]) if stored else None,
            truncate,
        )
        order = f"({deleted_sql(truncate, sequenced=True)})" if truncate and truncates else None
        self.merge(cached_merge(self.rule, tuple(net[0]), order), selected(source))

    def retry(self, letter: Event) -> None:
        """What `dead-letters --retry` does with a letter, in the steps of ``connector.operations.dead_letters``."""
        self.tombstones = [event for event in self.tombstones if event.order != letter.order]
        self.apply(letter)

    def net_change(self, key: int | None, events: Sequence[Event]) -> Row:
        """As ``connector.derive.net_change`` reduces them: the newest update and the newest delete."""
        update, delete = newest(events, "update"), newest(events, "delete", "truncate")
        names = ["topic", "partition", "offset", *(["sequence"] if self.rule.sequenced else [])]
        places = update.coordinates(self.rule) if update else dict.fromkeys(names)
        row: Row = {"k": key, "v": update.value if update else None, **{f"_{name}": places[name] for name in names}}
        if self.rule.parts:
            part = newest((event for event in events if event.counts(self.rule)), "update")
            row["v"] = part.value if part else None
            row[COLUMNS] = struct(v=struct(**part.coordinates(self.rule)) if part else None)
        return {**row, DELETED_BY: struct(**delete.deleted_by(self.rule)) if delete else None}

    def merge(self, merge: Merge, source: Sequence[Row]) -> None:
        """What Delta does with a MERGE."""
        row, nothing = self.row, dict.fromkeys([*(self.row or {}), *merge.inserts])
        matches = [s for s in source if row is not None and s["k"] == 1]
        for s in source:
            if s in matches and row is not None:
                self.row = changed(merge.matched, s, row)
            elif evaluate([merge.insert_when or "true"], s, nothing)[0]:
                self.row = dict(zip(merge.inserts, evaluate(list(merge.inserts.values()), s, nothing), strict=True))
        if row is not None and not matches:
            self.row = changed(merge.unmatched, nothing, row)


def changed(changes: Sequence[Change], s: Row, t: Row) -> Row | None:
    conditions = evaluate([change.when or "true" for change in changes], s, t)
    change = next((change for change, holds in zip(changes, conditions, strict=True) if holds), None)
    if change is None:
        return t
    if change.sets is None:
        return None
    return t | dict(zip(change.sets, evaluate(list(change.sets.values()), s, t), strict=True))


def rows_sql(rows: Sequence[Row]) -> str:
    """The rows as a subquery."""

    def value_sql(value: object) -> str:
        return "NULL" if value is None else f"X'{value.hex()}'" if isinstance(value, bytes) else repr(value)

    selects = (", ".join(f"{value_sql(value)} AS `{name}`" for name, value in row.items()) for row in rows)
    return f"({' UNION ALL '.join(f'SELECT {values}' for values in selects)})"


def selected(query: str) -> list[Row]:
    cursor = SQLITE.execute(in_sqlite(query))
    return [dict(zip((column[0] for column in cursor.description), row, strict=True)) for row in cursor]


HARD = {"by offset": UpsertRule(("k",)), "by sequence": UpsertRule(("k",), sequenced=True)}
SOFT = {
    "by offset, soft": UpsertRule(("k",), soft=True),
    "by sequence, soft": UpsertRule(("k",), sequenced=True, soft=True),
}
STORED = {
    "nothing": [],
    "a row": [Event("update", 2, "stored")],
    "a tombstone": [Event("delete", 2)],
}
ORDERS = {"older": 1, "same": 2, "newer": 3}


def documented() -> Iterator[tuple[str, str, str, str]]:
    """The cells of the table in the module's docstring: stored, incoming, how the orders compare, what happens."""
    _, _, rows, _ = re.split(r"^=[= ]+$", upsert_rule.__doc__ or "", flags=re.MULTILINE)
    for row in rows.strip().splitlines():
        stored, incoming, *happens = re.split(r"  +", row.strip())
        for compared, cell in zip(ORDERS, happens if len(happens) == 3 else happens * 3, strict=True):
            yield stored, incoming, compared, cell.partition(":")[0]


CELLS = list(documented())


def test_the_documented_table_is_complete() -> None:
    cells = itertools.product(STORED, ("update", "delete", "truncate"), ORDERS)
    assert sorted(cell[:3] for cell in CELLS) == sorted(cells)


def applies(rule: UpsertRule, incoming: str) -> bool:
    """A truncate needs a sequence and hard deletes: else the configuration is refused."""
    return incoming != "truncate" or (rule.sequenced and not rule.soft)


@pytest.mark.parametrize(
    ("rule", "cell"),
    [
        pytest.param(rule, cell, id=f"{name}: {' '.join(cell[:3])}")
        for name, rule in (HARD | SOFT).items()
        for cell in CELLS
        if applies(rule, cell[1])
    ],
)
def test_the_merge_does_what_the_table_in_the_docstring_says(rule: UpsertRule, cell: tuple[str, str, str, str]) -> None:
    stored, incoming, compared, happens = cell
    table = Table(rule)
    for event in STORED[stored]:
        table.apply(event)
    before = table.shown
    table.apply(Event(incoming, ORDERS[compared], "incoming"))
    outcomes = {
        "row inserted": before is None and table.shown == "v=incoming",
        "row replaced": before is not None and table.shown == "v=incoming",
        "row deleted": before is not None and table.shown is None,
        "no row": table.shown is None,
        "ignored": table.shown == before and (stored != "a tombstone" or table.newest_delete == ORDERS["same"]),
        "tombstone gets the newer order": table.shown is None and table.newest_delete == ORDERS["newer"],
    }
    assert outcomes[happens]


def stated(events: Iterable[Event], rule: UpsertRule) -> str | None:
    """The rule in plain words: the row exists if its newest update is newer than every delete and truncate."""
    every = list(events)
    update, delete = newest(every, "update"), newest(every, "delete", "truncate")
    deleted = delete.order if delete else 0
    if update is None or update.order <= deleted:
        return None
    if not rule.parts:
        return f"v={update.value}"
    part = newest((event for event in every if event.counts(rule) and event.order > deleted), "update")
    return f"v={part.value if part else None}"


def cuts(events: Sequence[Event]) -> Iterator[list[Sequence[Event]]]:
    """Every way to cut the events into epochs."""
    for size in range(len(events)):
        for at in itertools.combinations(range(1, len(events)), size):
            bounds = [0, *at, len(events)]
            yield [events[start:end] for start, end in itertools.pairwise(bounds)]


def histories(*kinds: str, length: int) -> Iterator[list[Event]]:
    """Every sequence of events of these kinds, with orders 1, 2, ..."""
    for chosen in itertools.product(kinds, repeat=length):
        yield [event_of(kind, at) for at, kind in enumerate(chosen, start=1)]


def event_of(kind: str, at: int) -> Event:
    of, _, how = kind.partition(" ")
    return Event(of, at, f"{at}" if kind == UPDATE else None, sent=how != "unsent")


UPDATE, NULL_UPDATE, UNSENT_UPDATE, DELETE, TRUNCATE = "update", "update null", "update unsent", "delete", "truncate"
PARTS = [{}, {"ignore_nulls": ("v",)}, {"keeps": ("v",)}]
PART_IDS = ["every null counts", "nulls ignored", "what was not sent is kept"]


def updates(rule: UpsertRule) -> list[str]:
    """The kinds of updates that the rule tells apart."""
    if rule.keeps:
        return [UPDATE, NULL_UPDATE, UNSENT_UPDATE]
    return [UPDATE, NULL_UPDATE] if rule.ignore_nulls else [UPDATE]


@pytest.mark.parametrize("parts", PARTS, ids=PART_IDS)
def test_by_sequence_neither_the_order_of_arrival_nor_the_epochs_nor_a_replay_matter(
    parts: dict[str, Sequence[str]],
) -> None:
    rule = UpsertRule(("k",), sequenced=True, **parts)
    for events in histories(*updates(rule), DELETE, TRUNCATE, length=3):
        for arrival in itertools.permutations(events):
            for epochs in cuts(arrival):
                table = Table(rule)
                for epoch in epochs:
                    table.apply(*epoch)
                assert table.shown == stated(events, rule), epochs
                for replayed in (arrival, epochs[0]):
                    table.apply(*replayed)
                    assert table.shown == stated(events, rule), ("replay", replayed, epochs)


def test_by_sequence_soft_deletes_need_no_tombstones() -> None:
    rule = SOFT["by sequence, soft"]
    for events in histories(UPDATE, DELETE, length=4):
        for arrival in itertools.permutations(events):
            table = Table(rule)
            for event in arrival:
                table.apply(event)
            table.apply(*arrival[:2])
            assert table.shown == stated(events, rule), arrival


@pytest.mark.parametrize(
    "rule",
    [HARD["by offset"], SOFT["by offset, soft"], *(UpsertRule(("k",), **parts) for parts in PARTS[1:])],
    ids=["hard", "soft", *PART_IDS[1:]],
)
def test_by_offset_a_replay_that_begins_anywhere_changes_nothing(rule: UpsertRule) -> None:
    for events in histories(*updates(rule), DELETE, length=3 if rule.parts else 4):
        for back_to, crash_at in itertools.combinations_with_replacement(range(len(events) + 1), 2):
            for before, after in itertools.product((True, False), repeat=2):
                table = Table(rule)
                for part, whole in ((events[:crash_at], before), (events[back_to:], after)):
                    for epoch in [part] if whole else [[event] for event in part]:
                        table.apply(*epoch)
                assert table.shown == stated(events, rule), (events, crash_at, back_to)


def test_by_offset_a_key_that_left_its_partition_fails_the_query() -> None:
    for incoming in (Event("update", 3, "b", partition=1), Event("delete", 3, partition=1)):
        table = Table(HARD["by offset"])
        table.apply(Event("update", 2, "a"))
        with pytest.raises(sqlite3.OperationalError, match="user-defined function"):
            table.apply(incoming)


def test_by_offset_a_key_that_left_the_partition_of_its_tombstone_fails_the_query() -> None:
    for incoming in (Event("update", 1, "b"), Event("update", 3, "b"), Event("delete", 3)):
        table = Table(HARD["by offset"])
        table.apply(Event("delete", 2, partition=1))
        with pytest.raises(sqlite3.OperationalError, match="user-defined function"):
            table.apply(incoming)


@pytest.mark.parametrize("topic", ["t", "other", "#id/t"])
@pytest.mark.parametrize("options", [{}, {"soft": True}, *PARTS[1:]], ids=["hard", "soft", *PART_IDS[1:]])
def test_a_sequence_of_offsets_is_no_order_across_partitions_and_topics(options: dict[str, Any], topic: str) -> None:
    """It was taken for one: of a key with updates 5 and, in another partition, 3, the row stayed as of 5 for ever."""
    rule = UpsertRule(("k",), sequenced=True, by_offset=True, **options)
    for stored, incoming in itertools.product(("update", "delete"), repeat=2):
        for first, then in ((2, 3), (3, 2), (2, 4)):
            table = Table(rule)
            table.apply(Event(stored, first, "a", topic=topic))
            if topic == "t" and first % 2 == then % 2:  # the partition, see `Event.coordinates`
                table.apply(Event(incoming, then, "b"))
                assert table.shown == ("v=b" if incoming == "update" else None)
                continue
            with pytest.raises(sqlite3.OperationalError, match="user-defined function"):
                table.apply(Event(incoming, then, "b"))


@pytest.mark.parametrize("rule", [HARD["by offset"], SOFT["by offset, soft"]], ids=["hard", "soft"])
@pytest.mark.parametrize("stored", ["update", "delete"])
def test_by_offset_a_letter_of_a_deleted_topic_is_older_than_all_of_the_new_one(rule: UpsertRule, stored: str) -> None:
    """Whatever partitions and offsets they have."""
    for kind, order, partition in itertools.product(("update", "delete"), (1, 5, 9), (0, 1)):
        letter = Event(kind, order, "letter", partition=partition, topic="#id/t")
        table = Table(rule)
        table.apply(Event("update", 4, "first", topic="#id/t"))
        table.apply(Event(stored, 5, "new"))
        table.apply(letter)
        assert table.shown == ("v=new" if stored == "update" else None), letter
        table.apply(Event("update", 6, "newest"))
        assert table.shown == "v=newest"


def test_a_row_that_a_person_inserted_is_older_than_every_change() -> None:
    for rule in HARD.values():
        for incoming, shown in ((Event("update", 1, "b"), "v=b"), (Event("delete", 1), None)):
            table = Table(rule)
            table.apply(Event("update", 2, "a"))
            assert table.row is not None
            table.row |= {name: None for name in table.row if name.startswith("_")}
            table.apply(incoming)
            assert table.shown == shown


def test_a_value_that_is_not_newer_than_the_delete_is_forgotten_with_its_order() -> None:
    table = Table(UpsertRule(("k",), sequenced=True, ignore_nulls=("v",)))
    table.apply(Event("update", 2, "a"), Event("update", 3))
    assert table.shown == "v=a"
    table.apply(Event("delete", 2))
    assert table.shown == "v=None"
    assert table.row is not None
    assert table.row[COLUMNS] == struct(v=None)


@pytest.mark.parametrize("rule", HARD.values(), ids=HARD)
@pytest.mark.parametrize("fate", ["taken back", "killed before the commit"])
def test_a_delete_of_a_retry_that_does_not_stand_has_no_say_in_the_next_one(rule: UpsertRule, fate: str) -> None:
    """By the first file the letter is a delete, by the second one an update."""
    for then in ("update", "delete"):
        table = Table(rule)
        table.apply(Event("update", 3, "old"))
        before = table.row
        table.retry(Event("delete", 7))
        table.row = before
        if fate == "taken back":
            table.retry(Event("delete", 7))
            table.row = before
        table.retry(Event(then, 7, "mended"))
        assert table.shown == ("v=mended" if then == "update" else None)
        table.apply(Event("update", 5, "late"))
        assert table.shown == ("v=mended" if then == "update" else None)


def test_without_the_guard_the_last_writer_wins() -> None:
    table = Table(UpsertRule(("k",), guarded=False))
    table.apply(Event("update", 2, "a"))
    table.apply(Event("update", 1, "b"))
    assert table.shown == "v=b"
