"""Counts the rows of a query and computes their checksum, within the query itself and without an extra job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


class Fingerprint(NamedTuple):
    """The number of rows, and their checksum."""

    rows: int
    checksum: str
    """The sum of the rows' hashes. It depends neither on the order of the rows nor on their files."""


def fingerprinted(rows: DataFrame) -> tuple[DataFrame, Callable[[], Fingerprint]]:
    """The rows, and a function that returns their fingerprint after a query over them has run.

    Use the rows directly in the write. If they pass a shuffle first, a retried task may count rows again.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    hashes = ", ".join(_comparable(identifier(field.name), field.dataType) for field in rows.schema)
    observed = rows.observe(
        seen,
        F.count(F.lit(1)).alias("rows"),
        F.expr(f"CAST(coalesce(sum(CAST(xxhash64({hashes}) AS DECIMAL(38, 0))), 0) AS STRING)").alias("checksum"),
    )

    def found() -> Fingerprint:
        values = seen.get
        return Fingerprint(values["rows"], values["checksum"])

    return observed, found


def _comparable(column: str, kind: DataType) -> str:
    """SQL of a value that can be hashed and is the same for equal values. Maps have no order, so they are sorted."""
    if kind.typeName() == "map":
        return f"to_json(array_sort(map_entries({column})))"
    return f"to_json({column})" if _holds(kind, "map") or kind.typeName() == "variant" else column


def _holds(kind: DataType, name: str) -> bool:
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, StructType):
        return any(_holds(field.dataType, name) for field in kind)
    if isinstance(kind, ArrayType):
        return _holds(kind.elementType, name)
    return kind.typeName() == name
