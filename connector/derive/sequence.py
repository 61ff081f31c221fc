"""Whether a value says where in an order its record stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def has_null(value: str, kind: DataType) -> str:
    """SQL: whether a value is null, or has a null in it. Never null itself. ``value``: SQL of it.

    Of structs Spark takes a null for the lowest value, so a record without one of several parts of its sequence would
    count as older than all others.
    """
    from pyspark.sql.types import ArrayType, StructType

    found = [f"{value} IS NULL"]
    if isinstance(kind, StructType):
        found += [has_null(f"{value}.{identifier(field.name)}", field.dataType) for field in kind]
    elif isinstance(kind, ArrayType):
        found.append(f"coalesce(exists({value}, each -> {has_null('each', kind.elementType)}), false)")
    return " OR ".join(found)


def named_twice(kind: DataType) -> str | None:
    """A name that several fields of a struct have: no column can be such a struct."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, ArrayType):
        return named_twice(kind.elementType)
    if not isinstance(kind, StructType):
        return None
    names = [name.lower() for name in kind.names]
    return next(
        (name for name in names if names.count(name) > 1),
        next((twice for field in kind if (twice := named_twice(field.dataType))), None),
    )
