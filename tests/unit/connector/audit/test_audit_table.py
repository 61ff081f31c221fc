"""Which columns Delta fills, by what is left of a table's log."""

from __future__ import annotations

import json
import sqlite3
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from connector.audit.letters_table import LettersTable
from connector.audit.table import AuditedTable, Filled
from connector.config import DeltaPlace


def columns(*filled: str) -> str:
    told = {"delta.generationExpression": "n * 2"}
    return json.dumps(
        {"fields": [{"name": name, "metadata": told if name in filled else {}} for name in ("n", "twice")]}
    )


def rows(*found: object) -> Any:
    """What every query gives here: of methods that narrow it, nothing is looked at."""
    frame = SimpleNamespace(first=lambda: found[0] if found else None, collect=lambda: list(found))
    frame.where = frame.selectExpr = lambda _: frame
    return frame


class Log:
    """A log whose newest columns are in these files; None: there are no such files."""

    def __init__(self, commits: object, checkpoints: object) -> None:
        self.files = {"json": commits, "parquet": checkpoints}
        self.paths: list[str] = []

    def schema(self, _: str) -> Log:
        return self

    def _read(self, kind: str, path: str) -> Any:
        self.paths.append(path)
        if self.files[kind] is None:
            raise AnalysisException("[PATH_NOT_FOUND]")
        return rows({"newest": self.files[kind] or None})

    def json(self, path: str) -> Any:
        return self._read("json", path)

    def parquet(self, path: str) -> Any:
        return self._read("parquet", path)


def filled(commits: object, checkpoints: object, version: str = "4") -> frozenset[str] | None:
    table = AuditedTable.__new__(AuditedTable)
    log = Log(commits, checkpoints)

    def sql(text: str) -> Any:
        kept = {"key": "delta.minWriterVersion", "value": version}
        return rows(kept) if text.startswith("SHOW") else rows({"location": "file:/t"})

    table._spark, table._sql = SimpleNamespace(sql=sql, read=log), "t"  # type: ignore[assignment]
    found = table.filled()
    if found is not None:
        numbers.append(found.numbered)
    assert log.paths in ([], ["file:/t/_delta_log/*.json", "file:/t/_delta_log/*.checkpoint*.parquet"])
    return found.alone if found is not None else None


numbers: list[frozenset[str]] = []
"""The columns that take a value and may have one of Delta's, of each call."""
NONE = ()
"""Files without columns: commits that didn't change them."""


@pytest.mark.parametrize("why", ["DELTA_INVALID_PARTITION_PATH", "DELTA_MISSING_DELTA_TABLE", "PATH_NOT_FOUND"])
def test_a_change_log_that_was_deleted_is_no_table(why: str) -> None:
    """Its folder is in that of its table: Delta takes what is after the table's folder for partitions."""
    table = AuditedTable.__new__(AuditedTable)

    def sql(text: str) -> Any:
        if "HISTORY" in text:
            assert text.endswith("delta.`file:/t/_lakelock/changes`")
            raise AnalysisException(f"[{why}] what it is about")
        return rows({"location": "file:/t"})

    table._spark, table._sql, table._option = SimpleNamespace(sql=sql), "t", ""  # type: ignore[assignment]
    assert table.change_log() is None


@pytest.mark.parametrize("commits", [None, NONE])
def test_columns_that_only_a_checkpoint_tells_are_known(commits: object) -> None:
    assert filled(commits, ("007.checkpoint.parquet", columns("twice"))) == {"twice"}


def test_the_newest_file_counts() -> None:
    old, new = columns(), columns("twice")
    assert filled(("008.json", new), ("007.checkpoint.parquet", old)) == {"twice"}
    assert filled(("006.json", old), ("007.checkpoint.parquet", new)) == {"twice"}


@pytest.mark.parametrize(("explicit", "fills"), [({}, True), (False, True), (True, False)])
def test_an_identity_that_takes_the_values_of_records_is_compared(explicit: object, fills: bool) -> None:
    told = {"delta.identity.start": 1} | ({"delta.identity.allowExplicitInsert": explicit} if explicit != {} else {})
    log = json.dumps({"fields": [{"name": "n", "metadata": {}}, {"name": "number", "metadata": told}]})
    assert filled(("008.json", log), None, version="6") == ({"number"} if fills else set())
    assert numbers[-1] == (set() if fills else {"number"})


def test_what_is_generated_is_known_with_its_sql() -> None:
    made = Filled.of({"n": {}, "twice": {"delta.generationExpression": "n * 2"}, "id": {"delta.identity.start": 1}})
    assert (made.alone, made.made) == ({"twice", "id"}, (("twice", "n * 2"),))


def test_where_nothing_tells_nobody_knows() -> None:
    assert filled(NONE, None) is None
    assert filled(None, None) is None
    assert filled(None, None, version="2") == frozenset()


class Letters(LettersTable):
    """Letters in SQLite: of two tables, of both, and of nobody knows which, some of them retried."""

    def __init__(self, ids: dict[str, str], *, named: bool = True) -> None:
        self.newest, self._ids, self._named = 3, ids, named
        self._own = [DeltaPlace(table=name) for name in ("log", "mine")]
        self._spark: Any = SimpleNamespace(sql=self._sql_of)
        self._left = None

    def _sql_of(self, text: str) -> Any:
        name = text.removeprefix("DESCRIBE DETAIL ").strip("`")
        if name not in self._ids:
            raise AnalysisException("[DELTA_MISSING_DELTA_TABLE]")
        return rows({"id": self._ids[name]})

    def rows(self, version: int) -> Any:
        return self.frame("true")

    def frame(self, where: str) -> Any:
        columns = ["_offset", "_retried_epoch", *(["_table"] if self._named else [])]
        return SimpleNamespace(columns=columns, sql=where, where=lambda more: self.frame(f"{where} AND {more}"))

    @property
    def open_now(self) -> list[int]:
        return self.open_at(5)

    def open_at(self, epoch: int | None) -> list[int]:
        """The offsets of those that are open as of this epoch."""
        held = sqlite3.connect(":memory:")
        held.execute("CREATE TABLE letters (_offset, _table, _retried_epoch)")
        told = [(1, None), (2, ""), (3, "m"), (4, "l"), (5, "another's")]
        letters = [(offset + 10 * n, of, epoch) for n, epoch in enumerate((None, 4, 6)) for offset, of in told]
        held.executemany("INSERT INTO letters VALUES (?, ?, ?)", letters)
        where: Any = self.open_letters(epoch)
        return [row[0] for row in held.execute(f"SELECT _offset FROM letters WHERE {where.sql} ORDER BY 1")]


def test_a_letter_of_another_table_says_nothing_of_this_one() -> None:
    """Its epochs have other numbers, and its retries are none of this table."""
    assert Letters({"log": "l", "mine": "m"}).open_now == [1, 2, 3, 4, 21, 22, 23, 24]
    assert Letters({"mine": "m"}).open_now == [1, 2, 3, 21, 22, 23]


def test_letters_count_where_nobody_knows_whose_they_are() -> None:
    assert Letters({}).open_now == [1, 2, 3, 4, 5, 21, 22, 23, 24, 25]
    assert Letters({"mine": "m"}, named=False).open_now == [1, 2, 3, 4, 5, 21, 22, 23, 24, 25]


def test_where_nobody_knows_the_epoch_letters_are_open_that_are_so_by_now() -> None:
    assert Letters({"log": "l", "mine": "m"}).open_at(None) == [1, 2, 3, 4]
    assert Letters({}).open_at(None) == [1, 2, 3, 4, 5]
