"""Values as another type: exactly, or null. A cast of Spark's own rounds, and reads a number where there is more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.decode import json_decimals as decimals
from connector.decode.json_lossless import FLOATING, exact
from sinks.spark.sql import literal
from sinks.spark.types import is_utf8, sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_NO_TEXT = "[\\\\x00-\\\\x08]"
"""Characters of binary keys, as Avro's begin with. No text has them."""
_HUGE_EXPONENT = "[eE][+-]?[0-9]{4,}"


def exactly(kind: DataType, wanted: DataType, value: str) -> str | None:
    """SQL of ``value`` as another type, null where that can't hold it exactly. None: no value of the type can be."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StringType):
        return of_text(wanted, value) if isinstance(wanted, T.AtomicType) else None
    if isinstance(wanted, T.StringType):
        to_text = isinstance(kind, T.NumericType | T.BooleanType | T.DateType)
        return as_text(value) if to_text else None
    if not (isinstance(kind, T.NumericType) and isinstance(wanted, T.NumericType)):
        return None
    cast = f"try_cast({value} AS {sql_type(wanted)})"
    same = f"try_cast({cast} AS {sql_type(kind)}) = {value}"
    if isinstance(kind, T.FloatType | T.DoubleType) and isinstance(wanted, T.LongType):
        # 2^63 becomes the largest BIGINT, one less, and the cast back takes that for 2^63 again.
        same += f" AND {value} < CAST('{2**63}' AS DOUBLE)"
    if isinstance(kind, T.IntegralType) and isinstance(wanted, T.FractionalType):
        # The largest integer becomes a float that is one more, and the cast back takes that for the largest again.
        bits = {"int": 31, "bigint": 63}.get(sql_type(kind), 15)
        same += f" AND CAST({cast} AS DOUBLE) < CAST('{2**bits}' AS DOUBLE)"
    return f"CASE WHEN {same} THEN {cast} END"


def as_text(value: str) -> str:
    """A CAST writes a small DECIMAL as 1E-8 or as 0.00000001, by the session's mode. This one doesn't ask for it."""
    return f"try_cast({value} AS STRING)"


def of_text(kind: DataType, text: str) -> str:
    """SQL of the value of a key column that ``text``, SQL of a STRING, stands for. Null if it would lose something."""
    from pyspark.sql.types import BinaryType

    value = _of_text(kind, text)
    # A cast leaves out such characters at the beginning, and makes the ID of a header a part of a number.
    return value if isinstance(kind, BinaryType) else f"CASE WHEN {text} NOT RLIKE '{_NO_TEXT}' THEN {value} END"


def _of_text(kind: DataType, text: str) -> str:
    """SQL of a value whose text is Kafka's key."""
    from pyspark.sql import types as T

    value, how = f"try_cast({text} AS {sql_type(kind)})", exact(kind)
    if isinstance(kind, T.StringType):
        return f"IF({is_utf8(f'CAST({text} AS BINARY)')}, {text}, NULL)"
    if isinstance(kind, T.DecimalType):
        ((_, kept),) = how.decimals
        parsed = f"try_cast({text} AS {sql_type(how.parsed_as)})"
        sound = f"{decimals.digits_after_point(text)} <= {kept} AND {_sound(kind, parsed)}"
        return f"CASE WHEN {text} RLIKE '{_HUGE_EXPONENT}' THEN NULL WHEN {sound} THEN {value} END"
    if isinstance(kind, T.FloatType | T.DoubleType):
        sound = how.sound(value, text) if how.sound else "true"
        return f"CASE WHEN {text} RLIKE {literal(FLOATING)} AND {sound} THEN {value} END"
    if isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType):
        return f"CASE WHEN {_sound(kind, text)} THEN {value} END"
    return value


def _sound(kind: DataType, parsed: str) -> str:
    sound = exact(kind).sound
    return sound(parsed, None) if sound is not None else "true"
