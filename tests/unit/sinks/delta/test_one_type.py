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


class Log:
    """A table, and a change log whose fields have another order."""

    def __init__(self, key: T.DataType) -> None:
        self.asked: list[str] = []
        self.table: Any = SimpleNamespace(
            sql="t", sql_at=lambda _: "t", detail=lambda: None, spark=SimpleNamespace(sql=self._sql),
            schema=struct(At=key, _state=struct(), _applied=TEXT),
        )  # fmt: skip
        nothing: Any = None
        self.aggregate = DeltaAggregate(self.table, nothing, Groups(["at"]))

    def _sql(self, sql: str) -> Any:
        self.asked.append(sql)
        own = {"_state": struct(), "_offsets": TEXT} if "*" in sql else {}
        return SimpleNamespace(schema=struct(at=struct(zip=INT, City=TEXT), **own))


def test_a_change_log_of_another_order_is_read_by_that_of_the_table() -> None:
    log = Log(struct(city=TEXT, zip=INT))
    merged = " ".join(log.aggregate.merged_sql("net", "log", None, hint="").split())
    assert log.asked == ["SELECT `at` FROM net"]
    assert merged.count(f"{AT} FROM log") == 2, "the keys, in both joins"
    assert f"{AT}, named_struct(" in merged, "the rows"
    log = Log(TEXT)
    log.aggregate.merged_sql("net", "log", None, hint="")
    assert not log.asked, "no question where no column has fields"


def test_a_view_compares_a_change_log_of_another_order_with_the_table() -> None:
    """Both joins of it; and what it gives has the order of the table."""
    log = Log(struct(city=TEXT, zip=INT))
    new = " ".join(log.aggregate.not_merged_sql("log").split())
    assert log.asked == ["SELECT * FROM log"]
    assert new.count("FROM log") == new.count(f"{AT}, `_state`, `_offsets` FROM log") == 2
    log = Log(TEXT)
    assert AT not in " ".join(log.aggregate.not_merged_sql("log").split())
    assert not log.asked
