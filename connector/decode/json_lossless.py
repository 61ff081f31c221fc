"""The types as which JSON is parsed, so that nothing is lost silently.

``from_json`` rounds decimals, cuts timestamps after microseconds, takes a number for seconds and ``10:00`` for a time
of today, and turns too large a number into infinity. Such values are parsed as a wider type, and checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinks.spark.sql import identifier, literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

Sql = Callable[[str], str]

_DATE = r"^[+-]?[0-9]{4,6}-[0-9]{1,2}-[0-9]{1,2}"
_TIMESTAMP = _DATE + r"(?!.*[.][0-9]{6}[0-9]*[1-9])"
"""A pattern for a timestamp with a date, and nothing below a microsecond."""


@dataclass(frozen=True)
class Exact:
    """How to parse one type. Both functions take the SQL of a value of type ``parsed_as``."""

    parsed_as: DataType
    value: Sql
    """SQL of the value in the schema's type."""
    sound: Sql | None = None
    """SQL that tells whether the value is unchanged, and not null where that is forbidden. None if it always is."""
    decimals: frozenset[tuple[str | None, int]] = frozenset()
    """The DECIMALs in it: their field's name, and the number of digits after the point that the parser keeps. It rounds
    all others away. The name is empty if the value is the DECIMAL itself, and None in an ARRAY or a MAP."""


def unreadable(kind: DataType) -> DataType | None:
    """The first MAP in a type whose keys aren't STRING. JSON's names are text, and Spark reads no other keys from it.
    None: JSON can hold values of this type."""
    from pyspark.sql import types as T

    if isinstance(kind, T.MapType) and not isinstance(kind.keyType, T.StringType):
        return kind
    inner: list[DataType] = []
    if isinstance(kind, T.StructType):
        inner = [each.dataType for each in kind]
    elif isinstance(kind, T.ArrayType):
        inner = [kind.elementType]
    elif isinstance(kind, T.MapType):
        inner = [kind.valueType]
    return next((found for each in inner if (found := unreadable(each)) is not None), None)


