"""What was decided can be committed: tables of every kind and option, and what they refuse is found before."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from another_engine import query
from pyspark.errors import ArithmeticException

from connector import Pipeline
from connector.audit import audit
from connector.config import parse
from connector.state import Monoid
from sinks.errors import BadRecord, KeyMoved, SchemaMismatch

if TYPE_CHECKING:
    from conftest import Lake

MOST = 2**63 - 1
AT = datetime(2026, 1, 1, tzinfo=timezone.utc)
SCHEMA = "k STRING, n INT, m INT, op STRING, seq INT"
DELETES = {"apply_as_deletes": "op = 'd'"}
UPSERT = {"type": "delta_upsert", "key": "k"}
HISTORY = {"type": "delta_history", "key": "k"}
SUM = {"type": "delta_aggregate", "group_by": "k", "aggregates": {"n": "sum(n)"}}
SINKS: dict[str, dict[str, Any]] = {
    "append": {"type": "delta_append"},
    "by_offset": {**UPSERT, **DELETES, "except_column_list": ["m"]},
    "soft": {**UPSERT, **DELETES, "deletes": "soft"},
    "truncated": {
        **UPSERT, **DELETES, "sequence_by": "seq", "apply_as_truncates": "op = 't'", "ignore_null_updates": ["n"],
    },
    "nulls": {**UPSERT, **DELETES, "ignore_null_updates": True, "column_list": ["k", "n"]},
    "history": {**HISTORY, **DELETES, "track_history_except_column_list": "m"},
    "history_by_sequence": {**HISTORY, **DELETES, "sequence_by": "seq"},
    "sums": {"type": "delta_aggregate", "group_by": "op", "aggregates": {"n": "sum(n)", "last": "last(n, seq)"}},
    "windows": {
        "type": "delta_aggregate", "group_by": "k", "aggregates": {"n": "count(1)"},
        "window": {"size": "1 minute", "late": "dead_letter"},
    },
}  # fmt: skip
"""Tombstones, deletes, soft deletes, truncates, both orders, partial updates, column lists, windows, dead letters."""

ROWS: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "append": ("_partition, _offset", [(0, each) for each in (0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 14, 15, 16, 17, 18)]),
    "by_offset": ("k, n", [("a", 5), ("b", 1), ("c", 3), ("d", 1), ("e", 1), ("t", 1)]),
    "soft": (
        "k, n, _deleted",
        [
            ("a", 5, False), ("b", 1, False), ("c", 3, False), ("d", 1, False), ("e", 1, False), ("f", None, True),
            ("t", 1, False),
        ],
    ),
    "truncated": ("k, n", [("b", 1), ("e", 1)]),
    "nulls": ("k, n", [("a", 5), ("b", 1), ("c", 3), ("d", 1), ("e", 1), ("t", 1)]),
    "history": (
        "k, __START_AT, n, __END_AT",
        [
            ("a", 0, 1, 2), ("a", 7, 5, None), ("b", 1, 1, 8), ("b", 17, 1, None), ("c", 3, 1, 4), ("c", 4, None, 10),
            ("c", 10, 2, 11), ("c", 15, 3, None), ("d", 14, 1, None), ("e", 12, 1, None), ("t", 16, 1, None),
        ],
    ),
    "history_by_sequence": (
        "k, __START_AT, n, __END_AT",
        [
            ("a", 1, 1, 2), ("a", 2, 5, 3), ("b", 2, 1, 7), ("b", 11, 1, None), ("c", 4, 3, 5), ("c", 5, None, 9),
            ("c", 9, 2, None), ("d", 6, 1, 8), ("e", 12, 1, None), ("t", 10, 1, None),
        ],
    ),
    "sums": ("op, n, last", [("d", 3, None), ("t", 1, 1), ("u", 17, 1)]),
    "windows": ("k, n", [("a", 3), ("b", 3), ("c", 4), ("d", 2), ("e", 1), ("f", 1), ("t", 1), (None, 1)]),
}  # fmt: skip


def change(
    key: str | None, op: str = "u", seq: int = 1, n: int | None = 1, m: int | None = 1
) -> tuple[str | None, dict[str, Any]]:
    return key, {"k": key, "n": n, "m": m, "op": op, "seq": seq}


FIRST = [
    change("a", "u", 1), change("b", "u", 2), change("a", "d", 3), change("c", "u", 4), change("c", "u", 5, None, 7),
    change(None, "u", 6), ("x", {"k": "x", "n": "many"}),
]  # fmt: skip
THEN = [
    change("a", "u", 2, 5), change("b", "d", 7), change("d", "d", 8), change("c", "u", 9, 2), ("c", None),
    change("e", "u", 12), ("y", b"{"), change("d", "u", 6), change("c", "u", 4, 3), change("t", "t", 10),
    change("b", "u", 11), change("f", "d", 13, None),
]  # fmt: skip


def together(lake: Lake, sinks: dict[str, dict[str, Any]], schema: str = SCHEMA, **changes: Any) -> dict[str, Any]:
    options = lake.options("append", schema=schema, **changes)
    options["name"] = "together"
    options["sinks"] = [{**sink, "path": str(lake.path(name))} for name, sink in sinks.items()]
    return {**options, "coordinator": {"path": str(lake.path("log"))}}


def states(lake: Lake) -> list[str]:
    return [state for (state,) in query(lake.path("log"), "SELECT state FROM t ORDER BY entry, epoch")]


@pytest.mark.breadth
def test_tables_of_every_kind_and_option_take_what_was_decided(lake: Lake) -> None:
    """The rows are those that `lakelock verify` recomputes, and those of each table alone."""
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}}
    lake.topic.send(*FIRST, *THEN, partition=0, at=AT)
    Pipeline.from_options(together(lake, SINKS, epoch={"max_records": len(FIRST)}, **letters)).run()
    assert states(lake)[-2:] == ["decided", "done"]
    for name, (columns, rows) in ROWS.items():
        assert query(lake.path(name), f"SELECT {columns} FROM t ORDER BY 1, 2") == rows, name


@pytest.mark.breadth
def test_tables_of_every_kind_are_those_of_their_records(lake: Lake) -> None:
    options = together(lake, SINKS, on_bad_record="dead_letter", dead_letters={"path": str(lake.path("letters"))})
    for records in (FIRST, THEN):
        lake.topic.send(*records, partition=0, at=AT)
        Pipeline.from_options(options).run()
    config = parse(options)
    for index, name in enumerate(SINKS):
        assert audit(config.alone(index)).ok, name
        alone = {**options, "name": "alone", "sinks": [{**SINKS[name], "path": str(lake.path(f"{name}_alone"))}]}
        Pipeline.from_options(alone).run()
        columns, rows = ROWS[name]
        assert query(lake.path(f"{name}_alone"), f"SELECT {columns} FROM t ORDER BY 1, 2") == rows, name


@pytest.mark.breadth
def test_columns_that_get_wider_and_new_ones_take_what_was_decided(lake: Lake) -> None:
    """Also where deletes are kept: a key is as wide there as in its table."""
    sinks = {"append": {"type": "delta_append"}, "upsert": {**UPSERT, **DELETES, "key": "n", "sequence_by": "seq"}}
    lake.topic.send(change("a"), change("a", "d", 2), partition=0)
    Pipeline.from_options(together(lake, sinks, on_new_column="add")).run()
    wider = "k STRING, n BIGINT, m INT, op STRING, seq BIGINT, more STRING"
    big = 3_000_000_000
    lake.topic.send(change("b", "u", 1, big), change("c", "u", big, big + 1), change("b", "d", big, big), partition=0)
    Pipeline.from_options(together(lake, sinks, wider, on_new_column="add")).run()
    lake.topic.send(change("b", "u", 3, big), change("a", "u", 1), change("d", "u", big + 1, big + 2), partition=0)
    Pipeline.from_options(together(lake, sinks, wider, on_new_column="add")).run()
    assert states(lake)[-2:] == ["decided", "done"]
    assert sorted(lake.sql("SELECT k, n, more FROM {t}", "upsert")) == [("c", big + 1, None), ("d", big + 2, None)]


class Inverse(Monoid):
    """What readers see of it can't be worked out of every state."""

    def lift(self) -> str:
        return f"CAST({self.arguments[0]} AS BIGINT)"

    def plus(self, left: str, right: str) -> str:
        return f"coalesce({left} + {right}, {left}, {right})"

    def present(self, state: str) -> str:
        return f"1 / {state}"


