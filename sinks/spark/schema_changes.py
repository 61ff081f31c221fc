"""Differences between the columns of a table and those of an epoch's rows, and which of them lose nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from sinks.spark.sql import identifier, literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

OnNewColumn: TypeAlias = Literal["add", "ignore", "fail"]

_WHOLE = ("tinyint", "smallint", "int", "bigint")


@dataclass
class Differences:
    """The differences of rows from a table, by the path of the column, as ``address.zip``.

    Order and case of names make no difference, nor do columns that the rows lack: these stay null.
    """

    new: dict[str, str] = field(default_factory=dict)
    """Column that the table lacks -> its type."""
    wider: dict[str, str] = field(default_factory=dict)
    """Column whose type in the table is narrower and fits into the rows' type -> both types."""
    rounded: list[str] = field(default_factory=list)
    """Those of ``wider`` whose numbers are rounded to another place by now: FLOAT that has become DOUBLE."""
    narrower: dict[str, str] = field(default_factory=dict)
    """Column whose type in the rows is narrower and fits into the table's type -> both types."""
    others: dict[str, str] = field(default_factory=dict)


def differences(table: StructType, rows: StructType) -> Differences:
    """Compare the rows' columns with the table's."""
    found = Differences()
    _compare(table, rows, "", found)
    return found


def _compare(table: DataType, rows: DataType, path: str, found: Differences) -> None:
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, MapType, StructType

    if isinstance(table, StructType) and isinstance(rows, StructType):
        there = {each.name.lower(): each.dataType for each in table}
        for each in rows:
            inner = f"{path}.{each.name}" if path else each.name
            kind = there.get(each.name.lower())
            if kind is None:
                found.new[inner] = sql_type(each.dataType)
            else:
                _compare(kind, each.dataType, inner, found)
    elif isinstance(table, ArrayType) and isinstance(rows, ArrayType):
        _compare(table.elementType, rows.elementType, f"{path}.element", found)
    elif isinstance(table, MapType) and isinstance(rows, MapType) and sql_type(table.keyType) == sql_type(rows.keyType):
        _compare(table.valueType, rows.valueType, f"{path}.value", found)
    elif sql_type(table).lower() != sql_type(rows).lower():
        group = found.wider if _holds(rows, table) else found.narrower if _holds(table, rows) else found.others
        group[path] = f"is {sql_type(table)} in the table, {sql_type(rows)} in the pipeline"
        if isinstance(table, FloatType) and isinstance(rows, DoubleType):
            found.rounded.append(path)


def _holds(wide: DataType, narrow: DataType) -> bool:
    """Whether every value of the type ``narrow`` is one of ``wide``, as in Delta's type widening."""
    from pyspark.sql.types import DecimalType

    if isinstance(wide, DecimalType) and isinstance(narrow, DecimalType):
        whole = wide.precision - wide.scale >= narrow.precision - narrow.scale
        return whole and wide.scale >= narrow.scale
    one, other = wide.simpleString(), narrow.simpleString()
    if one in _WHOLE and other in _WHOLE:
        return _WHOLE.index(one) >= _WHOLE.index(other)
    return (one, other) == ("double", "float")


def by_name(value: str, kind: DataType, wanted: DataType, depth: int = 0) -> str:
    """SQL of ``value``, whose type is ``kind``, with the fields of ``wanted`` in their order: null where ``kind`` lacks
    one. A number that is wider stays so. CAST goes by the order of fields, whatever their names are."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if sql_type(kind) == sql_type(wanted):
        return value
    item = f"each{depth}"
    if isinstance(kind, StructType) and isinstance(wanted, StructType):
        there = {each.name.lower(): each for each in kind}
        pairs = []
        for each in wanted:
            sql, mine = f"CAST(NULL AS {sql_type(each.dataType)})", there.get(each.name.lower())
            if mine is not None:
                sql = by_name(f"{value}.{identifier(mine.name)}", mine.dataType, each.dataType, depth)
            pairs.append(f"{literal(each.name)}, {sql}")
        return f"CASE WHEN {value} IS NOT NULL THEN named_struct({', '.join(pairs)}) END"
    if isinstance(kind, ArrayType) and isinstance(wanted, ArrayType):
        return f"transform({value}, {item} -> {by_name(item, kind.elementType, wanted.elementType, depth + 1)})"
    if isinstance(kind, MapType) and isinstance(wanted, MapType):
        of = by_name(item, kind.valueType, wanted.valueType, depth + 1)
        return f"transform_values({value}, (name{depth}, {item}) -> {of})"
    return value if _holds(kind, wanted) else f"CAST({value} AS {sql_type(wanted)})"


def united(table: DataType, rows: DataType) -> DataType:
    """The type of both: the fields of ``table``, behind them those that only ``rows`` has; of two numbers the wider."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(table, StructType) and isinstance(rows, StructType):
        brought = {each.name.lower(): each for each in rows}
        mine = [
            StructField(each.name, united(each.dataType, other.dataType) if other is not None else each.dataType)
            for each in table
            for other in (brought.pop(each.name.lower(), None),)
        ]
        return StructType([*mine, *(StructField(each.name, each.dataType) for each in brought.values())])
    if isinstance(table, ArrayType) and isinstance(rows, ArrayType):
        return ArrayType(united(table.elementType, rows.elementType))
    if isinstance(table, MapType) and isinstance(rows, MapType):
        return MapType(table.keyType, united(table.valueType, rows.valueType))
    return rows if _holds(rows, table) else table


def narrowed(value: str, rows: DataType, table: DataType, depth: int = 0) -> str:
    """SQL of ``value``, whose type is ``rows``, without the nested fields that ``table`` lacks."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(table, StructType) and isinstance(rows, StructType):
        there = {each.name.lower(): each.dataType for each in table}
        if not _lacks(table, rows):
            return value
        fields = {
            each.name: narrowed(f"{value}.{identifier(each.name)}", each.dataType, there[each.name.lower()], depth)
            for each in rows
            if each.name.lower() in there
        }
        if not fields:  # no table takes a struct without fields
            fields = {each.name: f"CAST(NULL AS {sql_type(each.dataType)})" for each in table}
        pairs = ", ".join(f"{literal(name)}, {sql}" for name, sql in fields.items())
        return f"CASE WHEN {value} IS NOT NULL THEN named_struct({pairs}) END"
    item = f"item{depth}"
    if isinstance(table, ArrayType) and isinstance(rows, ArrayType) and _lacks(table.elementType, rows.elementType):
        return f"transform({value}, {item} -> {narrowed(item, rows.elementType, table.elementType, depth + 1)})"
    if isinstance(table, MapType) and isinstance(rows, MapType) and _lacks(table.valueType, rows.valueType):
        of = narrowed(item, rows.valueType, table.valueType, depth + 1)
        return f"transform_values({value}, (name{depth}, {item}) -> {of})"
    return value


def _lacks(table: DataType, rows: DataType) -> bool:
    found = Differences()
    _compare(table, rows, "", found)
    return bool(found.new)
