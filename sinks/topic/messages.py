"""Rows as the messages of a topic: made in the query, so that what is staged is what is sent, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sinks.delta.table import COORDINATES
from sinks.errors import SchemaMismatch
from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

HEADER = "lakelock"
"""Its value is where the row's record came from: ``<topic>-<partition>@<offset>``."""
ORDER = COORDINATES[:3]
TOO_LARGE = "message too large"
OVERHEAD = 192
"""What a message needs in a batch of its own beside key, value and the source topic's name, at most."""

_JSON = "map('timeZone', 'UTC', 'ignoreNullFields', 'false')"
"""Whatever the session is set to, the same row is the same text; a null is one that can be seen."""


def messages(rows: DataFrame, key: Sequence[str], largest: int) -> tuple[DataFrame, Callable[[], int]]:
    """``key``, ``value`` and the coordinates of each row, and a function that gives their bytes after the query.

    The key is the text of the one column in ``key`` (null stays null), a JSON object of several, null of none. The
    value is a JSON object of the row's columns without coordinates. A message of more than ``largest`` bytes fails the
    query with ``TOO_LARGE``. Raises SchemaMismatch.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    columns = [field.name for field in rows.schema if field.name not in COORDINATES]
    absent = [name for name in key if name not in columns]
    if absent or not columns:
        raise SchemaMismatch(
            f"The key of the messages names {', '.join(map(repr, absent))}, which the rows don't have."
            if absent
            else "The rows have no column to make messages of.",
            hint=f"Columns: {', '.join(columns) or 'none'}.",
        )
    size = f"coalesce(octet_length(key), 0) + octet_length(value) + octet_length(_topic) + {OVERHEAD}"
    place = {name[1:]: name for name in ORDER}
    found = rows.selectExpr(
        f"{_key(rows, key)} AS key", f"CAST({_object(columns)} AS BINARY) AS value", *ORDER
    ).withColumn(
        "value",
        F.expr(f"CASE WHEN {size} <= {largest} THEN value ELSE {raise_sql(TOO_LARGE, size=size, **place)} END"),
    )
    seen = Observation()
    observed = found.observe(seen, F.expr(f"coalesce(sum({size}), 0)").alias("bytes"))
    return observed, lambda: int(seen.get["bytes"])


def in_order(staged: DataFrame, parts: int) -> DataFrame:
    """Sorted by source partition and offset, in about this many parts of about the same size."""
    parted = staged.coalesce(1) if parts <= 1 else staged.repartitionByRange(parts, *ORDER)
    return parted.sortWithinPartitions(*ORDER)


def header(topic: str, partition: int, offset: int) -> tuple[str, bytes]:
    return HEADER, f"{topic}-{partition}@{offset}".encode()


def _key(rows: DataFrame, key: Sequence[str]) -> str:
    if not key:
        return "CAST(NULL AS BINARY)"
    if len(key) > 1:
        return f"CAST({_object(key)} AS BINARY)"
    name, kind = identifier(key[0]), rows.schema[key[0]].dataType
    # A cast is Spark's own way to show a struct; what reads the topic wants JSON.
    text = f"to_json({name}, {_JSON})" if _nested(kind) else f"CAST({name} AS STRING)"
    return name if kind.typeName() == "binary" else f"CAST({text} AS BINARY)"


def _nested(kind: DataType) -> bool:
    return kind.typeName() in ("struct", "array", "map", "variant")


def _object(columns: Sequence[str]) -> str:
    fields = ", ".join(f"{literal(name)}, {identifier(name)}" for name in columns)
    return f"to_json(named_struct({fields}), {_JSON})"
