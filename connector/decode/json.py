"""Decodes Kafka's bytes as one JSON object, by a schema in Spark DDL, without loss."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from connector.decode import json_decimals as decimals
from connector.decode import json_numbers as numbers
from connector.decode.format import UNKNOWN, comments_in, problem_of
from connector.decode.json_faults import with_faults
from connector.decode.json_lossless import exact
from connector.decode.json_names import NONE, TWICE, Names, Path, path_sql, spelled_as, structs
from connector.decode.json_new_fields import OUTERMOST, Rows, learned
from connector.decode.text import NOT_UTF8
from connector.source.columnar import PlainValues, is_plain
from sinks.spark.schema_changes import OnNewColumn
from sinks.spark.sql import literal
from sinks.spark.types import is_utf8

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_HALF_CHARACTER = (
    r"""\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"""
)
"""One half of a pair of \\u escapes without the other half, which is no character. Escaped backslashes are gone."""
_ESCAPED = "\\u"
_ESCAPED_BACKSLASH = r"\\"
_NEW, _SPELLINGS = "new fields", "spellings"
_END = f"end_{secrets.token_hex(8)}"
_MALFORMED = f"malformed_{secrets.token_hex(8)}"
_LENIENT = (
    "allowComments", "allowSingleQuotes", "allowUnquotedFieldNames", "allowNumericLeadingZeros",
    "allowUnquotedControlChars", "allowBackslashEscapingAnyCharacter",
)  # fmt: skip
_NEVER = {"allowNonNumericNumbers": "false"}
"""NaN and Infinity are no JSON. Spark takes them by default, and writes them into a STRING in quotes."""

_MANY = 16
"""The largest number of spellings of the field names. For each one the query parses once more."""


class Json:
    """Exactly one JSON object with these types. Missing fields are null. The case of names doesn't matter.

    Fields that the schema lacks are ignored. With ``on_new_column`` they are a problem (fail) or learned (add).
    ``permissive`` also takes comments, single quotes, names without quotes, leading zeros, and numbers and booleans
    in quotes. A value that would lose something is a problem all the same.
    """

    header = 0

    def __init__(
        self,
        type: StructType,
        permissive: bool = False,
        on_new_column: OnNewColumn | None = None,
        *,
        option: str = "",
        rows: Rows = OUTERMOST,
    ) -> None:
        """``option``: the option that declares the fields, for messages; by default that of the value or key.
        ``rows``: the objects that ``on_new_column`` is about."""
        self.type = type
        self._option = option
        self._permissive = permissive
        self._on_new_column = on_new_column
        self._rows = rows
        self._spellings: list[str] = []
        """IDs of the spellings of field names whose case differs from the schema's, as ``Names.odd`` says them."""
        self._looks_at_names = False
        """Whether every record's names are looked at. It takes a query that is several times as large."""
        self._refused: set[Path] = set()
        """New fields that can't become columns."""
        self._learns_no_more = False
        """A record has new fields that can't be learned."""

    @property
    def plain(self) -> PlainValues | None:
        """See ``Format.plain``. What permissive mode takes beyond JSON is never plain."""
        # The reader looks for unknown fields among the outermost ones only.
        hidden = self._refuses_unknown and len(list(structs(self.type))) > 1
        if self._permissive or hidden or not is_plain(self.type):
            return None
        return PlainValues(self.type, refuse_unknown=self._refuses_unknown)

    @property
    def comments(self) -> Mapping[str, str]:
        """See ``Format.comments``."""
        return comments_in(self.type)

    def with_faults(self, bad: DataFrame, value: str, column: str, into: str) -> DataFrame | None:
        """See ``Format.with_faults``."""
        looked = with_faults(bad, value, self.type, "_look", permissive=self._permissive, options=self._options)
        # Other problems say it all.
        general = " OR ".join(
            f"endswith(_problem.detail, {literal(said)})" for said in (self._not_one(column), self._lossy(column))
        )
        return looked.selectExpr("*", f"CASE WHEN {general} THEN _look END AS {into}").drop("_look")

    def begin_epoch(self) -> None:
        """Nothing depends on the epoch."""

    def resolve(self, ids: Iterable[str], records: DataFrame) -> None:
        """Learn new fields, or the spellings of the field names. See ``Format.resolve``."""
        for schema_id in ids:
            if schema_id == _SPELLINGS:
                self._learn_spellings(records)
                continue
            grown, refused = learned(records, self.type, self._rows)
            # Otherwise the query would ask for them for ever. Only a duplicate name, or values of several kinds, can
            # hide them.
            self._learns_no_more |= grown == self.type and refused <= self._refused
            self.type = grown
            self._refused |= refused

    def _learn_spellings(self, records: DataFrame) -> None:
        new = records.selectExpr(f"{self._odd('CAST(bytes AS STRING)')} AS odd").distinct()
        known = ", ".join(map(literal, [NONE, TWICE, *self._spellings]))
        found = new.where(f"odd NOT IN ({known})").limit(_MANY - len(self._spellings)).collect()
        self._spellings += sorted(row["odd"] for row in found)
        self._looks_at_names = True

    def _odd(self, text: str) -> str:
        """SQL of the ID of a text's spelling. Null if it needs no look."""
        return f"CASE WHEN {self._names.may_be_spelled_otherwise(text)} THEN {self._names.odd(text)} END"

    def decoded(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """See ``Format.decoded``.

        Spark's ``from_json`` stops at the end of the first object. Of ``{"a":1}{"a":2}`` it would silently drop the
        second one. So the object gets one more field at its end, with a name that nobody can know. The field is found
        only if the value was a single, complete object.
        """
        from pyspark.sql import functions as F

        how = exact(self.type, permissive=self._permissive)
        text, parsed, texts, odd = f"CAST({column} AS STRING)", f"_parsed{into}", f"_texts{into}", f"_odd{into}"
        ended = _ended(column)
        if how.decimals:
            huge = decimals.huge(text, how.decimals, permissive=self._permissive)
            ended = f"CASE WHEN NOT ({huge}) THEN {ended} END"
        whole = f"{{0}}.{_MALFORMED} IS NULL AND {{0}}.{_END}"
        unescaped = f"replace({text}, {literal(_ESCAPED_BACKSLASH)}, ' ')"
        half = f"contains({text}, {literal(_ESCAPED)}) AND {unescaped} RLIKE {literal(_HALF_CHARACTER)}"
        problems = {
            f"NOT coalesce({whole.format(parsed)}, false)": literal(self._not_one(column)),
            f"NOT {is_utf8(column)}": literal(NOT_UTF8),
            half: literal("half of a character: a \\u escape without its pair"),
            **self._spelled_otherwise(text, parsed, odd),
            **self._new_fields(text, column),
        }
        loss = literal(self._lossy(column))
        text_of = texts if how.texts_as is not None else None
        if how.decimals and not self._permissive:
            # A second parse that failed would prove nothing of them.
            problems[f"{texts} IS NOT NULL AND NOT coalesce({whole.format(texts)}, false)"] = loss
        if how.sound is not None:
            problems[f"NOT coalesce({how.sound(parsed, text_of)}, false)"] = loss
        if how.decimals and self._permissive:
            problems[decimals.rounded(text, how.decimals)] = loss
        problem = " ".join(f"WHEN {condition} THEN {words}" for condition, words in problems.items())
        if self._looks_at_names:
            records = records.withColumn(odd, F.expr(self._odd(text)))
        added = records.withColumn(parsed, self._parsed(F.expr(ended), odd, how.parsed_as))
        if how.texts_as is not None:
            doubts = (
                f"({doubt(parsed)}) AND {of_text.replace(numbers.TEXT, text)}" for of_text, doubt in how.doubts.items()
            )
            quoted = F.expr(numbers.in_quotes(ended, permissive=self._permissive))
            again = F.when(F.expr(" OR ".join(doubts)), self._parsed(quoted, odd, how.texts_as))
            added = added.withColumn(texts, again)
        value = how.value(parsed, text_of)
        return added.selectExpr("*", f"{value} AS {into}", f"CASE {problem} END AS {problem_of(into)}")

    def of_plain(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """See ``Format.of_plain``."""
        return records.selectExpr("*", f"{column} AS {into}", f"CAST(NULL AS STRING) AS {problem_of(into)}")

    def _parsed(self, ended: Column, odd: str, kind: DataType) -> Column:
        """STRUCT of the fields, the added end, and malformed text. The column ``odd`` is how the names are spelled."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import BooleanType, StringType, StructField, StructType

        def read(kind: DataType) -> tuple[Column, DataType]:
            assert isinstance(kind, StructType)
            own = [StructField(_END, BooleanType()), StructField(_MALFORMED, StringType())]
            schema = StructType([*kind.fields, *own])
            return F.from_json(ended, schema, {"columnNameOfCorruptRecord": _MALFORMED, **self._options}), schema

        parsed, schema = read(kind)
        for spelling in self._spellings:
            # Casting a STRUCT goes by the order of its fields.
            again = read(spelled_as(kind, spelling))[0].cast(schema)
            parsed = F.when(F.col(odd) == F.lit(spelling), again).otherwise(parsed)
        return parsed

    def _spelled_otherwise(self, text: str, parsed: str, odd: str) -> dict[str, str]:
        asked = literal(f"{UNKNOWN}{_SPELLINGS}")
        if not self._looks_at_names:
            return {self._names.may_be_odd(text, parsed): asked}
        if len(self._spellings) >= _MANY:
            asked = literal("the names of its fields are in another case than the schema's, in one way too many")
        known = ", ".join(map(literal, [NONE, *self._spellings]))
        return {
            f"{odd} = {literal(TWICE)}": literal("has a field twice, in upper and in lower case"),
            f"{odd} NOT IN ({known})": asked,
        }

    def _new_fields(self, text: str, column: str) -> dict[str, str]:
        if not self._refuses_unknown:
            return {}
        new = self._names.unknown(text, self._rows.paths)
        refused = new
        problems = {}
        words = f"has fields that {self._declares(column)} lacks: "
        if self._on_new_column == "add":
            words = "has fields that can't become columns by themselves: "
            if self._learns_no_more:
                refused = new
            else:
                known = ", ".join(path_sql(path) for path in sorted(self._refused)) or path_sql(("",))
                refused = f"filter({new}, path -> array_contains(array({known}), path))"
                problems[f"size({new}) > size({refused})"] = literal(f"{UNKNOWN}{_NEW}")
        told = f"array_join(transform({refused}, path -> array_join(path, '.')), ', ')"
        problems[f"size({refused}) > 0"] = f"concat({literal(words)}, {told})"
        return problems

    @property
    def _names(self) -> Names:
        return Names(self.type, self._options, self._permissive)

    @property
    def _refuses_unknown(self) -> bool:
        return self._on_new_column in ("add", "fail")

    def _declares(self, column: str) -> str:
        return self._option or f"{column}.schema"

    def _not_one(self, column: str) -> str:
        return f"not one JSON object that fits {self._declares(column)}"

    def _lossy(self, column: str) -> str:
        return f"can't be had as {self._declares(column)} says without loss"

    @property
    def _options(self) -> dict[str, str]:
        return {**_NEVER, **{name: str(self._permissive).lower() for name in _LENIENT}}


def _ended(column: str) -> str:
    """SQL of an object's text with the field ``_END`` added. Null if the text doesn't end as an object does."""
    blanks = "' \\t\\r\\n'"
    end = f'"{_END}":true}}'.encode().hex()
    # Usually there is nothing to check: the text ends with a value and a brace.
    unusual = " OR ".join(f"endswith({column}, X'{byte}7D')" for byte in ("7B", "20", "09", "0A", "0D"))
    usual = f"CAST(concat(substring({column}, 1, octet_length({column}) - 1), X'2C{end}') AS STRING)"
    trimmed = f"trim(TRAILING {blanks} FROM CAST({column} AS STRING))"
    # With its blanks: a comment may end with the line.
    body = f"left({trimmed}, length({trimmed}) - 1)"
    is_empty = f"endswith(trim(TRAILING {blanks} FROM {body}), '{{')"
    other = f"concat({body}, CASE WHEN {is_empty} THEN '' ELSE ',' END, CAST(X'{end}' AS STRING))"
    return (
        f"CASE WHEN endswith({column}, X'7D') AND NOT ({unusual}) THEN {usual} "
        f"WHEN endswith({trimmed}, '}}') THEN {other} END"
    )
