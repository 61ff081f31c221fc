"""Values that one query has found, for the text of the next one. They go as hex digits: data never becomes SQL.

No parameters (``spark.sql(text, args=...)``): Delta's parser drops them on Spark 4.1, in every statement. No subquery:
Delta takes none in MERGE's ON. Of a literal in hex Delta knows as well as of any other which files it can skip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def digits_sql(value: str, kind: DataType) -> str:
    """SQL of the hex digits that ``value_sql`` takes; null for a null."""
    from pyspark.sql.types import BinaryType, TimestampType

    if isinstance(kind, BinaryType):
        return f"hex({value})"
    # A timestamp's text depends on the session's zone, and has two hours of one name.
    exact = f"unix_micros({value})" if isinstance(kind, TimestampType) else value
    return f"hex(CAST({exact} AS STRING))"


def value_sql(digits: str, kind: DataType) -> str:
    """SQL of the value that ``digits_sql`` gave these digits of."""
    from pyspark.sql.types import BinaryType, TimestampType

    found = f"X'{bytes.fromhex(digits).hex()}'"
    if isinstance(kind, BinaryType):
        return found
    text = f"CAST({found} AS STRING)"
    return (
        f"timestamp_micros(CAST({text} AS BIGINT))"
        if isinstance(kind, TimestampType)
        else f"CAST({text} AS {sql_type(kind)})"
    )
