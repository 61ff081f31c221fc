"""Puts values of rows and records into a form that Spark can compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.audit.in_both import as_in

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


def comparable_values(columns: StructType, frame: DataFrame) -> Column:
    """A struct of all these columns and the timestamp, under names of our own."""
    from pyspark.sql import functions as F

    column = as_in(columns, frame)
    return F.struct(
        *(_comparable(column(part.name), part.dataType).alias(f"v{index}") for index, part in enumerate(columns)),
        F.col("_timestamp").alias("timestamp"),
    )


def _comparable(value: Column, kind: DataType) -> Column:
    """Spark compares structs and arrays deeply, and NaN as equal to NaN, but neither maps nor VARIANTs.

    Maps become sorted arrays of entries. A VARIANT becomes its JSON, which has the names of an object in their order,
    and every digit of a number.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if _compares(kind):
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
    return F.to_json(value)


def _compares(kind: DataType) -> bool:
    """Whether Spark compares values of this type."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, StructType):
        return all(_compares(part.dataType) for part in kind)
    if isinstance(kind, ArrayType):
        return _compares(kind.elementType)
    return kind.typeName() not in ("map", "variant")