SMALL = "ALTER TABLE {t} ADD CONSTRAINT small CHECK (n < 100)"
NOT_NULL = (
    "CREATE TABLE {t} (k STRING, n BIGINT, m INT, op STRING NOT NULL, seq INT, _topic STRING, _partition INT, "
    "_offset BIGINT, _timestamp TIMESTAMP) USING delta"
)
OFFSET_2 = r"offset 2 isn't right: breaks the table's constraint small: n < 100"
BROKEN = r"row of {\"k\":\"a\"} would be refused by its table: breaks the table's constraint small: n < 100"
INVERSE = {**SUM, "aggregates": {"n": "inverse(n)"}, "states": {"inverse": f"{__name__}:Inverse"}}
breadth = pytest.mark.breadth


@pytest.mark.parametrize(
    ("sink", "change_table", "bad", "partition", "error", "says"),
    [
        pytest.param(
            {"type": "delta_append"}, SMALL, change("a", n=1000), 0, BadRecord, "offset 2 isn't right.*small: n < 100",
            id="append", marks=breadth,
        ),
        pytest.param({"type": "delta_append"}, NOT_NULL, ("a", {"k": "a"}), 0,
                     BadRecord, "its op is null, and NOT NULL", id="null", marks=breadth),
        pytest.param(UPSERT, SMALL, change("a", n=1000), 0, BadRecord, OFFSET_2, id="upsert"),
        pytest.param(HISTORY, SMALL, change("a", n=1000), 0, BadRecord, OFFSET_2, id="history", marks=breadth),
        pytest.param(SUM, SMALL, change("a", n=1000), 0, BadRecord, BROKEN, id="sum", marks=breadth),
        pytest.param(SUM, "", change("a", n=MOST), 0, BadRecord, "it overflows", id="overflow", marks=breadth),
        pytest.param(INVERSE, "", change("b", n=0), 0, ArithmeticException, "BY_ZERO", id="state", marks=breadth),
        pytest.param({**HISTORY, **DELETES}, "", change("gone"), 1, KeyMoved, "gone", id="moved", marks=breadth),
        pytest.param(
            UPSERT, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')", change("a"), 0, SchemaMismatch,
            "delta.appendOnly", id="append_only", marks=breadth,
        ),
    ],
)  # fmt: skip
def test_what_a_table_refuses_stops_before_the_decision(
    lake: Lake,
    sink: dict[str, Any],
    change_table: str,
    bad: tuple[str, Any],
    partition: int,
    error: type[Exception],
    says: str,
) -> None:
    options = together(
        lake, {"append": {"type": "delta_append"}, "other": sink}, "k STRING, n BIGINT, m INT, op STRING, seq INT"
    )
    if change_table.startswith("CREATE"):
        lake.sql(change_table, "other")
    lake.topic.send(change("a"), change("gone", "d"), partition=0)
    Pipeline.from_options(options).run()
    if change_table.startswith("ALTER"):
        lake.sql(change_table, "other")
    lake.topic.send(bad, partition=partition)
    with pytest.raises(error, match=says):
        Pipeline.from_options(options).run()
    assert states(lake)[-1] != "decided"
    assert len(query(lake.path("append"), "SELECT k FROM t")) == 2


