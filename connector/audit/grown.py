"""Rows of a table that has yet to get a column which the pipeline file declares: none of its rows has a value there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField


def as_declared(rows: DataFrame, wanted: Iterable[StructField]) -> DataFrame:
    """The rows with all ``wanted`` columns and fields, null where the table lacks them, and as wide as they are wanted.

    A row whose record has a value there then differs from its record, as it has to.
    """
    from pyspark.sql import functions as F

    there = {field.name.lower(): field for field in rows.schema}
    columns = {}
    for part in wanted:
        mine = there.get(part.name.lower())
        if mine is None:
            columns[part.name] = F.lit(None).cast(part.dataType)
        elif mine.dataType != part.dataType:
            columns[mine.name] = _grown(F.col(identifier(mine.name)), mine.dataType, part.dataType)
    return rows.withColumns(columns) if columns else rows


def _grown(value: Column, there: DataType, wanted: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(there, StructType) and isinstance(wanted, StructType):
        known = {field.name.lower(): field for field in there}
        if known.keys() - {field.name.lower() for field in wanted}:
            return value  # the table has more than the file says
        fields = []
        for field in wanted:
            mine = known.get(field.name.lower())
            inner = F.lit(None).cast(field.dataType)
            if mine is not None:
                inner = _grown(value.getField(mine.name), mine.dataType, field.dataType)
            fields.append(inner.alias(field.name))
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(there, ArrayType) and isinstance(wanted, ArrayType):
        of, to = there.elementType, wanted.elementType
        return value if of == to else F.transform(value, lambda each: _grown(each, of, to))
    if isinstance(there, MapType) and isinstance(wanted, MapType):
        of, to = there.valueType, wanted.valueType
        return value if of == to else F.transform_values(value, lambda _, each: _grown(each, of, to))
    return value.cast(wanted) if _fits(there, wanted) else value


def _fits(narrow: DataType, wide: DataType) -> bool:
    """Whether every value of a number's type is one of another type."""
    from pyspark.sql.types import DecimalType

    if isinstance(narrow, DecimalType) and isinstance(wide, DecimalType):
        more = wide.scale - narrow.scale
        return 0 <= more <= wide.precision - narrow.precision
    order = ("tinyint", "smallint", "int", "bigint") if narrow.typeName() != "float" else ("float", "double")
    names = narrow.simpleString(), wide.simpleString()
    return all(name in order for name in names) and order.index(names[0]) < order.index(names[1])
