"""Reads JSON for the auditor: each number by the text that was sent, so that nothing is rounded on the way.

Spark's parser rounds. So the numbers of a text get quotes and a mark, the parser finds strings, and only then they
become numbers, each of which has to be exact.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from sinks.spark.sql import identifier, let, literal, unlike
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
LENIENT = {
    **dict.fromkeys(
        (
            "allowComments", "allowSingleQuotes", "allowUnquotedFieldNames", "allowNumericLeadingZeros",
            "allowUnquotedControlChars", "allowBackslashEscapingAnyCharacter",
        ),
        "true",
    ),
    "allowNonNumericNumbers": "false",
}  # fmt: skip

_MARK = f"#{secrets.token_hex(8)}#"
_TEXT = r'"(?:\\.|[^\\"])*+"'
_DIGITS = r"-?\d[\d.eE+-]*+"
_NAMES = r"\w$@#*+\x{80}-\x{10ffff}-"
_NEXT_NUMBER = rf"\G((?:[^\d\"-]|{_TEXT})*+)({_DIGITS})(?!\s*+:)"
"""A number before a colon is a name, and no JSON."""
_NEXT_NUMBER_LENIENT = (
    rf"(?s)\G((?:{_TEXT}|'(?:\\.|[^\\'])*+'|//[^\r\n]*+|/\*.*?\*/|[{_NAMES}]++(?=\s*+:)|[^{_NAMES}\"'/]"
    rf"|[{_NAMES}&&[^\d-]][{_NAMES}]*+)*+)({_DIGITS})"
)
_NUMBER = r"-?(?:0|[1-9]\d*+)(?:[.]\d++)?+(?:[eE][+-]?\d++)?+"
_LIKE_A_DECIMAL = r"^[+-]?(?:\d+[.]?\d*|[.]\d+)(?:[eE][+-]?\d{1,3})?$"
"""Larger exponents would take minutes to write out."""
FLOATING = r"^\s*[+-]?(?:\d+[.]?\d*|[.]\d+)(?:[eE][+-]?\d+)?\s*$"
DATE = r"^[+-]?\d{4,6}-\d{1,2}-\d{1,2}$"
_TIME = r"^[+-]?\d{4,6}-\d{1,2}-\d{1,2}(?!.*[.]\d{6}\d*[1-9])"
"""With a date, and nothing below microseconds."""
_WHOLE_NUMBER, _DIGITS_AND_POINT, _FRACTION, _EXPONENT = r"^-?\d+$", r"([\d.]+)", r"[.](\d+)", r"[eE]([+-]?\d+)"


def marked(text: str, *, permissive: bool) -> str:
    """SQL of the JSON text with its numbers as marked strings."""
    pattern = literal(_NEXT_NUMBER_LENIENT if permissive else _NEXT_NUMBER)
    replacement = literal('$1"' + _MARK + '$2"')
    return f"regexp_replace({text}, {pattern}, {replacement})"


def has_only_numbers(text: str, *, permissive: bool) -> str:
    """SQL: whether all marked numbers are numbers of JSON. ``text``: SQL of the marked text."""
    number = _NUMBER.replace("(?:0|[1-9]", "(?:[0-9]") if permissive else _NUMBER
    wrong = literal(_MARK + f'(?!{number}")')
    return f"NOT {text} RLIKE {wrong}"


def read_as(kind: DataType, *, permissive: bool) -> DataType:
    """The type as which Spark reads the marked text. Permissive: anything may stand in quotes."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(part.name, read_as(part.dataType, permissive=permissive)) for part in kind])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(read_as(kind.elementType, permissive=permissive))
    if isinstance(kind, T.MapType):
        return T.MapType(kind.keyType, read_as(kind.valueType, permissive=permissive))
    if isinstance(kind, T.StringType | T.BinaryType) or _is_variant(kind):
        return kind
    return T.StringType() if permissive or isinstance(kind, T.NumericType) else kind