@pytest.mark.breadth
def test_a_key_that_left_the_partition_of_its_delete_stops_before_the_decision(lake: Lake) -> None:
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}}
    options = together(lake, {"append": {"type": "delta_append"}, "other": {**UPSERT, **DELETES}}, **letters)
    lake.topic.send(change("gone", "d"), partition=1)
    Pipeline.from_options(options).run()
    lake.topic.send(change("gone"), partition=0)
    with pytest.raises(
        KeyMoved, match=f"gone.* came from {lake.topic.name}-1 so far, and now from {lake.topic.name}-0"
    ):
        Pipeline.from_options(options).run()
    assert states(lake)[-1] != "decided"
    assert len(query(lake.path("append"), "SELECT k FROM t")) == 1


@pytest.mark.breadth
def test_a_name_that_the_table_cannot_take_is_told_before_anything_is_written(lake: Lake) -> None:
    sinks = {"append": {"type": "delta_append"}, "upsert": UPSERT}
    lake.topic.send(change("a"), partition=0)
    Pipeline.from_options(together(lake, sinks, on_new_column="add")).run()
    lake.topic.send(("a", {"k": "a", "n": 2, "a b": 1}), partition=0)
    with pytest.raises(SchemaMismatch, match=r"column a b has a name that needs delta\.columnMapping\.mode"):
        Pipeline.from_options(together(lake, sinks, f"{SCHEMA}, `a b` INT", on_new_column="add")).run()
    assert states(lake)[-1] == "done"
