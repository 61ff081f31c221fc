"""The rows that the page shows with ``--preview`` leave out the values of sensitive columns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from connector.config import parse
from connector.operations import newest_rows as module
from connector.operations.newest_rows import newest_rows


class Frame:
    """A DataFrame without rows that notes the SQL that it is asked for."""

    def __init__(self, columns: list[str], asked: list[str]) -> None:
        self.columns, self._asked = columns, asked

    def selectExpr(self, *sql: str) -> Frame:
        self._asked.extend(sql)
        return Frame([each.rpartition(" AS ")[2] for each in sql], self._asked)

    def same(self, *_: object, **__: object) -> Frame:
        return self

    where = orderBy = limit = same

    def collect(self) -> list[Any]:
        return []


def asked(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> str:
    """The SQL of what is read of a table and its dead letters."""
    found: list[str] = []
    there = SimpleNamespace(sql="t", exists=lambda: True)
    letters = SimpleNamespace(exists=lambda: True, table=there, own_sql=lambda **_: "true")
    spark = SimpleNamespace(table=lambda _: Frame(["id", "email", "_topic", "_partition", "_offset"], found))
    monkeypatch.setattr(module, "DeltaTable", lambda *_, **__: there)
    monkeypatch.setattr(module, "letters_table", lambda *_: letters)
    options = {
        "name": "p",
        "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
        "value": {"format": "json", "schema": "id INT, email STRING"},
        "sinks": [{"type": "delta_append", "path": "lake/t"}],
        "on_bad_record": "dead_letter",
        "dead_letters": {"path": "lake/dead"},
        **changes,
    }
    newest_rows(parse(options), cast("Any", spark), [])
    return "\n".join(found)


def test_sensitive_columns_and_the_records_of_letters_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = {"path": "lake/dead", "sensitive": "allow"}
    sql = asked(monkeypatch, sensitive=["email"], dead_letters=letters)
    assert "`id` AS `id`, '(sensitive)' AS `email`" in sql
    assert "'(sensitive)' AS value" in sql
    assert "`email` AS" not in sql
    assert "CAST(value" not in sql


def test_without_sensitive_columns_all_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    sql = asked(monkeypatch)
    assert "`email` AS `email`" in sql
    assert "CAST(value AS STRING)" in sql
