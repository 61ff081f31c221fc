"""Columns that Delta fills by itself, in a table of a person's: the table's rules hold for what it fills them with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from another_engine import query
from audits import verify

from connector import Pipeline
from sinks.errors import SchemaMismatch

if TYPE_CHECKING:
    from conftest import Lake

pytestmark = pytest.mark.breadth
PLACES = "_topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
SCHEMA = "k STRING, code STRING, n BIGINT, op STRING"
SINKS: dict[str, dict[str, Any]] = {
    "append": {"type": "delta_append"},
    "upsert": {"type": "delta_upsert", "key": "k", "apply_as_deletes": "op = 'd'"},
    "soft": {"type": "delta_upsert", "key": "k", "apply_as_deletes": "op = 'd'", "deletes": "soft"},
    "parts": {"type": "delta_upsert", "key": "k", "ignore_null_updates": ["code"]},
    "sums": {"type": "delta_aggregate", "group_by": "k", "aggregates": {"n": "sum(n)"}},
}
COLUMNS = dict.fromkeys(SINKS, f"{SCHEMA}, {PLACES}") | {
    "soft": f"{SCHEMA}, {PLACES}, _deleted BOOLEAN, "
    "_deleted_by STRUCT<topic: STRING, `partition`: INT, offset: BIGINT, timestamp: TIMESTAMP>",
    "sums": "k STRING, n BIGINT, _state STRUCT<n: DECIMAL(37, 0)>, _applied MAP<STRING, BIGINT>",
}  # fmt: skip
CODE = "region STRING GENERATED ALWAYS AS (substring(code, 1, 2))"
DEFAULTS = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
EMPTY = "its region is the empty text, and can't be stored in a column that the table is partitioned by"
EMPTY_HELD = "In 1 row region is null, by which the table is partitioned. It is generated as substring(code, 1, 2)"


def options(lake: Lake, *kinds: str) -> dict[str, Any]:
    return {
        **lake.options(schema=SCHEMA, name="filled", on_bad_record="dead_letter", unmatched="warn"),
        "sinks": [{**SINKS[kind], "path": str(lake.path(kind))} for kind in kinds],
        "dead_letters": {"path": str(lake.path("letters"))},
        **({"coordinator": {"path": str(lake.path("log"))}} if len(kinds) > 1 else {}),
    }


def letters(lake: Lake) -> list[tuple[Any, ...]]:
    return query(lake.path("letters"), "SELECT _offset, reason, detail FROM t ORDER BY 1")


@pytest.mark.parametrize("kinds", [["append"], ["upsert"], ["append", "upsert"]], ids="+".join)
def test_an_empty_text_that_a_partition_column_is_generated_from_is_no_silent_null(
    lake: Lake, kinds: list[str]
) -> None:
    for kind in kinds:
        lake.sql(f"CREATE TABLE {{t}} ({COLUMNS[kind]}, {CODE}) USING delta PARTITIONED BY (region)", kind)
    codes = {"a": "", "b": None, "c": "xyz", "d": "__HIVE_DEFAULT_PARTITION__"}
    for code in ({}, {"c": ""}):
        changed = {**codes, **code}
        lake.topic.send(*((k, {"k": k, "code": value, "n": 1}) for k, value in changed.items()), partition=0)
        Pipeline.from_options(options(lake, *kinds)).run()
    broken = [offset for offset in (0, 4, 6) for _ in kinds]
    assert letters(lake) == [(offset, "unfit", EMPTY) for offset in broken]
    for kind in kinds:
        held = set(lake.sql("SELECT k, code, region FROM {t}", kind))
        assert held == {("b", None, None), ("c", "xyz", "xy"), ("d", codes["d"], "__")}
    if kinds == ["append"]:
        assert str(verify(lake, **options(lake, "append"))).startswith("exact")
        assert EMPTY_HELD not in str(verify(lake, **options(lake, "append")).claim.unknown)
        lake.sql("INSERT INTO {t} (k, code) VALUES ('z', '')")
        assert EMPTY_HELD in str(verify(lake, **options(lake, "append")).claim.unknown)


def test_a_delete_that_stays_in_its_row_has_what_is_generated_from_nulls(lake: Lake) -> None:
    text = "region STRING GENERATED ALWAYS AS (concat_ws('-', code, op))"
    lake.sql(f"CREATE TABLE {{t}} ({COLUMNS['soft']}, {text}) USING delta PARTITIONED BY (region)", "soft")
    lake.topic.send(
        ("a", {"k": "a", "code": "x", "op": "d"}), ("b", {"k": "b", "code": "x", "op": "u"}),
        ("c", {"k": "c", "op": ""}), partition=0,
    )  # fmt: skip
    Pipeline.from_options(options(lake, "soft")).run()
    assert letters(lake) == [(0, "unfit", EMPTY), (2, "unfit", EMPTY)]
    assert lake.sql("SELECT k, region FROM {t}", "soft") == [("b", "x-u")]


@pytest.mark.parametrize(
    ("kind", "column", "because"),
    [
        ("sums", "region STRING GENERATED ALWAYS AS (CAST(n AS STRING))", "it may be the empty text"),
        ("parts", "region STRING GENERATED ALWAYS AS (concat(code, op))", "it may be the empty text"),
        ("append", "more STRING, region STRING GENERATED ALWAYS AS (concat(code, more))", "it may be the empty text"),
        ("append", "region BINARY GENERATED ALWAYS AS (CAST(code AS BINARY))", "a BINARY isn't the name of a folder"),
    ],
)
def test_a_partition_column_that_no_single_record_tells_is_refused(
    lake: Lake, kind: str, column: str, because: str
) -> None:
    lake.sql(f"CREATE TABLE {{t}} ({COLUMNS[kind]}, {column}) USING delta PARTITIONED BY (region)", kind)
    pipeline = Pipeline.from_options(options(lake, kind))
    for act in (pipeline.check, pipeline.run):
        with pytest.raises(SchemaMismatch, match=f"it is partitioned by region, .*{because}"):
            act()


def test_a_default_that_is_no_name_of_a_folder_makes_every_record_a_bad_one(lake: Lake) -> None:
    column = "region STRING DEFAULT ''"
    lake.sql(f"CREATE TABLE {{t}} ({COLUMNS['append']}, {column}) USING delta PARTITIONED BY (region) {DEFAULTS}")
    lake.topic.send(("a", {"k": "a"}), partition=0)
    Pipeline.from_options(options(lake, "append")).run()
    assert letters(lake) == [(0, "unfit", EMPTY)]


@pytest.mark.parametrize("kind", ["append", "upsert", "sums"])
def test_with_several_sinks_a_rule_holds_for_the_default_and_not_for_the_number(lake: Lake, kind: str) -> None:
    """Before the decision nobody but Delta knows the number."""
    filled = "number BIGINT GENERATED ALWAYS AS IDENTITY, origin STRING DEFAULT 'somebody'"
    lake.sql(f"CREATE TABLE {{t}} ({COLUMNS[kind]}, {filled}) USING delta {DEFAULTS}", kind)
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT told CHECK (origin = 'somebody' AND origin IS NOT NULL)", kind)
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT counted CHECK (number > 0 AND number IS NOT NULL)", kind)
    other = "soft" if kind == "append" else "append"
    for number in (1, 2):
        lake.topic.send(*((k, {"k": k, "n": number}) for k in ("a", f"b{number}")), partition=0)
        Pipeline.from_options(options(lake, kind, other)).run()
    rows = lake.sql("SELECT k, origin, number > 0 FROM {t} ORDER BY k", kind)
    keys = ["a", "a", "b1", "b2"] if kind == "append" else ["a", "b1", "b2"]
    assert rows == [(k, "somebody", True) for k in keys]
