"""Rows of an append that aren't compared with their record, or lie after the claim."""

from __future__ import annotations

import sqlite3

import pytest

from connector.audit.appended import duplicated, invented
from connector.audit.claim import At, Bounds, Held

P0, P1 = At("t", 0), At("t", 1)


def too_many(records: int, rows: int, kind: str | None, *, several: bool = False) -> int:
    text = duplicated(several=several).replace("IF(", "iif(").replace("greatest(", "max(").replace("0L", "0")
    values = {"records": records, "rows": rows, "kind": kind}
    asked = f"SELECT {text} FROM (SELECT :records AS records, :rows AS rows, :kind AS kind)"
    return int(sqlite3.connect(":memory:").execute(asked, values).fetchone()[0])


@pytest.mark.parametrize("kind", ["ahead", "unchecked"])
def test_a_further_row_of_one_record_is_one_too_many_also_where_its_record_is_not_shown(kind: str) -> None:
    assert [too_many(0, rows, kind) for rows in (1, 2, 3)] == [0, 1, 2]
    assert too_many(0, 3, kind, several=True) == 0, "nobody knows how many rows it has made"
    assert too_many(0, 3, "unexpected") == 0, "each counts as that"
    assert (too_many(1, 3, kind), too_many(2, 3, kind, several=True), too_many(1, 0, None)) == (2, 1, 0)


def bounds(at: At, end: int, *, compacted: bool = False) -> Bounds:
    return Bounds(at, 0, 0, end, end, compacted)


def test_after_the_claim_a_row_without_a_record_is_nobodys_where_kafka_would_show_it() -> None:
    held = Held({P0: 12, P1: 0}, {P0: 20, P1: 5}, {"t": "id"})
    assert invented([bounds(P0, 10)], None) == "false"
    # Before 12 retention has removed the records. The log of P1 ends before the claim: it has lost some.
    assert '{"t 0": 12}' in invented([bounds(P0, 10), bounds(P1, 7)], held)
    assert '{"t 0": 15, "t 1": 5}' in invented([bounds(P0, 15), bounds(P1, 5)], held)
    assert "'{}'" in invented([bounds(P0, 10, compacted=True)], held)
