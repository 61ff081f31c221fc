"""Identifiers and values in SQL text, quoted so that data never becomes SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_UTC = re.compile(r"(?i)(etc/)?(utc|uct|gmt|ut|z|zulu|universal|greenwich)([+-]0{1,2}(:00)?)?|[+-]00:?00")


def identifier(name: str) -> str:
    """Quote a column or table name for Spark SQL. Any text stays one name."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A string literal of Spark SQL.

    A text that isn't plain is written as its bytes: sessions differ in what a backslash means, and expand
    ``${env:NAME}`` in every statement and expression, even inside literals.
    """
    if text.isprintable() and not set(text) & set("'\\$"):
        return f"'{text}'"
    return f"CAST(X'{text.encode('utf-8', 'surrogatepass').hex()}' AS STRING)"


def text_literal(text: str) -> str:
    """A string literal where Spark's grammar takes no expression, as after COMMENT. See ``literal``.

    What isn't plain is escaped. A session whose literals have no escapes shows the escapes, and nothing worse.
    """
    return f"'{''.join(map(_escaped, text))}'"


def _escaped(char: str) -> str:
    if char.isprintable() and char not in "'\\$":
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


MICROSECONDS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of ``to_json``: times are whole. By itself Spark writes milliseconds."""
AS_JSON = {"ignoreNullFields": "false", "timeZone": "UTC", **MICROSECONDS}
"""Options of ``to_json``: the same row gives the same text whatever the session's settings are, and shows nulls."""


def to_json(value: str, options: Mapping[str, str] = AS_JSON) -> str:
    """SQL of the JSON text of a struct, an array or a map."""
    return f"to_json({value}, map({', '.join(literal(text) for option in options.items() for text in option)}))"


def unlike(name: str, others: Iterable[str]) -> str:
    """The name, made longer until none of the ``others`` is the same in any case."""
    taken = {other.lower() for other in others}
    while name.lower() in taken:
        name += "_"
    return name


def zone_name(zone: str) -> str:
    """The same text for each name of UTC."""
    return "UTC" if _UTC.fullmatch(zone) else zone


def in_utc(value: str) -> str:
    """SQL of the time in UTC, without a zone, of a TIMESTAMP. As a text it is the same in sessions of all zones, and in
    none do two instants have one text."""
    return f"TIMESTAMP_NTZ'1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, 0.000001BD) * unix_micros({value})"


def struct_sql(fields: Mapping[str, str]) -> str:
    """SQL of a struct. ``fields`` maps field names to the SQL of their values."""
    return f"named_struct({', '.join(f'{literal(name)}, {sql}' for name, sql in fields.items())})"


def let(name: str, value: str, body: str) -> str:
    """SQL for ``let name = value in body``, which SQL lacks: the value is written and computed once. Without it Spark
    puts what the value is made of wherever a query names it.

    ``body`` may use other names of the query, but no other column called ``name``: the lambda's variable hides it.
    """
    return f"element_at(transform(array({value}), {name} -> {body}), 1)"


def renamed_sql(value: str, names: Mapping[str, str]) -> str:
    """SQL of the new name of a ``value``, which is SQL too; of one that isn't renamed: the value as it is."""
    cases = " ".join(f"WHEN {literal(old)} THEN {literal(new)}" for old, new in names.items())
    return f"CASE {value} {cases} ELSE {value} END"
