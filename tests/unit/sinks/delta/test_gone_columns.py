"""A row of an upsert is one record's: a column that has left the rows doesn't keep the value of an older record."""

from __future__ import annotations

import logging
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import types as T

from sinks.delta.merge import Change, Merge
from sinks.delta.shape import Shape, no_longer_filled
from sinks.delta.upsert import Merges
from sinks.delta.upsert_rule import COLUMNS, DELETED_BY, UpsertRule, upserting

OFFSETS = ["k", "v", "_topic", "_partition", "_offset"]
SEQUENCED = [*OFFSETS, "_sequence"]
GONE = {"reason": "NULL"}


def replaced(merge: Merge) -> Change:
    return next(change for change in merge.matched if change.sets is not None)


@pytest.mark.parametrize(
    ("rule", "columns"),
    [
        (UpsertRule(["k"]), OFFSETS),
        (UpsertRule(["k"], guarded=False), [*OFFSETS, DELETED_BY]),
        (UpsertRule(["k"], sequenced=True), [*SEQUENCED, DELETED_BY]),
        (UpsertRule(["k"], ignore_nulls=["v"]), OFFSETS),
    ],
)
def test_a_row_that_is_replaced_has_null_where_the_record_has_no_column(rule: UpsertRule, columns: list[str]) -> None:
    merge = upserting(rule, columns, gone=GONE)
    assert (replaced(merge).sets or {})["reason"] == "NULL"
    assert "`reason` = NULL" in merge.statement("t", "s")
    assert "reason" not in merge.inserts, "an insert leaves the column out, as before"
    assert "reason" not in (replaced(upserting(rule, columns)).sets or {}), "a column of a person's own"


@pytest.mark.parametrize(
    ("rule", "columns"),
    [
        (UpsertRule(["k"], soft=True), [*OFFSETS, DELETED_BY]),
        (UpsertRule(["k"], sequenced=True, soft=True), [*SEQUENCED, DELETED_BY]),
        (UpsertRule(["k"], sequenced=True, ignore_nulls=["v"]), [*SEQUENCED, DELETED_BY, COLUMNS]),
        (UpsertRule(["k"], sequenced=True, keeps=["v"]), [*SEQUENCED, DELETED_BY, COLUMNS]),
    ],
)
def test_only_a_newer_update_takes_the_value_away(rule: UpsertRule, columns: list[str]) -> None:
    """A delete that is noted in the row, and a part of a row that comes late, leave it."""
    value = (replaced(upserting(rule, columns, gone=GONE)).sets or {})["reason"]
    other = (replaced(upserting(rule, columns)).sets or {})["k"]
    assert value == other.replace("s.`k`", "NULL").replace("t.`k`", "t.`reason`")
    assert value != other


def merges(rule: UpsertRule, gone: list[str], there: list[str], **detail: Any) -> Merges:
    facts = SimpleNamespace(**{"generated": {}, "identities": (), "defaults": {}, **detail})
    schema = T.StructType([T.StructField(name, T.StringType()) for name in there])
    table: Any = SimpleNamespace(schema=schema, detail=lambda: facts)
    return Merges(table, rule, keep=False, retention=timedelta(days=7), gone=lambda: gone)


RULE = UpsertRule(("k",))
THERE = [*OFFSETS, "Reason", "own"]


def test_only_columns_of_the_table_that_the_changes_lack_are_emptied() -> None:
    assert merges(RULE, ["reason", "dropped"], THERE)._emptied(OFFSETS) == {"Reason": "NULL"}
    assert merges(RULE, [], THERE)._emptied(OFFSETS) == {}
    staged = [*OFFSETS, "reason"]  # by the file of before, and committed under this one
    assert merges(RULE, ["reason"], THERE)._emptied(staged) == {}


def test_what_the_table_fills_itself_stays_its_own() -> None:
    assert merges(RULE, ["reason"], THERE, generated={"Reason": "upper(v)"})._emptied(OFFSETS) == {}
    assert merges(RULE, ["reason"], THERE, defaults={"Reason": "'none'"})._emptied(OFFSETS) == {"Reason": "'none'"}


def test_a_value_is_kept_where_every_column_keeps_its_own() -> None:
    keeps_all = UpsertRule(("k",), ignore_nulls=("v",))
    assert merges(keeps_all, ["reason"], THERE)._emptied([*OFFSETS, COLUMNS]) == {}
    assert merges(keeps_all, ["reason"], THERE)._emptied([*OFFSETS, "w"]) == {"Reason": "NULL"}


def remembering(*columns: str, there: tuple[str, ...] = ()) -> Any:
    detail = SimpleNamespace(properties=dict(Shape("p", str, {"filled": list(columns)}).properties))
    schema = T.StructType([T.StructField(name, T.StringType()) for name in there])
    return SimpleNamespace(label="lake/t", sql="lake.t", schema=schema, detail=lambda: detail, forget=lambda: None)


def test_a_table_remembers_each_column_that_updates_have_filled() -> None:
    kept = {"filled": ["a", "Reason"]}
    assert Shape("p", str, {"filled": ["b", "A"]}).over(kept) == {"filled": ["a", "Reason", "b"]}
    assert Shape("p", str, {"filled": ["reason", "a"]}).over(kept) == kept, "no commit for another order"
    assert Shape("p", str, {"filled": ["b"]}).differences(kept) == {}, "the file may leave a column out"
    assert no_longer_filled(remembering("a", "Reason"), "p", ["A"]) == ["Reason"]
    assert no_longer_filled(remembering("a", "Reason"), "another pipeline", ["A"]) == []
    none: Any = SimpleNamespace(detail=lambda: None)
    assert no_longer_filled(none, "p", []) == []


def test_a_run_names_the_column_and_how_to_have_it_for_oneself(caplog: pytest.LogCaptureFixture) -> None:
    now = Shape("p", str, {"filled": ["a"]})
    with caplog.at_level(logging.WARNING, "lakelock.delta"):
        now.keep(remembering("a", "reason", "dropped", there=("a", "REASON")))
    (message,) = [each.getMessage() for each in caplog.records]
    assert message.startswith("'lake/t': records had reason once, and have no such column now.")
    assert "ALTER TABLE lake.t UNSET TBLPROPERTIES" in message


def test_a_column_that_ignores_nulls_since_is_no_longer_one_to_empty() -> None:
    """It keeps its value when it leaves, whether the option or the table came first."""
    kept = {"filled": ["a", "Reason"]}
    now = Shape("p", str, {"filled": ["a"]}, keeping=["reason"])
    assert now.over(kept) == {"filled": ["a"]}
    assert Shape("p", str, {"filled": ["a", "reason"]}).over({"filled": ["a"]}) == {"filled": ["a", "reason"]}


@pytest.mark.parametrize(
    ("filled", "keeping"),
    [(["a"], ["reason"]), ([], ["a", "reason"]), ([], ["a"])],
    ids=["a list", "true", "true, and a column leaves: it keeps its value, too"],
)
def test_no_run_says_of_a_column_that_keeps_its_value_that_it_has_left(
    filled: list[str], keeping: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    table = remembering("a", "reason", there=("a", "reason"))
    table.spark = SimpleNamespace(sql=lambda _: SimpleNamespace(collect=list))
    with caplog.at_level(logging.WARNING, "lakelock.delta"):
        Shape("p", str, {"filled": filled}, keeping=keeping).keep(table)
    assert not caplog.records
