"""A second look at JSON values that couldn't be decoded: which field is wrong, and at which byte. Good values never
pay for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from connector.decode import json_decimals as decimals
from connector.decode.json_lossless import exact
from sinks.spark.sql import identifier, literal, unlike
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_SHOWN = 60
"""Characters of a field's value."""
_MALFORMED = "_malformed"


def with_faults(
    bad: DataFrame, value: str, kind: StructType, into: str, *, permissive: bool, options: dict[str, str]
) -> DataFrame:
    """``bad`` with the column ``into``: STRUCT<fault: STRING, shown: STRING>, null if the look finds nothing.

    ``value`` is SQL of the bytes, ``options`` are those of ``from_json``. ``fault`` says what is wrong and with which
    field, ``shown`` is the start of the field's value.
    """
    text = f"CAST({value} AS STRING)"
    names = list(bad.columns)
    look = _Look(bad, permissive, options)
    found = look.at(text, kind, ())
    start = f"ltrim(' \\t\\r\\n', {text})"
    whole = {
        f"{value} IS NULL OR {start} = ''": "is empty",
        f"NOT startswith({start}, '{{')": "not a JSON object",
        look.malformed: "not one whole JSON object",
    }
    whens = [
        f"WHEN {when} THEN named_struct('fault', {literal(said)}, 'shown', CAST(NULL AS STRING))"
        for when, said in whole.items()
    ]
    return look.frame.selectExpr(*map(identifier, names), f"CASE {' '.join([*whens, *found])} END AS {into}")


class _Look:
    """Parses the objects twice, one level after another: all fields as text, and as their types."""

    def __init__(self, frame: DataFrame, permissive: bool, options: dict[str, str]) -> None:
        self.frame = frame
        self.malformed = ""
        self._permissive = permissive
        self._options = options
        self._levels = 0

    def at(self, text: str, kind: StructType, path: tuple[str, ...]) -> list[str]:
        """SQL of the WHENs for the fields of the objects in ``text``."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        of = {field.name: exact(field.dataType, permissive=self._permissive) for field in kind}
        texts, typed = f"_texts_{self._levels}", f"_typed_{self._levels}"
        self._levels += 1
        bad = unlike(_MALFORMED, of)  # Spark would leave a field of that name empty
        as_text = StructType([StructField(name, StringType()) for name in (*of, bad)])
        as_typed = StructType([StructField(name, how.parsed_as) for name, how in of.items()])
        options = {**self._options, "columnNameOfCorruptRecord": bad}
        self.frame = self.frame.withColumn(texts, F.from_json(F.expr(text), as_text, options)).withColumn(
            typed, F.from_json(F.expr(text), as_typed, options)
        )
        self.malformed = self.malformed or f"{texts}.{bad} IS NOT NULL"
        whens = []
        for field in kind:
            how, at = of[field.name], ".".join((*path, field.name))
            there, value = f"{texts}.{identifier(field.name)}", f"{typed}.{identifier(field.name)}"
            shown = f"left({there}, {_SHOWN})"
            named = (
                sql_type(field.dataType).upper()
                if len(sql_type(field.dataType)) < _SHOWN
                else field.dataType.typeName().upper()
            )
            if isinstance(field.dataType, StructType):
                whens += self.at(there, field.dataType, (*path, field.name))
            if not field.nullable:
                whens.append(
                    _when(f"{texts} IS NOT NULL AND {there} IS NULL", f"field {at}: is missing or null", shown)
                )
            whens.append(
                _when(f"{there} IS NOT NULL AND {value} IS NULL", f"field {at}: not {_article(named)} {named}", shown)
            )
            lossy = [] if how.sound is None else [f"NOT coalesce({how.sound(value, None)}, false)"]
            if how.decimals:
                own = [(field.name if name == "" else name, digits) for name, digits in how.decimals]
                lossy.append(f"({decimals.huge(text, own)} OR {decimals.rounded(text, own)})")
            lossy += [f"NOT {decimals.is_number(there, digits)}" for name, digits in how.decimals if name == ""]
            whens += [
                _when(
                    f"{there} IS NOT NULL AND {one}", f"field {at}: not {_article(named)} {named} without loss", shown
                )
                for one in lossy
            ]
        return whens


def _when(condition: str, fault: str, shown: str) -> str:
    return f"WHEN {condition} THEN named_struct('fault', {literal(fault)}, 'shown', {shown})"


def _article(word: str) -> str:
    return "an" if word[0] in "AEIOU" else "a"


def malformed_at(value: bytes) -> str | None:
    """Where the value stops being one JSON object: in words, with the byte. None if it is one."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        return f"byte {error.start} isn't UTF-8"
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        at = len(text[: error.pos].encode())
        if error.msg == "Extra data":
            return f"the first JSON value ends at byte {at}, and more follows"
        if not text[error.pos :].strip():
            return f"the text ends at byte {at}, before the object does"
        return f"it stops being JSON at byte {at}: {error.msg[0].lower()}{error.msg[1:]}"
    except RecursionError:
        return None
    return None
