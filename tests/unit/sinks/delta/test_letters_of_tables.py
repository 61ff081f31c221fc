"""One table of dead letters of several tables of a pipeline's name: the MERGE and the UPDATEs, run in SQLite."""

from __future__ import annotations

import re
import sqlite3
from types import SimpleNamespace
from typing import Any

import pytest
from spark_in_sqlite import database

from sinks.delta.dead_letters import DeadLetters
from sinks.delta.letters_sql import COLUMNS, adding_sql
from sinks.offsets import Offsets, TopicPartition

NAMES = list(COLUMNS)
PASSED = Offsets({TopicPartition("t", 0): 100})
Letter = tuple[int, str | None, int, int | None]


class Shared:
    """The table of letters, and each process's view of its letters in it."""

    def __init__(self) -> None:
        self.rows = database()
        for name in ("t", "lakelock_dead_letters"):
            self.rows.execute(f"CREATE TABLE {name} ({', '.join(NAMES)})")

    def of(self, *tables: str) -> Letters:
        return Letters(self.rows, tables)

    @property
    def held(self) -> list[Letter]:
        """Offset, whose it is, the epoch that has set it aside, and the epoch that has closed it."""
        order = "SELECT _offset, _table, epoch, _retried_epoch FROM t ORDER BY _offset, _table"
        return list(self.rows.execute(order))

    @property
    def open(self) -> list[tuple[int, str | None]]:
        return [(offset, table) for offset, table, _, closed in self.held if closed is None]


class Letters(DeadLetters):
    """The letters of one table, or of several with a log."""

    def __init__(self, rows: sqlite3.Connection, own: tuple[str, ...]) -> None:
        table: Any = SimpleNamespace(sql="t", exists=lambda: True, label="t", schema=SimpleNamespace(names=NAMES))
        super().__init__(table, pipeline="p", of=lambda: own)
        self._ready, self._rows = True, rows

    def note(self, epoch: int, *offsets: int, reason: str = "value") -> None:
        """Set the records at these offsets aside."""
        self._rows.execute("DELETE FROM lakelock_dead_letters")
        for offset in offsets:
            named = {"pipeline": "p", "reason": reason, "epoch": epoch, "_topic": "t", "_partition": 0}
            named |= {"_offset": offset, "_table": self._of()[0] if self._of() else None}
            to = f"lakelock_dead_letters ({', '.join(named)}) VALUES ({', '.join('?' * len(named))})"
            self._rows.execute(f"INSERT INTO {to}", [*named.values()])
        merge(self._rows, adding_sql("t", self._of()))

    @property
    def shown(self) -> list[tuple[int, str | None]]:
        """The open letters that the commands show."""
        return list(
            self._rows.execute(f"SELECT _offset, _table FROM t WHERE {self.own_sql(only_open=True)} ORDER BY 1, 2")
        )

    def _run(self, sql: str) -> int:
        return self._rows.execute(re.sub(r"(\d)L\b", r"\1", sql.replace("current_timestamp()", "'now'"))).rowcount

    def _count(self, where: str) -> int:
        return int(self._rows.execute(f"SELECT count(*) FROM t WHERE {where}").fetchone()[0])


def merge(rows: sqlite3.Connection, sql: str) -> None:
    """What Delta does with the MERGE."""
    parts = re.fullmatch(
        r"MERGE INTO t AS t\nUSING (\w+) AS s\nON (.*)\nWHEN MATCHED AND (.*)\n\s+THEN UPDATE SET (.*)\n"
        r"WHEN NOT MATCHED\n\s+THEN INSERT (\(.*\))\n\s+VALUES \((.*)\)",
        sql.replace("<=>", "IS"),
        re.DOTALL,
    )
    assert parts is not None, sql
    source, on, changed, sets, names, values = parts.groups()
    # What is inserted first meets none of the conditions of the UPDATE.
    new = f"SELECT {values} FROM {source} AS s WHERE NOT EXISTS (SELECT 1 FROM t WHERE {on})"
    rows.execute(f"INSERT INTO t {names} {new}")
    rows.execute(f"UPDATE t SET {sets} FROM {source} AS s WHERE {on} AND {changed}")


def test_a_record_that_two_tables_set_aside_is_a_letter_of_each_and_each_retry_closes_its_own() -> None:
    shared = Shared()
    source, clone = shared.of("source"), shared.of("clone")
    for letters in (source, clone, source):
        letters.note(3, 7)
    assert shared.open == [(7, "clone"), (7, "source")]
    assert source.shown == [(7, "source")]
    for letters, left in ((source, [(7, "clone")]), (clone, [])):
        assert letters.begin("retry of " + letters._of()[0], PASSED) == 1
        assert letters.close("retry of " + letters._of()[0], 4) == 1
        assert shared.open == left


