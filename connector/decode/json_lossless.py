"""The types as which JSON is parsed, so that nothing is lost silently.

``from_json`` rounds decimals, cuts timestamps after microseconds, takes a number for seconds and ``10:00`` for a time
of today, and turns too large a number into infinity. Such values are parsed as a wider type, and checked. What a number
has lost before Spark gives it a type is found in its text: see ``json_numbers``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from connector.decode import json_decimals as decimals
from connector.decode import json_numbers as numbers
from connector.decode.json_decimals import Inside, Name
from sinks.spark.sql import identifier, literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, DecimalType

Sql = Callable[[str], str]
SqlOfBoth = Callable[[str, str | None], str]
"""SQL, from the SQL of a value of type ``parsed_as``, and of one of type ``texts_as``. The second is None, or SQL of
null, if the parsed value needs no second look."""

_DAY = r"^[+-]?[0-9]{4,6}-[0-9]{1,2}-[0-9]{1,2}"
DATE = f"{_DAY}$"
"""A text that is a date. Spark's cast drops what follows one."""
_TIMESTAMP = _DAY + r"(?!.*[.][0-9]{6}[0-9]*[1-9])"
"""A pattern for a timestamp with a date, and nothing below a microsecond."""
FLOATING = r"^\s*[+-]?(?:(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity|nan))\s*$"
"""A text that is a number. Java, and so Spark's cast, also takes 12d, 7F and 0x10p1 for one."""


@dataclass(frozen=True)
class Exact:
    """How to parse one type."""

    parsed_as: DataType
    value: SqlOfBoth
    """SQL of the value in the schema's type."""
    sound: SqlOfBoth | None = None
    """SQL that tells whether the value is unchanged, and not null where that is forbidden. None if it always is."""
    decimals: frozenset[tuple[Name, int]] = frozenset()
    """The DECIMALs in it: their field's name, and the number of digits after the point that the parser keeps. It rounds
    all others away. The name is empty if the value is the DECIMAL itself, and has none in an ARRAY or a MAP."""
    texts_as: DataType | None = None
    """The type as which its text is parsed again, with the numbers in quotes. None if it needs no text."""
    doubts: Mapping[str, Sql] = field(default_factory=dict)
    """When its text is needed. See ``json_numbers.Doubt``."""


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
    if isinstance(kind, T.StringType):
        doubt = numbers.doubt_of_string(binary=kind == T.StringType(), permissive=permissive)
        return Exact(kind, _text_or_parsed, texts_as=kind, doubts=dict([doubt]))
    if isinstance(kind, T.DecimalType):
        # As many digits before the point, and all the remaining ones after it.
        wide = T.DecimalType(38, 38 - (kind.precision - kind.scale))
        return _decimal(kind, wide, permissive)
    if isinstance(kind, T.TimestampType):
        return Exact(T.StringType(), *_read_as(kind, _TIMESTAMP))
    if isinstance(kind, T.TimestampNTZType):
        return Exact(T.StringType(), *_read_as(kind, f"{_TIMESTAMP}([T ][0-9:.]*)?$"))
    if isinstance(kind, T.DateType):
        return Exact(T.StringType(), *_read_as(kind, DATE))
    if isinstance(kind, T.FloatType | T.DoubleType):
        return _floating(kind, permissive)
    if isinstance(kind, T.ByteType) and not permissive:
        # The parser turns 128 into -128.
        return Exact(T.ShortType(), *_narrowed(kind, T.ShortType()))
    if permissive and isinstance(kind, T.IntegralType):
        return _decimal(kind, T.DecimalType(38, 15), permissive)
    if permissive and isinstance(kind, T.BooleanType):
        return Exact(T.StringType(), *_read_as(kind, "^(?i:true|false)$"))
    if kind.typeName() == "variant":  # Spark 4's
        return Exact(
            kind,
            lambda parsed, _: parsed,
            lambda _, text: f"coalesce({numbers.fit_variant(text)}, true)" if text else "true",
            texts_as=T.StringType(),
            doubts=dict([numbers.doubt_of_variant(permissive=permissive)]),
        )
    return Exact(kind, lambda parsed, _: parsed)


def _text_or_parsed(parsed: str, text: str | None) -> str:
    return f"coalesce({numbers.without_marks(text)}, {parsed})" if text else parsed