def value(kind: DataType, found: str, *, permissive: bool, depth: int = 0) -> str:
    """SQL of a value from SQL of what was read. Null if ``is_exact`` says no."""
    from pyspark.sql import types as T

    item = f"item{depth}"
    if isinstance(kind, T.StructType):
        fields = ", ".join(
            f"{literal(part.name)}, "
            + value(part.dataType, f"{found}.{identifier(part.name)}", permissive=permissive, depth=depth)
            for part in kind
        )
        return f"IF({found} IS NULL, NULL, named_struct({fields}))"
    if isinstance(kind, T.ArrayType):
        return f"transform({found}, {item} -> {value(kind.elementType, item, permissive=permissive, depth=depth + 1)})"
    if isinstance(kind, T.MapType):
        content = value(kind.valueType, item, permissive=permissive, depth=depth + 1)
        return f"transform_values({found}, (name{depth}, {item}) -> {content})"
    if isinstance(kind, T.StringType):
        return _sent(found)
    if _is_variant(kind):
        return f"parse_json({_sent(f'to_json({found})')})"
    if isinstance(kind, T.NumericType):
        return _number(kind, found, permissive)
    if isinstance(kind, T.BooleanType) and permissive:
        return f"IF({found} RLIKE '^(?i:true|false)$', CAST({found} AS BOOLEAN), NULL)"
    if permissive and not isinstance(kind, T.BinaryType):
        return let("_sent", _sent(found), _time(kind, "_sent"))
    return found


def is_exact(kind: DataType, found: str, *, permissive: bool, rounded: bool = False, depth: int = 0) -> str:
    """SQL: whether a value is as it was sent, and not null where the schema forbids it. True for null.

    ``rounded``: a number is right if its type has a value near it. ``value`` is null all the same.
    """
    from pyspark.sql import types as T

    item = f"item{depth}"
    if isinstance(kind, T.StructType):
        checks = []
        for part in kind:
            inner = f"{found}.{identifier(part.name)}"
            checks.append(is_exact(part.dataType, inner, permissive=permissive, rounded=rounded, depth=depth))
            checks += [] if part.nullable else [f"{inner} IS NOT NULL"]
        return f"({found} IS NULL OR {' AND '.join(checks) or 'true'})"
    if isinstance(kind, T.ArrayType | T.MapType):
        element, items = kind.elementType if isinstance(kind, T.ArrayType) else kind.valueType, found
        if isinstance(kind, T.MapType):
            items = f"map_values({found})"
        exact = is_exact(element, item, permissive=permissive, rounded=rounded, depth=depth + 1)
        return f"({found} IS NULL OR forall({items}, {item} -> {exact}))"
    if (
        isinstance(kind, T.StringType | T.BinaryType)
        or _is_variant(kind)
        or (not permissive and not isinstance(kind, T.NumericType))
    ):
        return "true"
    right = f"{found} IS NULL OR {value(kind, found, permissive=permissive)} IS NOT NULL"
    if rounded and isinstance(kind, T.FractionalType):
        right += f" OR {_sent(found)} RLIKE {literal(_LIKE_A_DECIMAL)}"
    return f"({right})"


def of_text(kind: DataType, text: str) -> str:
    """SQL of the value that a text without quotes stands for, as Kafka's key may be one. Null if it isn't exact."""
    from pyspark.sql import types as T

    if isinstance(kind, T.BinaryType):
        return f"try_cast({text} AS BINARY)"
    # A key with a header, or in Avro, is no text. A cast would leave out what a number can't begin with.
    no_text = r"[\x00-\x08\ufffd]" if isinstance(kind, T.StringType) else r"[\x00-\x08]"
    return f"IF({text} RLIKE {literal(no_text)}, NULL, {_of_plain_text(kind, text)})"


def cast(kind: DataType, wanted: DataType, value: str) -> str | None:
    """SQL of a value that isn't of JSON as another type; null if that one hasn't exactly this value. None: it has no
    value of such a type."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StringType):
        return of_text(wanted, value) if isinstance(wanted, T.AtomicType) else None
    numeric = isinstance(kind, T.NumericType)
    if isinstance(wanted, T.StringType):
        return f"try_cast({value} AS STRING)" if numeric or kind.typeName() in ("boolean", "date") else None
    if not numeric or not isinstance(wanted, T.NumericType):
        return None
    there = f"try_cast({value} AS {sql_type(wanted)})"
    same = f"try_cast({there} AS {sql_type(kind)}) <=> {value}"
    if isinstance(wanted, T.LongType) and isinstance(kind, T.FloatType | T.DoubleType):
        same += f" AND {value} < CAST('{2**63}' AS DOUBLE)"  # which would be cast to one less, and back
    return f"IF({same}, {there}, NULL)"


def _of_plain_text(kind: DataType, text: str) -> str:
    from pyspark.sql import types as T

    if isinstance(kind, T.DecimalType | T.FloatType | T.DoubleType):
        return _number(kind, f"trim({text})", True)
    return _time(kind, text)


def _time(kind: DataType, text: str) -> str:
    """SQL of a text as a date or a time: Spark's cast drops what follows a date. Any other type is cast."""
    from pyspark.sql import types as T

    cast = f"try_cast({text} AS {sql_type(kind)})"
    if not isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType):
        return cast
    return f"IF({text} RLIKE {literal(DATE if isinstance(kind, T.DateType) else _TIME)}, {cast}, NULL)"


