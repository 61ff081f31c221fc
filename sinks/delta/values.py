"""Values that one query returns, for the text of the next query. They are passed as hex digits: data never becomes SQL.

Parameters (``spark.sql(text, args=...)``) are no way: Delta's parser drops them on Spark 4.1, in every statement. Nor
is a subquery: Delta takes none in a MERGE's ON. With a literal in hex, Delta can skip files as with any other literal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def digits_sql(value: str, kind: DataType) -> str:
    """SQL that returns the hex digits of a value, for ``value_sql``; NULL for NULL.

    ``value``: SQL of the value; ``kind``: its type.
    """
    from pyspark.sql.types import BinaryType, TimestampType

    if isinstance(kind, BinaryType):
        return f"hex({value})"
    # A timestamp's text depends on the session's time zone, and is ambiguous when clocks are turned back.
    exact = f"unix_micros({value})" if isinstance(kind, TimestampType) else value
    return f"hex(CAST({exact} AS STRING))"


def value_sql(digits: str, kind: DataType) -> str:
    """SQL of the value with these hex digits, which a query with ``digits_sql`` returned; ``kind``: its type."""
    from pyspark.sql.types import BinaryType, TimestampType

    binary = f"X'{bytes.fromhex(digits).hex()}'"
    if isinstance(kind, BinaryType):
        return binary
    text = f"CAST({binary} AS STRING)"
    return (
        f"timestamp_micros(CAST({text} AS BIGINT))"
        if isinstance(kind, TimestampType)
        else f"CAST({text} AS {sql_type(kind)})"
    )