def _decimal(kind: DataType, wide: DecimalType, permissive: bool) -> Exact:
    """A number that is parsed as ``wide``. A string that is a number counts, as JSON writes numbers."""
    from pyspark.sql.types import StringType

    value, narrowed = _narrowed(kind, wide)

    def sound(parsed: str, text: str | None) -> str:
        if text is None:
            return narrowed(parsed, None)
        written = decimals.is_number(numbers.without_marks(text), wide.scale)
        return f"({narrowed(parsed, None)} AND coalesce({written}, true))"

    doubt = decimals.may_be_no_number(numbers.TEXT, wide.scale, permissive=permissive)
    return Exact(
        wide,
        value,
        sound,
        frozenset({("", wide.scale)}),
        StringType(),
        {doubt: lambda parsed: f"{parsed} IS NOT NULL"},
    )


def _narrowed(kind: DataType, wide: DataType) -> tuple[SqlOfBoth, SqlOfBoth]:
    def value(parsed: str, _: str | None = None) -> str:
        return f"try_cast({parsed} AS {sql_type(kind)})"

    return value, lambda parsed, _: f"CAST({value(parsed)} AS {sql_type(wide)}) <=> {parsed}"


def _read_as(kind: DataType, pattern: str) -> tuple[SqlOfBoth, SqlOfBoth]:
    def value(parsed: str, _: str | None = None) -> str:
        return f"try_cast({parsed} AS {sql_type(kind)})"

    def sound(parsed: str, _: str | None = None) -> str:
        return f"({parsed} IS NULL OR {parsed} RLIKE {literal(pattern)} AND {value(parsed)} IS NOT NULL)"

    return value, sound


def _floating(kind: DataType, permissive: bool) -> Exact:
    """An infinite value was too large a number, unless it was written as infinity. A zero may have been too small."""
    from pyspark.sql.types import StringType

    def finite(value: str) -> str:
        return f"(abs({value}) = 'Infinity') IS NOT TRUE"

    if not permissive:

        def sound(parsed: str, text: str | None) -> str:
            return f"({finite(parsed)} AND {numbers.became_zero(parsed, text)} IS NOT TRUE)" if text else finite(parsed)

        return Exact(
            kind,
            lambda parsed, _: parsed,
            sound,
            texts_as=StringType(),
            doubts=dict([numbers.doubt_of_floating(lambda parsed: parsed)]),
        )

    def value(parsed: str, text: str | None = None) -> str:
        return f"try_cast({_text_or_parsed(parsed, text)} AS {sql_type(kind)})"

    _, readable = _read_as(kind, FLOATING)
    named = literal("^[+-]?(?i:inf|infinity)$")
    return Exact(
        StringType(),
        value,
        lambda parsed, text: (
            f"({readable(parsed, text)} AND ({finite(value(parsed))} OR {parsed} RLIKE {named}) "
            f"AND {numbers.became_zero(value(parsed), _text_or_parsed(parsed, text))} IS NOT TRUE)"
        ),
        texts_as=StringType(),
        doubts=dict([numbers.doubt_of_floating(value)]),
    )


def _struct(kind: DataType, permissive: bool, depth: int) -> Exact:
    from pyspark.sql.types import StructField, StructType

    assert isinstance(kind, StructType)
    fields = {each.name: exact(each.dataType, permissive=permissive, depth=depth) for each in kind}
    parsed_as = StructType([StructField(name, each.parsed_as) for name, each in fields.items()])
    texts = [StructField(name, each.texts_as) for name, each in fields.items() if each.texts_as is not None]
    required = [each.name for each in kind if not each.nullable]
    same = all(_same(fields[each.name].parsed_as, each.dataType) for each in kind)

    def of(name: str, parsed: str, text: str | None) -> tuple[str, str | None]:
        has_text = text is not None and fields[name].texts_as is not None
        return f"{parsed}.{identifier(name)}", f"{text}.{identifier(name)}" if has_text else None

    def value(parsed: str, text: str | None) -> str:
        if same and text is None:
            return parsed
        made = ", ".join(f"{literal(name)}, {each.value(*of(name, parsed, text))}" for name, each in fields.items())
        return f"CASE WHEN {parsed} IS NOT NULL THEN named_struct({made}) END"

    def sound(parsed: str, text: str | None) -> str:
        checks = [f"{parsed}.{identifier(name)} IS NOT NULL" for name in required]
        checks += [each.sound(*of(name, parsed, text)) for name, each in fields.items() if each.sound is not None]
        return f"({parsed} IS NULL OR {' AND '.join(checks)})"

    def doubt(of_text: str) -> Sql:
        asked = {name: each.doubts[of_text] for name, each in fields.items() if of_text in each.doubts}
        return lambda parsed: " OR ".join(each(f"{parsed}.{identifier(name)}") for name, each in asked.items())

    checked = required or any(each.sound for each in fields.values())
    decimals = {
        (field if name == "" else name, digits) for field, each in fields.items() for name, digits in each.decimals
    }
    return Exact(
        parsed_as,
        value,
        sound if checked else None,
        frozenset(decimals),
        StructType(texts) if texts else None,
        {of_text: doubt(of_text) for each in fields.values() for of_text in each.doubts},
    )


