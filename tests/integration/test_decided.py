"""What was decided is committed: a table in two-phase commit is the same as it would be alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from another_engine import query

from connector import Pipeline
from connector.audit import audit
from connector.config import parse

if TYPE_CHECKING:
    from conftest import Lake

SCHEMA = "k STRING, n INT, m INT, op STRING, seq INT"
DELETES = {"apply_as_deletes": "op = 'd'"}
SINKS: dict[str, dict[str, Any]] = {
    "append": {"type": "delta_append"},
    "by_offset": {"type": "delta_upsert", "key": "k", **DELETES, "except_column_list": ["m"]},
    "soft": {"type": "delta_upsert", "key": "k", "deletes": "soft", **DELETES},
    "soft_by_sequence": {"type": "delta_upsert", "key": "k", "deletes": "soft", "sequence_by": "seq", **DELETES},
    "truncated": {
        "type": "delta_upsert", "key": "k", "sequence_by": "seq", "apply_as_truncates": "op = 't'",
        "ignore_null_updates": ["n"], **DELETES,
    },
    "nulls": {"type": "delta_upsert", "key": "k", "ignore_null_updates": True, "column_list": ["k", "n"], **DELETES},
    "history": {"type": "delta_history", "key": "k", "track_history_except_column_list": "m", **DELETES},
    "history_by_sequence": {"type": "delta_history", "key": "k", "sequence_by": "seq", **DELETES},
    "sums": {
        "type": "delta_aggregate", "group_by": "op", "aggregates": {"n": "sum(n)", "average": "avg(m)", "last": "last(n, seq)"},
    },
    "windows": {
        "type": "delta_aggregate", "group_by": "k", "aggregates": {"n": "count(1)"},
        "window": {"size": "1 minute", "late": "dead_letter"},
    },
}


def change(key: str | None, op: str, seq: int, n: int | None = 1, m: int | None = 1) -> tuple[str | None, dict[str, Any]]:
    return key, {"k": key, "n": n, "m": m, "op": op, "seq": seq}


ROUNDS = (
    [
        change("a", "u", 1), change("b", "u", 2), change("a", "d", 3), change("c", "u", 4), change("c", "u", 5, None, 7),
        change(None, "u", 6), ("x", {"k": "x", "n": "many"}),
    ],
    [
        change("a", "u", 2, 5), change("b", "d", 7), change("d", "d", 8), change("c", "u", 9, 2), ("c", None),
        change("e", "u", 12), ("y", b"{"),
    ],
    [
        change("d", "u", 6), change("c", "u", 4, 3), change("t", "t", 10), change("b", "u", 11), change("e", "u", 10, 9),
        change("f", "d", 12, None),
    ],
)  # fmt: skip


def together(lake: Lake, **changes: Any) -> dict[str, Any]:
    options = lake.options("append", schema=SCHEMA, **changes)
    options["name"] = "together"
    options["sinks"] = [{**sink, "path": str(lake.path(name))} for name, sink in SINKS.items()]
    return {
        **options,
        "coordinator": {"path": str(lake.path("log"))},
        "on_bad_record": "dead_letter",
        "dead_letters": {"path": str(lake.path("letters"))},
    }


def test_the_first_delete_by_sequence_is_committed(lake: Lake) -> None:
    options = lake.options("append", schema=SCHEMA)
    options["sinks"] = [{**SINKS[name], "path": str(lake.path(name))} for name in ("append", "truncated")]
    options["coordinator"] = {"path": str(lake.path("log"))}
    lake.topic.send(change("a", "u", 1), partition=0)
    Pipeline.from_options(options).run()
    lake.topic.send(change("a", "d", 2), change("b", "u", 3), partition=0)
    Pipeline.from_options(options).run()
    assert query(lake.path("truncated"), "SELECT k FROM t") == [("b",)]


def test_tables_of_every_kind_and_option_take_what_was_decided(lake: Lake) -> None:
    options = together(lake)
    for round_ in ROUNDS:
        lake.topic.send(*round_, partition=0)
        Pipeline.from_options(options).run()
    config = parse(options)
    found = [audit(config.alone(i)) for i in range(len(SINKS))]
    for each in found: print(each.table.split("/")[-1], each)
    assert all(each.ok for each in found)
