"""What the records and the table both have: columns and fields of the same names, at any depth, as wide as they need.

A table may have more than the records, its fields in another order, and narrower or wider numbers: what a run takes, an
audit has to take too. What only one of them has isn't compared, and is named. But where a run would have added a field
that the table lacks, with the first record that has a value there, the field counts as null in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sinks.spark.sql import identifier, literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

_WHOLE, _FLOATING = ("tinyint", "smallint", "int", "bigint"), ("float", "double")


@dataclass
class InBoth:
    """The ``columns`` that both have, and the others by their path, as ``address.zip``."""

    adds: bool
    """Whether a run adds what the table lacks: then the ``columns`` have that too."""
    columns: list[StructField] = field(default_factory=list)
    only_made: list[str] = field(default_factory=list)
    only_there: list[str] = field(default_factory=list)
    other_types: list[str] = field(default_factory=list)
    """Sentences without an end."""


def in_both(
    made: Sequence[StructField], there: StructType, known: Collection[str] = (), *, adds: bool = False
) -> InBoth:
    """``made``: the columns of the records. ``there``: those of the table. ``known``: names of the table's columns, in
    lower case, that no record is compared with. ``adds``: whether a run adds what the table lacks."""
    found = InBoth(adds)
    found.columns = _fields(made, there.fields, "", found, known)
    return found


def as_in(columns: StructType, frame: DataFrame) -> Callable[[str], Column]:
    """Gives the column of this name in ``frame``, with the fields and the type that it has in ``columns``. A field that
    the frame lacks is null."""
    from pyspark.sql import functions as F

    own = {part.name.lower(): part for part in frame.schema}

    def column(name: str) -> Column:
        part, wanted = own.get(name.lower()), columns[name].dataType
        return F.expr(brought(identifier(part.name), part.dataType, wanted) if part is not None else null(wanted))

    return column


def _fields(
    made: Sequence[StructField], there: Sequence[StructField], path: str, found: InBoth, known: Collection[str] = ()
) -> list[StructField]:
    from pyspark.sql.types import StructField

    theirs, fields = {part.name.lower(): part for part in there}, []
    for part in made:
        inner, mine = f"{path}{part.name}", theirs.pop(part.name.lower(), None)
        if mine is None:
            found.only_made.append(inner)
            if found.adds:
                fields.append(part)
        elif (kind := _kind(part.dataType, mine.dataType, inner, found)) is not None:
            fields.append(StructField(part.name, kind))
    found.only_there += [f"{path}{part.name}" for name, part in theirs.items() if name not in known]
    return fields


def _kind(made: DataType, there: DataType, path: str, found: InBoth) -> DataType | None:
    """The type of what both have. None: they have nothing in common."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(made, StructType) and isinstance(there, StructType):
        fields = _fields(made.fields, there.fields, f"{path}.", found)
        return StructType(fields) if fields else None
    if isinstance(made, ArrayType) and isinstance(there, ArrayType):
        element = _kind(made.elementType, there.elementType, f"{path}.element", found)
        return None if element is None else ArrayType(element)
    if isinstance(made, MapType) and isinstance(there, MapType) and _same(made.keyType, there.keyType):
        value = _kind(made.valueType, there.valueType, f"{path}.value", found)
        return None if value is None else MapType(made.keyType, value)
    kind = made if _same(made, there) else wider(made, there)
    if kind is None:
        found.other_types.append(f"column {path} is {sql_type(there)} in the table, {sql_type(made)} in the pipeline")
    return kind


def _same(one: DataType, other: DataType) -> bool:
    return sql_type(one).lower() == sql_type(other).lower()


def wider(made: DataType, there: DataType) -> DataType | None:
    """The one of two types of numbers in which every value of the other is the same value. None: neither is.

    A FLOAT of the table isn't the DOUBLE that a record's digits make, so these are compared as FLOAT.
    """
    if _fits(made, there):
        return there
    if _fits(there, made):
        return there if there.typeName() == "float" else made
    return None


def _fits(narrow: DataType, wide: DataType) -> bool:
    """Whether every value of a number's type is one of another type."""
    from pyspark.sql.types import DecimalType

    if isinstance(narrow, DecimalType) and isinstance(wide, DecimalType):
        more = wide.scale - narrow.scale
        return 0 <= more <= wide.precision - narrow.precision
    order = _WHOLE if narrow.typeName() != "float" else _FLOATING
    names = narrow.simpleString(), wide.simpleString()
    return all(name in order for name in names) and order.index(names[0]) < order.index(names[1])


def brought(value: str, kind: DataType, wanted: DataType, depth: int = 0) -> str:
    """SQL of ``value``, whose type is ``kind``, with the fields and the numbers of the type ``wanted``."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if sql_type(kind) == sql_type(wanted):
        return value
    each = f"each{depth}"
    if isinstance(kind, StructType) and isinstance(wanted, StructType):
        own = {part.name.lower(): part for part in kind}
        pairs = []
        for part in wanted:
            mine, inner = own.get(part.name.lower()), null(part.dataType)
            if mine is not None:
                inner = brought(f"{value}.{identifier(mine.name)}", mine.dataType, part.dataType, depth)
            pairs.append(f"{literal(part.name)}, {inner}")
        return f"CASE WHEN {value} IS NOT NULL THEN named_struct({', '.join(pairs)}) END"
    if isinstance(kind, ArrayType) and isinstance(wanted, ArrayType):
        return f"transform({value}, {each} -> {brought(each, kind.elementType, wanted.elementType, depth + 1)})"
    if isinstance(kind, MapType) and isinstance(wanted, MapType):
        inner = brought(each, kind.valueType, wanted.valueType, depth + 1)
        return f"transform_values({value}, (key{depth}, {each}) -> {inner})"
    return f"CAST({value} AS {sql_type(wanted)})"


def in_the_order_of(columns: StructType, rows: DataFrame, names: Collection[str]) -> DataFrame:
    """The rows, whose columns of these ``names`` have the fields of their STRUCTs in the order of ``columns``. One that
    differs in more stays as it is."""
    from pyspark.sql import functions as F

    there = {part.name.lower(): part for part in rows.schema}
    changed = {}
    for part in columns:
        mine = there.get(part.name.lower())
        if mine is None or part.name not in names or _same(mine.dataType, part.dataType):
            continue
        if _in_any_order(mine.dataType) == _in_any_order(part.dataType):
            changed[mine.name] = F.expr(brought(identifier(mine.name), mine.dataType, part.dataType))
    return rows.withColumns(changed) if changed else rows


def _in_any_order(kind: DataType) -> str:
    """The same text for types that differ only in the order of fields and the case of their names."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(sorted(f'{part.name.lower()}: {_in_any_order(part.dataType)}' for part in kind))}>"
    return f"ARRAY<{_in_any_order(kind.elementType)}>" if isinstance(kind, ArrayType) else sql_type(kind).lower()


def null(kind: DataType) -> str:
    """SQL of a null of this type."""
    return f"CAST(NULL AS {sql_type(kind)})"
