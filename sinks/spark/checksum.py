"""How many rows went through a query, and a checksum of them: found in the query itself, without a job of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


class Fingerprint(NamedTuple):
    rows: int
    checksum: str
    """The sum of the rows' hashes: the same for the same rows, in any order and any files."""


def fingerprinted(rows: DataFrame) -> tuple[DataFrame, Callable[[], Fingerprint]]:
    """The rows, and a function that gives their fingerprint once a query over them has ended.

    To be put right before the write: rows that pass a shuffle afterwards may be counted again when a task is retried.
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
    """SQL of something that can be hashed, and that is the same for equal values: maps have no order."""
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