def columns_of(kind: StructType, text: str, *, permissive: bool = False) -> str:
    """SQL of a STRUCT of what Spark reads of a JSON text. Null fields for a text that is no JSON."""
    schema = sql_type(read_as(kind, permissive=permissive))
    # As the session may name it, Spark would leave a column of that name empty.
    rules = {**(LENIENT if permissive else STRICT), "columnNameOfCorruptRecord": unlike("malformed", kind.names)}
    options = ", ".join(f"'{name}', {literal(is_on)}" for name, is_on in rules.items())
    return f"from_json({marked(text, permissive=permissive)}, {literal(schema)}, map({options}))"


def _is_variant(kind: DataType) -> bool:
    return kind.typeName() == "variant"  # Spark 4's


def _sent(found: str) -> str:
    """A number's text without its mark, also inside an object; any other text as it is."""
    marks = literal('"?' + _MARK + '([^"]*)"?')
    return f"regexp_replace({found}, {marks}, '$1')"


def _number(kind: DataType, found: str, permissive: bool) -> str:
    is_number = f"startswith({found}, {literal(_MARK)})"
    return let("_sent", _sent(found), _number_of(kind, "_sent", is_number, permissive))


def _number_of(kind: DataType, sent: str, is_number: str, permissive: bool) -> str:
    """``sent``: SQL of the number's text, a name; ``is_number``: whether it stood there without quotes."""
    from pyspark.sql import types as T

    cast = f"try_cast({sent} AS {sql_type(kind)})"
    if isinstance(kind, T.DecimalType):  # a string that is a number is one
        zero = f"{sent} RLIKE '^[+-]?[0.]+([eE]|$)'"
        return f"IF({_fits(sent, kind.scale)}, IF({zero}, CAST(0 AS {sql_type(kind)}), {cast}), NULL)"
    if isinstance(kind, T.FloatType | T.DoubleType):
        named = f"{sent} RLIKE '^[+-]?(?i:inf|infinity|nan)$'" if permissive else "false"
        finite = f"abs({cast}) < DOUBLE('Infinity') AND NOT ({cast} = 0 AND {sent} RLIKE '^[+-]?[0.]*[1-9]')"
        written = "true" if permissive else is_number  # Java takes 12d and 0x10p1, too
        return f"IF({written} AND {sent} RLIKE {literal(FLOATING)} AND {finite} OR {named}, {cast}, NULL)"
    if permissive:
        whole = f"try_cast(try_cast({sent} AS DECIMAL(38,0)) AS {sql_type(kind)})"
        return f"IF({_fits(sent, 0)}, {whole}, NULL)"
    return f"IF({is_number} AND {sent} RLIKE {literal(_WHOLE_NUMBER)}, {cast}, NULL)"


def _fits(number: str, scale: int) -> str:
    """SQL: whether a number has at most so many digits after the point, without zeros at its end."""
    fraction = f"regexp_extract({number}, {literal(_FRACTION)}, 1)"
    digits = f"replace(regexp_extract({number}, {literal(_DIGITS_AND_POINT)}, 1), '.', '')"
    stripped = "trim(TRAILING '0' FROM _digits)"
    zeros = f"(length(_digits) - length({stripped}))"
    exponent = f"coalesce(try_cast(regexp_extract({number}, {literal(_EXPONENT)}, 1) AS INT), 0)"
    is_decimal = f"{number} RLIKE {literal(_LIKE_A_DECIMAL)}"
    few = f"({stripped} = '' OR length({fraction}) - {exponent} - {zeros} <= {scale})"
    return f"({is_decimal} AND {let('_digits', digits, few)})"
