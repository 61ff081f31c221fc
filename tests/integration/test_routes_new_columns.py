"""``on_new_column: add`` with ``route:``: each table gets a declared column with its own rows, also after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from another_engine import query
from audits import counts
from conftest import Lake
from routing import SCHEMA, Routed, dying_before_the_commit_of

from connector.audit import audit, audit_routes
from connector.audit.verdict import FAULTS
from connector.config import parse
from sinks.errors import BadRecord

UPSERT = {"type": "delta_upsert", "key": "k"}
BREADTH = pytest.mark.breadth
MORE: dict[str, Any] = {"schema": f"{SCHEMA}, more STRING, n2 BIGINT", "on_new_column": "add"}


@pytest.fixture
def routed(lake: Lake) -> Routed:
    return Routed(lake)


def columns(routed: Routed, kind: str) -> set[str]:
    assert routed.lake.spark is not None
    names = routed.lake.spark.sql(f"SELECT * FROM delta.`{routed.lake.path(kind)}`").columns
    return {name for name in names if not name.startswith("_")}


def version(routed: Routed, kind: str) -> int:
    return max(int(file.stem) for file in (routed.lake.path(kind) / "_delta_log").glob("*.json"))


@pytest.mark.breadth
@pytest.mark.parametrize("sink", [UPSERT, pytest.param(None, marks=BREADTH)])
def test_each_table_gets_a_column_with_its_own_rows_also_after_a_crash(routed: Routed, sink: Any) -> None:
    routed.send(("a", "x", 1), ("b", "y", 2), ("c", "z", 3))
    routed.run(sink=sink)
    untouched = version(routed, "c")
    new = [{"kind": kind, "k": k, "n": 4, "more": "m", "n2": 5} for kind, k in (("a", "x2"), ("b", "y2"), ("d", "w"))]
    routed.topic.send(*(("k", value) for value in new), partition=0)
    with dying_before_the_commit_of("b"):
        routed.run(sink=sink, **MORE)
    assert columns(routed, "b") == {"kind", "k", "n"}
    assert routed.run(sink=sink, **MORE).epochs == 0
    for kind, old in (("a", [("x", None, None)]), ("b", [("y", None, None)]), ("d", [])):
        rows = query(routed.lake.path(kind), "SELECT k, more, n2 FROM t ORDER BY length(k)")
        assert [row for row in rows if row[1] is None] == old
        assert [row[1:] for row in rows if row[1] is not None] == [("m", 5)]
    # A table without rows isn't changed.
    assert (columns(routed, "c"), version(routed, "c")) == ({"kind", "k", "n"}, untouched)
    config = parse(routed.options(sink=sink, **MORE))
    audits = audit_routes(config, lambda one, upto: audit(one, upto=upto))
    assert not any(fault in counts(each) for each in audits for fault in FAULTS), [counts(each) for each in audits]
    assert {Path(each.table).name for each in audits} == {"a", "b", "c", "d"}


@BREADTH
@pytest.mark.parametrize("sink", [UPSERT, None])
def test_a_field_that_the_file_does_not_declare_is_never_lost_in_silence(routed: Routed, sink: Any) -> None:
    """Nobody has said yet of which type it is."""
    routed.send(("a", "x", 1), ("b", "y", 2), ("c", "z", 3))
    routed.run(sink=sink)
    routed.topic.send(("k", {"kind": "b", "k": "x", "n": 4, "more": "m", "n2": 5}), partition=0)
    routed.run(sink=sink, **MORE)
    routed.topic.send(("k", {"kind": "a", "k": "x", "n": 6, "later": 1}), partition=0)
    with pytest.raises(BadRecord, match=r"has fields that value\.schema lacks: later"):
        routed.run(sink=sink, **MORE)
    later = {**MORE, "schema": f"{MORE['schema']}, later INT"}
    routed.send(("c", "z2", 7))
    routed.run(sink=sink, **later)
    assert "later" in columns(routed, "a") & columns(routed, "c")
    assert "later" not in columns(routed, "b")


@BREADTH
def test_a_column_gets_wider_in_the_tables_that_need_it(routed: Routed) -> None:
    routed.send(("a", "x", 1), ("b", "y", 2))
    routed.run()
    routed.send(("a", "z", 3_000_000_000))
    wide: dict[str, Any] = {"schema": SCHEMA.replace("n INT", "n BIGINT"), "on_new_column": "add"}
    with dying_before_the_commit_of("a"):
        routed.run(**wide)
    routed.run(**wide)
    assert routed.lake.spark is not None  # delta-rs reads no widened table
    rows = routed.lake.spark.sql(f"SELECT k, n FROM delta.`{routed.lake.path('a')}` ORDER BY k").collect()
    assert [tuple(row) for row in rows] == [("x", 1), ("z", 3_000_000_000)]
    assert version(routed, "b") == 1