def exact(kind: DataType, *, permissive: bool = False, depth: int = 0) -> Exact:
    """How to parse values of type ``kind``. ``depth`` is the number of enclosing arrays and maps."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return _struct(kind, permissive, depth)
    if isinstance(kind, T.ArrayType):
        return _array(kind, permissive, depth)
    if isinstance(kind, T.MapType):
        return _map(kind, permissive, depth)
    if isinstance(kind, T.DecimalType):
        # As many digits before the point, and all the remaining ones after it.
        wide = T.DecimalType(38, 38 - (kind.precision - kind.scale))
        return Exact(wide, *_narrowed(kind, wide), frozenset({("", wide.scale)}))
    if isinstance(kind, T.TimestampType):
        return Exact(T.StringType(), *_read_as(kind, _TIMESTAMP))
    if isinstance(kind, T.TimestampNTZType):
        return Exact(T.StringType(), *_read_as(kind, f"{_TIMESTAMP}([T ][0-9:.]*)?$"))
    if isinstance(kind, T.DateType):
        return Exact(T.StringType(), *_read_as(kind, _DATE if permissive else f"{_DATE}$"))
    if isinstance(kind, T.FloatType | T.DoubleType):
        return _floating(kind, permissive)
    if isinstance(kind, T.ByteType) and not permissive:
        # The parser turns 128 into -128.
        return Exact(T.ShortType(), *_narrowed(kind, T.ShortType()))
    if permissive and isinstance(kind, T.IntegralType):
        wide = T.DecimalType(38, 15)
        return Exact(wide, *_narrowed(kind, wide), frozenset({("", wide.scale)}))
    if permissive and isinstance(kind, T.BooleanType):
        return Exact(T.StringType(), *_read_as(kind, "^(?i:true|false)$"))
    return Exact(kind, lambda sql: sql)


def _narrowed(kind: DataType, wide: DataType) -> tuple[Sql, Sql]:
    def value(sql: str) -> str:
        return f"try_cast({sql} AS {sql_type(kind)})"

    return value, lambda sql: f"CAST({value(sql)} AS {sql_type(wide)}) <=> {sql}"


def _read_as(kind: DataType, pattern: str) -> tuple[Sql, Sql]:
    def value(sql: str) -> str:
        return f"try_cast({sql} AS {sql_type(kind)})"

    return value, lambda sql: f"({sql} IS NULL OR {sql} RLIKE {literal(pattern)} AND {value(sql)} IS NOT NULL)"


def _floating(kind: DataType, permissive: bool) -> Exact:
    """An infinite value was too large a number, unless it was written as infinity."""
    from pyspark.sql.types import StringType

    def finite(sql: str) -> str:
        return f"(abs({sql}) = 'Infinity') IS NOT TRUE"

    if not permissive:
        return Exact(kind, lambda sql: sql, finite)
    value, sound = _read_as(kind, "^.")
    named = literal("^[+-]?(?i:inf|infinity)$")
    return Exact(StringType(), value, lambda sql: f"{sound(sql)} AND ({finite(value(sql))} OR {sql} RLIKE {named})")


def _struct(kind: DataType, permissive: bool, depth: int) -> Exact:
    from pyspark.sql.types import StructField, StructType

    assert isinstance(kind, StructType)
    fields = {each.name: exact(each.dataType, permissive=permissive, depth=depth) for each in kind}
    parsed_as = StructType([StructField(name, each.parsed_as) for name, each in fields.items()])
    required = [each.name for each in kind if not each.nullable]
    same = all(_same(fields[each.name].parsed_as, each.dataType) for each in kind)

    def value(sql: str) -> str:
        if same:
            return sql
        made = ", ".join(f"{literal(name)}, {each.value(f'{sql}.{identifier(name)}')}" for name, each in fields.items())
        return f"CASE WHEN {sql} IS NOT NULL THEN named_struct({made}) END"

    def sound(sql: str) -> str:
        checks = [f"{sql}.{identifier(name)} IS NOT NULL" for name in required]
        checks += [each.sound(f"{sql}.{identifier(name)}") for name, each in fields.items() if each.sound is not None]
        return f"({sql} IS NULL OR {' AND '.join(checks)})"

    checked = required or any(each.sound for each in fields.values())
    decimals = {
        (field if name == "" else name, digits) for field, each in fields.items() for name, digits in each.decimals
    }
    return Exact(parsed_as, value, sound if checked else None, frozenset(decimals))


def _array(kind: DataType, permissive: bool, depth: int) -> Exact:
    from pyspark.sql.types import ArrayType

    assert isinstance(kind, ArrayType)
    each, name = exact(kind.elementType, permissive=permissive, depth=depth + 1), f"each{depth}"
    element = each.sound
    return Exact(
        ArrayType(each.parsed_as),
        lambda sql: (
            sql if _same(each.parsed_as, kind.elementType) else f"transform({sql}, {name} -> {each.value(name)})"
        ),
        (lambda sql: f"({sql} IS NULL OR forall({sql}, {name} -> {element(name)}))") if element else None,
        _nameless(each.decimals),
    )


def _map(kind: DataType, permissive: bool, depth: int) -> Exact:
    """JSON allows a duplicate name. A MAP doesn't, so the value is a problem."""
    from pyspark.sql.types import MapType

    assert isinstance(kind, MapType)
    each, name = exact(kind.valueType, permissive=permissive, depth=depth + 1), f"each{depth}"
    element = each.sound

    def sound(sql: str) -> str:
        of_all = f" AND forall(map_values({sql}), {name} -> {element(name)})" if element else ""
        return f"({sql} IS NULL OR size(array_distinct(map_keys({sql}))) = size({sql}){of_all})"

    return Exact(
        MapType(kind.keyType, each.parsed_as),
        lambda sql: (
            sql
            if _same(each.parsed_as, kind.valueType)
            else f"transform_values({sql}, (name{depth}, {name}) -> {each.value(name)})"
        ),
        sound,
        _nameless(each.decimals),
    )


def _nameless(decimals: Iterable[tuple[str | None, int]]) -> frozenset[tuple[str | None, int]]:
    return frozenset((name or None, digits) for name, digits in decimals)


def _same(one: DataType, other: DataType) -> bool:
    """Whether ``from_json`` returns this very type. It drops NOT NULL."""
    return sql_type(one) == sql_type(other)
