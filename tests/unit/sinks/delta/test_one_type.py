"""Nested columns of rows and of a table as one type. No JVM: types and SQL text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pyspark.sql import types as T

from sinks.delta.aggregate import DeltaAggregate, Groups
from sinks.delta.one_type import as_in, stored_as_in
from sinks.spark.schema_changes import united
from sinks.spark.types import sql_type


def struct(**fields: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


TEXT, INT, LONG = T.StringType(), T.IntegerType(), T.LongType()
TABLE = struct(k=TEXT, at=struct(city=TEXT, zip=INT), stops=T.ArrayType(struct(city=TEXT)))


def test_rows_of_the_tables_types_stay_as_they_are() -> None:
    assert as_in(TABLE, TABLE, (), grows=True) == {}
    assert stored_as_in(TABLE, TABLE, ()) == {}


def test_fields_in_another_order_and_missing_ones_follow_the_table() -> None:
    rows = struct(k=TEXT, at=struct(zip=INT, City=TEXT), stops=T.ArrayType(struct(city=TEXT)))
    values = as_in(TABLE, rows, (), grows=False)
    assert values == {
        "at": "CASE WHEN `at` IS NOT NULL THEN named_struct('city', `at`.`City`, 'zip', `at`.`zip`) END",
    }
    assert stored_as_in(TABLE, rows, ()) == {}
    assert "CAST(NULL AS int)" in as_in(TABLE, struct(at=struct(city=TEXT)), (), grows=False)["at"]


def test_new_fields_come_behind_the_tables_own_on_both_sides() -> None:
    rows = struct(at=struct(geo=struct(lat=INT), zip=LONG), stops=T.ArrayType(struct(code=TEXT, city=TEXT)))
    at, stops = (sql_type(united(TABLE[name].dataType, rows[name].dataType)) for name in ("at", "stops"))
    assert at == "STRUCT<`city`: string, `zip`: bigint, `geo`: STRUCT<`lat`: int>>"
    assert stops == "ARRAY<STRUCT<`city`: string, `code`: string>>"
    assert list(as_in(TABLE, rows, (), grows=True)) == list(stored_as_in(TABLE, rows, ())) == ["at", "stops"]
    assert as_in(TABLE, rows, ("at",), grows=True).keys() == {"stops"}
    assert "geo" not in as_in(TABLE, rows, (), grows=False)["at"]


AT = "CASE WHEN `at` IS NOT NULL THEN named_struct('city', `at`.`City`, 'zip', `at`.`zip`) END AS `at`"


def grouped(**fields: T.DataType) -> Any:
    """Rows of an aggregate, which say what is selected of them."""
    rows = SimpleNamespace(schema=struct(**fields, _state=struct(n=LONG), _offsets=TEXT))
    rows.columns = rows.schema.names
    rows.selectExpr = lambda *columns: columns
    return rows


def test_the_groups_of_an_aggregate_follow_the_table() -> None:
    """Its MERGE compares whole STRUCTs, and with another order they are other types."""
    table: Any = SimpleNamespace(schema=struct(at=struct(city=TEXT, zip=INT), _state=struct(m=LONG, n=LONG)))
    groups, nothing = Groups(["at"]), SimpleNamespace()
    epoch: Any = nothing
    rows = grouped(at=struct(zip=INT, City=TEXT))
    assert groups.source(table, rows, epoch) == (AT, "`_state`", "`_offsets`")
    rows = grouped(at=struct(city=TEXT, zip=INT))
    assert groups.source(table, rows, epoch) is rows


def test_a_change_log_of_another_order_is_read_by_that_of_the_table() -> None:
    asked: list[str] = []

    def log_of(sql: str) -> Any:
        asked.append(sql)
        return SimpleNamespace(schema=struct(at=struct(zip=INT, City=TEXT)))

    table: Any = SimpleNamespace(
        sql="t", sql_at=lambda _: "t", detail=lambda: None, spark=SimpleNamespace(sql=log_of),
        schema=struct(at=struct(city=TEXT, zip=INT), _state=struct(), _applied=TEXT),
    )  # fmt: skip
    nothing: Any = None
    merged = DeltaAggregate(table, nothing, Groups(["at"])).merged_sql("log", "log", None, hint="")
    assert asked == ["SELECT `at` FROM log"]
    assert AT in " ".join(merged.split())
    table.schema = struct(at=TEXT, _state=struct(), _applied=TEXT)
    DeltaAggregate(table, nothing, Groups(["at"])).merged_sql("log", "log", None, hint="")
    assert len(asked) == 1, "no question where no column has fields"
