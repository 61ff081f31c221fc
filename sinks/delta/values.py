"""Values that one query returns, for the text of the next query. They are passed as hex digits: data never becomes SQL.

Parameters (``spark.sql(text, args=...)``) are no way: Delta's parser drops them on Spark 4.1, in every statement. Nor
is a subquery: Delta takes none in a MERGE's ON. With a literal in hex, Delta can skip files as with any other literal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.spark.sql import identifier, literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_NULL = "-"


def digits_sql(value: str, kind: DataType) -> str:
    """SQL that returns the hex digits of a value, for ``value_sql``; NULL for NULL.

    ``value``: SQL of the value; ``kind``: its type. Of a struct or an array they are the digits of its parts, in hex.
    """
    from pyspark.sql.types import ArrayType, BinaryType, StructType, TimestampType

    if isinstance(kind, BinaryType):
        return f"hex({value})"
    if isinstance(kind, StructType):
        parts = [_part_sql(f"{value}.{identifier(field.name)}", field.dataType) for field in kind]
        return f"CASE WHEN {value} IS NOT NULL THEN hex(concat({', '.join(parts)})) END"
    if isinstance(kind, ArrayType):
        return f"hex(array_join(transform({value}, each -> {_part_sql('each', kind.elementType)}), ''))"
    # A timestamp's text depends on the session's time zone, and is ambiguous when clocks are turned back.
    exact = f"unix_micros({value})" if isinstance(kind, TimestampType) else value
    return f"hex(CAST({exact} AS STRING))"


def _part_sql(value: str, kind: DataType) -> str:
    """SQL of a blank and a part's digits, which are no hex digits if the part is NULL."""
    return f"concat(' ', coalesce({digits_sql(value, kind)}, '{_NULL}'))"


def value_sql(digits: str, kind: DataType) -> str:
    """SQL of the value with these hex digits, which a query with ``digits_sql`` returned; ``kind``: its type."""
    from pyspark.sql.types import ArrayType, BinaryType, StructType, TimestampType

    if isinstance(kind, StructType):
        values = zip(kind, _parts(digits), strict=True)
        named = (f"{literal(field.name)}, {_part(of, field.dataType)}" for field, of in values)
        return f"named_struct({', '.join(named)})"
    if isinstance(kind, ArrayType):
        elements = (_part(of, kind.elementType) for of in _parts(digits))
        return f"CAST(array({', '.join(elements)}) AS {sql_type(kind)})"
    binary = f"X'{bytes.fromhex(digits).hex()}'"
    if isinstance(kind, BinaryType):
        return binary
    text = f"CAST({binary} AS STRING)"
    return (
        f"timestamp_micros(CAST({text} AS BIGINT))"
        if isinstance(kind, TimestampType)
        else f"CAST({text} AS {sql_type(kind)})"
    )


def _parts(digits: str) -> list[str]:
    return bytes.fromhex(digits).decode("ascii").split(" ")[1:]


def _part(digits: str, kind: DataType) -> str:
    return f"CAST(NULL AS {sql_type(kind)})" if digits == _NULL else value_sql(digits, kind)
