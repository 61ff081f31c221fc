"""What is wrong with a row for its table of a route, by SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

import pytest

from connector.config import OTHER
from connector.decode.records import ROUTE
from connector.engine.routed_table import by_table


def problems(of: Mapping[str, str | None], usual: str | None) -> list[str | None]:
    """Of a row for each of these tables, and of one that names none."""
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE rows ({ROUTE})")
    connection.executemany("INSERT INTO rows VALUES (?)", [("a",), ("b",), ("c",), (None,)])
    found = connection.execute(f"SELECT {by_table(of, usual, ()) or 'NULL'} FROM rows").fetchall()
    return [problem for (problem,) in found]


@pytest.mark.parametrize(
    ("of", "usual", "expected"),
    [
        ({}, None, [None, None, None, None]),
        ({}, "'u'", ["u", "u", "u", "u"]),
        ({OTHER: None}, "'u'", ["u", "u", "u", None]),
        ({OTHER: "'o'"}, None, [None, None, None, "o"]),
        ({"a": "'u'", "b": "'x'", OTHER: "'x'"}, "'u'", ["u", "x", "u", "x"]),
        ({"a": None, "b": "'x'", OTHER: None}, "'u'", [None, "x", "u", None]),
    ],
)
def test_a_row_is_judged_by_the_rules_of_its_table(
    of: Mapping[str, str | None], usual: str | None, expected: list[str | None]
) -> None:
    assert problems(of, usual) == expected
