"""Deletes that are kept by other columns than the key's, and how they get the new name. In SQLite, without a JVM."""

from __future__ import annotations

import sqlite3
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.delta import renamed_key
from sinks.delta.renamed_key import differing, emptying_sql, refuse_renamed, renaming_sql
from sinks.errors import SchemaMismatch

OWN = ("_sequence", "_offset")
NAMES = st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True, min_size=1)


class Columns(list[Any]):
    @property
    def names(self) -> list[str]:
        return [field.name for field in self]


class Kept:
    """Tombstones in SQLite."""

    def __init__(self, *columns: str) -> None:
        self.sql = "tombstones"
        self.db = sqlite3.connect(":memory:")
        self.run(f"CREATE TABLE tombstones ({', '.join(f'{name} TEXT' for name in (*columns, *OWN))})")

    def run(self, statements: str) -> list[Any]:
        as_sqlite = statements.replace("COLUMNS (", "").replace(" STRING)", " TEXT")
        return [row for each in as_sqlite.split("; ") for row in self.db.execute(each)]

    @property
    def schema(self) -> Columns:
        return Columns(SimpleNamespace(name=row[1], dataType=None) for row in self.run("PRAGMA table_info(tombstones)"))


@given(NAMES, NAMES)
def test_they_are_kept_by_the_key_or_differ_from_it(columns: list[str], key: list[str]) -> None:
    missing, others = differing([*columns, *OWN], [name.upper() for name in key], OWN)
    assert (not missing and not others) == ({*columns} == {*key})
    assert {name.lower() for name in missing} == {*key} - {*columns}
    assert {*others} == {*columns} - {*key}


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(renamed_key, "sql_type", lambda _: "STRING")
    monkeypatch.setattr(
        renamed_key, "_any", lambda kept, where: bool(kept.run(f"SELECT 1 FROM tombstones WHERE {where}"))
    )

    def judge(kept: Any, *key: str, counts: bool = True) -> str:
        """What is to be done; empty: nothing."""
        kinds = dict.fromkeys(key, "STRING")
        try:
            refuse_renamed("lake/t", [kept], key, OWN, unused=lambda: None if counts else kinds)
        except SchemaMismatch as error:
            return str(error.hint)
        return ""

    return judge


@pytest.mark.parametrize("added", [False, True], ids=["renamed", "noted since by an earlier release"])
def test_the_statements_give_them_the_new_name_and_leave_truncates_alone(added: bool, judged: Any) -> None:
    kept = Kept("id", *(["order_id"] if added else []))
    kept.run("INSERT INTO tombstones (id, _offset) VALUES ('B', '15'), (NULL, '16')")
    if added:
        kept.run("INSERT INTO tombstones (order_id, _offset) VALUES ('C', '17')")
    hint = judged(kept, "order_id")
    assert "rename it there too" in hint
    kept.run(hint.partition("at work: ")[2])
    assert judged(kept, "order_id") == ""
    found = kept.run("SELECT order_id, _offset FROM tombstones ORDER BY _offset")
    assert found == [("B", "15"), (None, "16"), *([("C", "17")] if added else [])]
    # After a RESTORE to before the rename.
    kept.run(judged(kept, "id").partition("at work: ")[2])
    assert kept.run("SELECT id FROM tombstones WHERE _offset = '15'") == [("B",)]


@pytest.mark.parametrize(
    ("columns", "key"), [(["a"], ["a", "b"]), (["a", "b"], ["a"]), (["a", "b"], ["c", "d"]), (["a", "b"], ["c"])]
)
def test_what_is_no_rename_of_one_column_needs_a_new_table(columns: list[str], key: list[str], judged: Any) -> None:
    kept = Kept(*columns)
    kept.run(f"INSERT INTO tombstones ({', '.join(columns)}) VALUES ({', '.join('1' for _ in columns)})")
    assert "lakelock replay" in judged(kept, *key)


def test_the_order_of_the_key_makes_no_difference(judged: Any) -> None:
    kept = Kept("a", "b")
    kept.run("INSERT INTO tombstones (a, b) VALUES ('1', '2')")
    assert judged(kept, "b", "A") == ""
    assert renaming_sql("t", {"x y": "INT"}, ["n"], ["x y"], ["n"]) == (
        "ALTER TABLE t ADD COLUMNS (`n` INT); UPDATE t SET `n` = `x y`, `x y` = NULL WHERE `x y` IS NOT NULL"
    )


@pytest.mark.parametrize("key", [("id", "line"), ("email",)])
@pytest.mark.parametrize("noted", [False, True])
def test_deletes_of_a_table_without_a_change_are_of_no_use_by_another_key(
    key: tuple[str, ...], noted: bool, judged: Any
) -> None:
    """As after a rewind to the beginning, which keeps them aside."""
    kept = Kept("id")
    if noted:
        kept.run("INSERT INTO tombstones (id, _offset) VALUES ('B', '15')")
    hint = judged(kept, *key, counts=False)
    assert "rename" not in hint
    assert "replay" not in hint
    kept.run(hint.partition("at work: ")[2])
    assert kept.run("SELECT * FROM tombstones") == []
    assert judged(kept, *key, counts=False) == judged(kept, *key) == ""


def test_deletes_by_the_same_key_stay_also_beside_a_table_without_a_change(judged: Any) -> None:
    kept = Kept("id")
    kept.run("INSERT INTO tombstones (id, _offset) VALUES ('B', '15')")
    assert judged(kept, "ID", counts=False) == ""


def test_emptying_names_each_column_that_is_missing() -> None:
    kinds = {"a b": "INT", "c": "STRUCT<d: INT>"}
    assert emptying_sql("t", kinds, ["a b", "c"]) == (
        "ALTER TABLE t ADD COLUMNS (`a b` INT, `c` STRUCT<d: INT>); DELETE FROM t"
    )
    assert emptying_sql("t", kinds, []) == "DELETE FROM t"
