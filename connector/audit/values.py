"""Puts values of rows and records into a form that Spark can compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType


def comparable_values(schema: StructType, field: Callable[[str], Column], timestamp: Column) -> Column:
    """A struct of all value columns and the timestamp, under names of our own. ``field`` gives a column by its name."""
    from pyspark.sql import functions as F

    return F.struct(
        *(_comparable(field(part.name), part.dataType).alias(f"v{index}") for index, part in enumerate(schema)),
        timestamp.alias("timestamp"),
    )


def _comparable(value: Column, kind: DataType) -> Column:
    """Spark compares structs and arrays deeply, and NaN as equal to NaN, but no maps.

    Those become sorted arrays of entries.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if not _has_map(kind):
        return value
    if isinstance(kind, StructType):
        fields = (_comparable(value[part.name], part.dataType).alias(f"v{index}") for index, part in enumerate(kind))
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.transform(value, lambda item: _comparable(item, element))
    if isinstance(kind, MapType):
        of_key, of_value = kind.keyType, kind.valueType

        def entry(item: Column) -> Column:
            return F.struct(
                _comparable(item["key"], of_key).alias("key"), _comparable(item["value"], of_value).alias("value")
            )

        return F.array_sort(F.transform(F.map_entries(value), entry))
    return value


def _has_map(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return any(_has_map(part.dataType) for part in kind)
    return isinstance(kind, MapType) or (isinstance(kind, ArrayType) and _has_map(kind.elementType))
