"""Makes the messages of a topic in the query itself, so that the staged bytes are the bytes that are sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sinks.delta.table import COORDINATES
from sinks.errors import SchemaMismatch
from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import identifier, in_utc, literal, to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

HEADER = "lakelock"
"""Its value says which record the row comes from: ``<topic>-<partition>@<offset>``."""
ORDER = COORDINATES[:3]
TOO_LARGE = "message too large"
OVERHEAD = 192
"""Upper limit of a message's bytes in a batch of its own, beyond key, value and the source topic's name."""


def messages(rows: DataFrame, key: Sequence[str], largest: int) -> tuple[DataFrame, Callable[[], int]]:
    """The messages of the rows, and a function that returns their size in bytes after the query has run.

    A message has ``key``, ``value`` and the coordinates of its row. With one column in ``key``, the key is that column
    as text (null stays null; a TIMESTAMP is in UTC, as in the value). With several columns it is a JSON object, with
    none it is null. The value is a JSON object of the row's columns without coordinates. A message above ``largest``
    bytes fails the query with ``TOO_LARGE``. Raises SchemaMismatch.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    columns = [field.name for field in rows.schema if field.name not in COORDINATES]
    absent = [name for name in key if name not in columns]
    if absent or not columns:
        raise SchemaMismatch(
            f"The message key uses {', '.join(map(repr, absent))}, which the rows don't have."
            if absent
            else "The rows have no column for the messages.",
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
    """The staged rows sorted by source partition and offset, in about ``parts`` parts of similar size."""
    parted = staged.coalesce(1) if parts <= 1 else staged.repartitionByRange(parts, *ORDER)
    return parted.sortWithinPartitions(*ORDER)


def header(topic: str, partition: int, offset: int) -> tuple[str, bytes]:
    """The header that says which record a message comes from."""
    return HEADER, f"{topic}-{partition}@{offset}".encode()


def _key(rows: DataFrame, key: Sequence[str]) -> str:
    if not key:
        return "CAST(NULL AS BINARY)"
    if len(key) > 1:
        return f"CAST({_object(key)} AS BINARY)"
    name, kind = identifier(key[0]), rows.schema[key[0]].dataType
    if kind.typeName() == "timestamp":
        name = in_utc(name)
    # A cast would give Spark's own notation of a struct. Readers of the topic expect JSON. And CAST may write a DECIMAL
    # with an exponent: that depends on the session.
    text = to_json(name) if _nested(kind) else f"try_cast({name} AS STRING)"
    return name if kind.typeName() == "binary" else f"CAST({text} AS BINARY)"


def _nested(kind: DataType) -> bool:
    return kind.typeName() in ("struct", "array", "map", "variant")


def _object(columns: Sequence[str]) -> str:
    fields = ", ".join(f"{literal(name)}, {identifier(name)}" for name in columns)
    return to_json(f"named_struct({fields})")