def _array(kind: DataType, permissive: bool, depth: int) -> Exact:
    from pyspark.sql.types import ArrayType

    assert isinstance(kind, ArrayType)
    each = exact(kind.elementType, permissive=permissive, depth=depth + 1)
    named = _inside(each.decimals, Inside.ARRAY)
    item, text_of = f"each{depth}", f"text{depth}"
    element = each.sound
    same = _same(each.parsed_as, kind.elementType)

    def value(parsed: str, text: str | None) -> str:
        usual = parsed if same else f"transform({parsed}, {item} -> {each.value(item, None)})"
        both = f"zip_with({parsed}, {text}, ({item}, {text_of}) -> {each.value(item, text_of)})"
        return usual if text is None else f"coalesce({both}, {usual})"

    def sound(parsed: str, text: str | None) -> str:
        assert element is not None
        usual = f"{parsed} IS NULL OR forall({parsed}, {item} -> {element(item, None)})"
        both = f"forall(zip_with({parsed}, {text}, ({item}, {text_of}) -> {element(item, text_of)}), sound -> sound)"
        return f"({usual})" if text is None else f"CASE WHEN {text} IS NULL THEN {usual} ELSE {both} END"

    return Exact(
        ArrayType(each.parsed_as),
        value,
        sound if element else None,
        named,
        ArrayType(each.texts_as) if each.texts_as is not None else None,
        _in_any(each.doubts, item, "{0}"),
    )


def _map(kind: DataType, permissive: bool, depth: int) -> Exact:
    """JSON allows a duplicate name. A MAP doesn't, so the value is a problem."""
    from pyspark.sql.types import MapType

    assert isinstance(kind, MapType)
    each = exact(kind.valueType, permissive=permissive, depth=depth + 1)
    named = _inside(each.decimals, Inside.MAP)
    name, item, text_of = f"name{depth}", f"each{depth}", f"text{depth}"
    element = each.sound
    same = _same(each.parsed_as, kind.valueType)

    def both(parsed: str, text: str, made: str) -> str:
        return f"map_zip_with({parsed}, {text}, ({name}, {item}, {text_of}) -> {made})"

    def value(parsed: str, text: str | None) -> str:
        usual = parsed if same else f"transform_values({parsed}, ({name}, {item}) -> {each.value(item, None)})"
        return usual if text is None else f"coalesce({both(parsed, text, each.value(item, text_of))}, {usual})"

    def sound(parsed: str, text: str | None) -> str:
        of_all = ""
        if element:
            of_all = f"forall(map_values({parsed}), {item} -> {element(item, None)})"
            if text is not None:
                of_both = f"forall(map_values({both(parsed, text, element(item, text_of))}), sound -> sound)"
                of_all = f"CASE WHEN {text} IS NULL THEN {of_all} ELSE {of_both} END"
            of_all = f" AND {of_all}"
        return f"({parsed} IS NULL OR size(array_distinct(map_keys({parsed}))) = size({parsed}){of_all})"

    return Exact(
        MapType(kind.keyType, each.parsed_as),
        value,
        sound,
        named,
        MapType(kind.keyType, each.texts_as) if each.texts_as is not None else None,
        _in_any(each.doubts, item, "map_values({0})"),
    )


def _in_any(doubts: Mapping[str, Sql], item: str, values: str) -> dict[str, Sql]:
    def of_any(doubt: Sql) -> Sql:
        return lambda parsed: f"exists({values.format(parsed)}, {item} -> {doubt(item)})"

    return {of_text: of_any(doubt) for of_text, doubt in doubts.items()}


def _inside(found: Iterable[tuple[Name, int]], place: Inside) -> frozenset[tuple[Name, int]]:
    return frozenset((name or place, digits) for name, digits in found)


def _same(one: DataType, other: DataType) -> bool:
    """Whether ``from_json`` returns this very type. It drops NOT NULL."""
    return sql_type(one) == sql_type(other)
