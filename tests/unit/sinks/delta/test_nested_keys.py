"""A key of nested values in the change log may have its fields in another order than the table's."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from pyspark.sql.types import LongType, StringType, StructField, StructType

from sinks.delta.upsert import Merges
from sinks.delta.upsert_rule import UpsertRule

COORDINATES = [
    StructField("_topic", StringType()), StructField("_partition", LongType()), StructField("_offset", LongType())
]  # fmt: skip


def with_key(*fields: str) -> StructType:
    key = StructType([StructField(name, LongType()) for name in fields])
    return StructType([StructField("k", key), StructField("n", LongType()), *COORDINATES])


def merged(table: StructType, changes: StructType) -> str:
    rows = SimpleNamespace(columns=changes.names, schema=changes)
    there: Any = SimpleNamespace(
        spark=SimpleNamespace(sql=lambda _: rows), schema=table, sql_at=lambda _: "t", detail=lambda: None
    )
    merges = Merges(there, UpsertRule(("k",)), keep=False, retention=timedelta(days=7))
    return merges.merged_sql("net", "raw", None, hint="")


def test_the_keys_of_the_changes_are_compared_in_the_order_of_the_table() -> None:
    """Else Spark refuses to compare them, and only a fold could read such changes."""
    same = merged(with_key("a", "b"), with_key("a", "b"))
    assert "named_struct" not in same
    other = merged(with_key("a", "b"), with_key("b", "a"))
    keys = other[other.index("LEFT ANTI JOIN") : other.index("UNION ALL")]
    assert "raw" in keys
    assert keys.index("`k`.`a`") < keys.index("`k`.`b`")
