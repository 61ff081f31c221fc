"""What readers without Spark see of each kind of table: delta-rs, DuckDB, Polars, and `read_arrow`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from another_engine import query
from conftest import Lake
from deltalake import DeltaTable, QueryBuilder

import lakelock
from sinks.errors import ConfigurationError, NotFolded

PAGE = Path(__file__).parents[2] / "docs" / "readers.md"
WITHOUT_SPARK = Path(__file__).parents[1] / "unit" / "test_readers_page.py"
SCHEMA = (
    "k STRING, n BIGINT, price DECIMAL(9, 2), at TIMESTAMP, day DATE, tags ARRAY<STRING>, place STRUCT<city: STRING>"
)
COLUMNS = "k, n, CAST(price AS STRING) AS price, CAST(day AS STRING) AS day"
KINDS: dict[str, dict[str, Any]] = {
    "append": {"type": "delta_append"},
    "partitions": {"type": "delta_append", "partition_by": ["day", "at"]},
    "upsert": {"type": "delta_upsert", "key": "k"},
    "upsert_on_read": {"type": "delta_upsert", "key": "k", "merge": "on_read"},
    "history": {"type": "delta_history", "key": "k"},
    "aggregate": {
        "type": "delta_aggregate", "group_by": "k",
        "aggregates": {"n": "max(n)", "price": "sum(price)", "day": "max(day)"},
    },
}  # fmt: skip


def send(lake: Lake, *rows: tuple[str, int]) -> None:
    lake.topic.send(
        *(
            (k, {
                "k": k, "n": n, "price": n + 0.25, "at": "2026-11-01T10:00:00Z", "day": "2026-11-01",
                "tags": ["a", "ü"], "place": {"city": "Köln"},
            })
            for k, n in rows
        ),
        partition=0,
    )  # fmt: skip


def file(lake: Lake, kind: str, **more: Any) -> Path:
    sink = {**KINDS[kind], "path": str(lake.path(kind))}
    written = lake.folder / "pipeline.yaml"
    written.write_text(yaml.safe_dump({**lake.options(schema=SCHEMA, name="orders"), "sinks": [sink], **more}))
    return written


def by_spark(lake: Lake, kind: str) -> list[tuple[Any, ...]]:
    return sorted(lake.sql(f"SELECT {COLUMNS} FROM {{t}}", kind))


def rows_of(path: Path) -> Any:
    return QueryBuilder().register("t", DeltaTable(str(path))).execute(f"SELECT {COLUMNS} FROM t").read_all()


def by_delta_rs(path: Path) -> list[tuple[Any, ...]]:
    return sorted(query(path, f"SELECT {COLUMNS} FROM t"))


def by_duckdb(path: Path) -> list[tuple[Any, ...]]:
    import duckdb

    return sorted(duckdb.from_arrow(pa.table(rows_of(path))).fetchall())


def by_polars(path: Path) -> list[tuple[Any, ...]]:
    import polars as pl

    return sorted(pl.DataFrame(rows_of(path)).rows())


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind == "upsert" else pytest.mark.breadth) for kind in KINDS]
)
def test_other_engines_see_the_rows_that_spark_sees(lake: Lake, kind: str) -> None:
    send(lake, ("a", 1), ("b", 2), ("a", 3), ("c", 4))
    lakelock.Pipeline.from_file(file(lake, kind, epoch={"max_records": 3})).run()
    rows = by_spark(lake, kind)
    assert rows
    for read in (by_delta_rs, by_duckdb, by_polars):
        assert read(lake.path(kind)) == rows, read.__name__
    asked = DeltaTable(str(lake.path(kind))).protocol()
    assert (asked.min_reader_version, asked.reader_features) == (1, None)


@pytest.mark.breadth
def test_read_arrow_gives_current_rows_or_says_that_it_cannot(lake: Lake) -> None:
    written = file(lake, "upsert_on_read")
    with pytest.raises(ConfigurationError, match="There is no table"):
        lakelock.read_arrow(written)
    send(lake, ("a", 1), ("b", 2))
    pipeline = lakelock.Pipeline.from_file(written)
    pipeline.run()  # the first epoch is merged
    assert sorted(lakelock.read_arrow(written)["k"].to_pylist()) == ["a", "b"]
    send(lake, ("a", 3))
    pipeline.run()
    with pytest.raises(NotFolded, match="as of epoch 1, and its change log has epoch 2"):
        lakelock.read_arrow(written)
    behind = lakelock.read_arrow(written, columns=["n", "k"], folded=True)
    assert behind.column_names == ["n", "k"]
    assert sorted(behind["n"].to_pylist()) == [1, 2]
    pipeline.fold()
    assert sorted(lakelock.read_arrow(written)["n"].to_pylist()) == [2, 3]


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["append", "history", "upsert_on_read"])
def test_what_was_read_stays_as_of_the_call(lake: Lake, kind: str) -> None:
    assert lake.spark is not None
    send(lake, ("a", 1))
    lakelock.Pipeline.from_file(file(lake, kind)).run()
    rows = lakelock.read(lake.spark, file(lake, kind))
    send(lake, ("a", 2), ("b", 2))
    lakelock.Pipeline.from_file(file(lake, kind)).run()
    assert [row["n"] for row in rows.collect()] == [1]
    assert lakelock.read(lake.spark, file(lake, kind)).where("n = 2").count() == 2


def test_a_table_by_name_and_several_tables_are_refused(lake: Lake) -> None:
    table = {"type": "delta_append", "table": "somewhere.orders"}
    with pytest.raises(ConfigurationError, match="is a table's name"):
        lakelock.read_arrow(file(lake, "append", sinks=[table]))
    with pytest.raises(ConfigurationError, match="several sinks"):
        lakelock.read_arrow(file(lake, "append", sinks=[table, {**table, "table": "somewhere.else"}]))


def test_the_page_names_what_is_tested() -> None:
    text = PAGE.read_text(encoding="utf-8")
    here = {name for name in globals() if name.startswith("test_")}
    without_spark = set(re.findall(r"^def (test_\w+)", WITHOUT_SPARK.read_text(encoding="utf-8"), flags=re.M))
    assert set(re.findall(r"`(test_\w+)`", text)) <= here | without_spark
