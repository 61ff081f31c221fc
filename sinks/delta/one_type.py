"""Rows and a table, whose nested columns become of one type.

Delta's MERGE assigns the fields of a STRUCT by name. But a CASE over both sides, as a rule for single values needs it,
takes two STRUCTs only if they have the same fields in the same order. So does each comparison, as of keys.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sinks.delta.table import DeltaTable
from sinks.spark.schema_changes import by_name, united
from sinks.spark.sql import identifier
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField, StructType


def as_in(table: StructType, rows: StructType, but: Container[str], *, grows: bool) -> Mapping[str, str]:
    """Column of the rows -> SQL of its value with the fields in the table's order, and null where it lacks one. Only
    columns whose type that changes.

    ``but``: columns that stay as they are. ``grows``: fields that the table lacks come behind its own; else they are
    left out.
    """
    values = {}
    for field, kind in _nested_in_both(table, rows, but):
        wanted = united(kind, field.dataType) if grows else kind
        if sql_type(wanted) != sql_type(field.dataType):
            values[field.name] = by_name(identifier(field.name), field.dataType, wanted)
    return values


def alike(table: DeltaTable, rows: DataFrame, but: Container[str], *, grows: bool) -> DataFrame:
    """The rows with nested columns as the table has them. ``but``, ``grows``: as in ``as_in``."""
    if not are_nested(rows.schema, but):
        return rows  # to ask for the table's schema takes Spark a while
    values = as_in(table.schema, rows.schema, but, grows=grows)
    return rows.selectExpr(*selected(rows.columns, values)) if values else rows


def keyed(table: DeltaTable, rows: DataFrame, key: Sequence[str], *, grows: bool = False) -> DataFrame:
    """The rows, with the fields of a nested key in the table's order. Whatever compares them with the table's rows, or
    keeps their keys, goes by these rows. ``grows``: as in ``as_in``."""
    return alike(table, rows, beside(key, rows.schema), grows=grows)


def beside(key: Sequence[str], schema: StructType) -> list[str]:
    """The columns that aren't of the key. Spark takes names in any case."""
    own = {name.lower() for name in key}
    return [name for name in schema.names if name.lower() not in own]


def selected(columns: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """What a SELECT names: the columns, and for some of them SQL of a value."""
    names = {name: identifier(name) for name in columns}
    return [f"{values[name]} AS {own}" if name in values else own for name, own in names.items()]


def stored_as_in(table: StructType, rows: StructType, but: Container[str]) -> Mapping[str, str]:
    """Column of the rows -> SQL of the value that the table's row ``t`` has for it, of the type that ``as_in`` gives it
    if the table grows. Only columns to whose type that adds fields."""
    stored = {}
    for field, kind in _nested_in_both(table, rows, but):
        wanted = united(kind, field.dataType)
        if sql_type(wanted) != sql_type(kind):
            stored[field.name] = by_name(f"t.{identifier(field.name)}", kind, wanted)
    return stored


def are_nested(rows: StructType, but: Container[str]) -> bool:
    """Whether any of the columns has fields, elements or entries, of which ``as_in`` may change the type."""
    return any(isinstance(field.dataType, _nested()) for field in rows if field.name not in but)


def _nested() -> tuple[type[DataType], ...]:
    from pyspark.sql.types import ArrayType, MapType, StructType

    return StructType, ArrayType, MapType


def _nested_in_both(table: StructType, rows: StructType, but: Container[str]) -> Iterator[tuple[StructField, DataType]]:
    """Columns of the rows, and their type in the table."""
    nested = _nested()
    there = {field.name.lower(): field.dataType for field in table}
    for field in rows:
        kind = there.get(field.name.lower())
        if field.name not in but and isinstance(kind, nested) and isinstance(field.dataType, nested):
            yield field, kind