def test_a_rewind_closes_the_letter_of_its_own_table_although_another_has_one_of_that_record_too() -> None:
    shared = Shared()
    source, clone = shared.of("source"), shared.of("clone")
    for letters in (source, clone):
        letters.note(3, 200)
    clone.take_back(PASSED, restored_to=2, highest=3)
    assert shared.open == [(200, "source")]
    source.note(5, 300)  # and what the other has closed isn't taken over
    clone.note(5, 200)
    assert shared.held == [(200, "clone", 5, None), (200, "source", 3, None), (300, "source", 5, None)]
    clone.take_back(PASSED, restored_to=2, highest=5)
    source.note(6, 200)
    assert shared.held == [(200, "clone", 5, 6), (200, "source", 6, None), (300, "source", 5, None)]


def test_a_letter_that_another_tables_restore_has_closed_stays_that_tables() -> None:
    shared = Shared()
    shared.of("clone").note(3, 200)
    shared.of("clone").take_back(PASSED, restored_to=2, highest=3)
    shared.of("source").note(9, 200)
    assert shared.held == [(200, "clone", 3, 4), (200, "source", 9, None)]


@pytest.mark.parametrize("table", [None, ""], ids=["before a letter named its table", "of two tables"])
def test_letters_of_earlier_versions_stay_one_letter_and_can_be_retried(table: str | None) -> None:
    shared = Shared()
    shared.of().note(3, 7)
    shared.rows.execute("UPDATE t SET _table = ?", [table])
    mine = shared.of("mine")
    mine.note(4, 7)
    assert shared.held == [(7, table, 4, None)]
    assert mine.shown == [(7, table)]
    assert (mine.of_others(PASSED), mine.begin("retry", PASSED), mine.close("retry", 5)) == (0, 1, 1)


def test_a_table_that_joins_finds_the_letters_of_the_table_that_was_alone_before() -> None:
    """Both are of one pipeline now, and name its log."""
    shared = Shared()
    shared.of("first").note(3, 7)
    together = shared.of("log", "first", "second")
    together.note(2, 7, 8)
    assert shared.open == [(7, "first"), (8, "log")]
    together.take_back(Offsets({TopicPartition("t", 0): 8}), restored_to=1, highest=2)
    assert shared.open == [(7, "first")]


def test_a_process_that_does_not_know_its_table_takes_every_letter_for_its_own() -> None:
    shared = Shared()
    shared.of("source").note(3, 7)
    shared.of().note(4, 7, 8)
    assert shared.open == [(7, "source"), (8, None)]


def test_letters_are_shown_that_a_version_without_these_columns_has_written() -> None:
    letters = Shared().of("mine")
    letters.table.schema.names = NAMES[:-4]
    assert letters.own_sql(only_open=True) == "pipeline = 'p'"


def test_columns_of_letters_of_an_earlier_version_are_added_by_two_processes_at_once() -> None:
    """Each letter is then written by the names of its columns: a column of a later version stays NULL."""
    asked: list[list[str]] = []
    there = [*NAMES[:-4], "of a later version"]
    frame = SimpleNamespace(selectExpr=lambda *columns: SimpleNamespace(schema=SimpleNamespace(fields=list(columns))))
    spark = SimpleNamespace(range=lambda _: frame)
    table: Any = SimpleNamespace(
        exists=lambda: True, spark=spark, schema=SimpleNamespace(names=there), add_columns=asked.append
    )
    letters = DeadLetters(table, pipeline="p")
    letters.make_ready()
    letters.make_ready()
    kinds = {"_retry": "STRING", "_retried_epoch": "BIGINT", "_retried_at": "TIMESTAMP", "_table": "STRING"}
    added = [f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in kinds.items()]
    assert asked == [added], "add_columns lets another process be sooner"


def test_letters_of_a_retirement_that_is_none_get_their_names_again() -> None:
    """A clone may really have retired the topic: its letters keep their name, as do those of nobody knows which table,
    and all that the position has passed by that name."""
    shared = Shared()
    mine, clone = shared.of("mine"), shared.of("a clone")
    mine.note(1, 5, 50, 60)
    clone.note(1, 5, 50, 60)
    shared.rows.execute("UPDATE t SET _topic = '#A/t'")
    shared.rows.execute("UPDATE t SET _table = NULL WHERE _offset = 60")
    names = {"t": "#A/t"}
    assert mine.begin("retry", PASSED) == 0
    came_back = Offsets({TopicPartition("t", 0): 100, TopicPartition("#A/t", 0): 10})
    assert mine.not_retired(came_back, names)
    assert not mine.not_retired(came_back, {})
    mine.name_back(came_back, names)
    assert shared.rows.execute("SELECT _table, _offset FROM t WHERE _topic = 't'").fetchall() == [("mine", 50)]
    assert not mine.not_retired(came_back, names)
    mine.name_back(PASSED, names)
    assert mine.begin("retry", PASSED) == 2
