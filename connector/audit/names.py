"""Writes JSON texts anew, for the auditor, with the names as the schema spells them. It changes nothing else.

Spark's parser tells names apart by their case, and a field in another case would be null. So a text that may have such
a name is taken apart, object by object, and put together again.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_QUOTED = f"<{secrets.token_hex(8)}>"
"""Stands at the start of each string, to tell "true" from true, and "{}" from {}."""
_TEXT, _TEXT_LENIENT = r'"(?:\\.|[^\\"])*+"', r"'(?:\\.|[^\\'])*+'"
_STRING = rf'\G((?:[^"]|{_TEXT}(?=\s*+:))*+)(")((?:\\.|[^\\"])*+")'
_COMMENT = r"/\*.*?\*/|//[^\r\n]*+"
_STRING_LENIENT = (
    rf"(?s)\G((?:{_COMMENT}|[^\"']|(?:{_TEXT}|{_TEXT_LENIENT})(?=(?:\s|{_COMMENT})*+:))*+)"
    r"([\"'])((?:\\.|(?!\2)[^\\])*+\2)"
)
_OBJECT, _LIST, _NO_JSON = "MAP<STRING, STRING>", "ARRAY<STRING>", "!"


@dataclass(frozen=True)
class Respelled:
    """``options``: those of ``from_json``, by which the texts are read. ``permissive``: names may be without quotes."""

    type: StructType
    options: Mapping[str, str]
    permissive: bool

    def sql(self, text: str) -> str:
        """SQL of the text with the schema's names. A text that is no object stays as it is. Where an object has a name
        in several cases, and not in the schema's, the text is no JSON."""
        pattern = _STRING_LENIENT if self.permissive else _STRING
        told_apart = f"regexp_replace({text}, {literal(pattern)}, {literal(f'$1$2{_QUOTED}$3')})"
        again = f"replace({self._object(self.type, told_apart, 0)}, {literal(_QUOTED)}, '')"
        return f"IF({self._is_odd(text)}, coalesce({again}, {text}), {text})"

    def _is_odd(self, text: str) -> str:
        """SQL: false only if each name in the text is spelled as in the schema, or the schema has nothing like it."""
        names = [name if self.permissive else json.dumps(name, ensure_ascii=False) for name in {*_names(self.type)}]
        every = ", ".join(map(literal, sorted(names)))
        escapes = ["\\"] if self.permissive else ["\\u", "\\/"]
        escaped = " OR ".join(f"contains({text}, {literal(each)})" for each in escapes)
        as_spelled = f"length({text}) - length(replace({text}, name, ''))"
        in_any_case = "length(small) - length(replace(small, lower(name), ''))"
        differs = f"exists(array({every}), name -> {as_spelled} <> {in_any_case})"
        return f"({escaped} OR {_with('small', f'lower({text})', differs)})"

    def _object(self, kind: StructType, text: str, depth: int) -> str:
        """SQL of an object with the names of the STRUCT. Null if the text is no object."""
        entry, entries, own = f"entry{depth}", f"entries{depth}", f"own{depth}"
        if not kind.names:
            return text
        exact = f"array({', '.join(map(literal, kind.names))})"
        small = f"array({', '.join(literal(name.lower()) for name in kind.names)})"
        at = f"array_position({small}, lower({entry}.key))"
        is_exact = f"array_contains({exact}, {entry}.key)"
        # An entry in another case counts if none is spelled as in the schema.
        rival = f"lower(other.key) = lower({entry}.key) AND array_contains({exact}, other.key)"
        counts = f"{is_exact} OR ({at} > 0 AND NOT exists({entries}, other -> {rival}))"
        name = f"IF({is_exact}, {entry}.key, element_at({exact}, CAST({at} AS INT)))"
        value = " ".join(
            f"WHEN lower({entry}.key) = {literal(part.name.lower())} "
            f"THEN {self._value(part.dataType, f'{entry}.value', depth + 1)}"
            for part in kind
            if any(_names(part.dataType))
        )
        other = _as_it_is(f"{entry}.value")
        value = f"CASE {value} ELSE {other} END" if value else other
        joined = _joined("{", f"transform({own}, {entry} -> concat({_quoted(name)}, ':', {value}))", "}")
        several = f"size(array_distinct({own}.key)) > size(array_distinct(transform({own}.key, key -> lower(key))))"
        made = f"IF({several}, '{_NO_JSON}', {joined})"
        made = _with(own, f"filter({entries}, {entry} -> {counts})", made)
        return _with(entries, f"map_entries({self._read(text, _OBJECT)})", made)

    def _value(self, kind: DataType, text: str, depth: int) -> str:
        """SQL of a value of this type, which has STRUCTs in it, as JSON. ``text``: as Spark reads it in a MAP."""
        from pyspark.sql.types import ArrayType, MapType, StructType

        item = f"item{depth}"
        if isinstance(kind, StructType):
            made = self._object(kind, text, depth)
        elif isinstance(kind, ArrayType):
            each = self._value(kind.elementType, item, depth + 1)
            made = _joined("[", f"transform({self._read(text, _LIST)}, {item} -> {each})", "]")
        else:
            assert isinstance(kind, MapType)
            each = self._value(kind.valueType, f"{item}.value", depth + 1)
            pairs = f"map_entries({self._read(text, _OBJECT)})"
            made = _joined("{", f"transform({pairs}, {item} -> concat({_quoted(f'{item}.key')}, ':', {each}))", "}")
        # A string isn't read as the object that it may hold: it doesn't start as one.
        return f"coalesce({made}, {_as_it_is(text)})"

    def _read(self, text: str, kind: str) -> str:
        options = ", ".join(f"'{name}', '{value}'" for name, value in self.options.items())
        return f"from_json({text}, '{kind}', map({options}))"


def _names(kind: DataType) -> Iterator[str]:
    """Of all fields of STRUCTs in a type."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        for part in kind:
            yield part.name
            yield from _names(part.dataType)
    elif isinstance(kind, ArrayType | MapType):
        yield from _names(kind.elementType if isinstance(kind, ArrayType) else kind.valueType)


def _as_it_is(text: str) -> str:
    """SQL of a value as JSON, from its text as Spark reads it in a MAP."""
    string = f"WHEN startswith({text}, '{_QUOTED}') THEN {_quoted(text)}"
    return f"CASE WHEN {text} IS NULL THEN 'null' {string} ELSE {text} END"


def _with(name: str, value: str, made: str) -> str:
    """SQL of ``made``, where ``name`` is the value."""
    return f"element_at(transform(array({value}), {name} -> {made}), 1)"


def _joined(start: str, items: str, end: str) -> str:
    return f"concat('{start}', array_join({items}, ','), '{end}')"


def _quoted(text: str) -> str:
    """SQL of a JSON string."""
    return f"regexp_replace(to_json(array({text})), '^.|.$', '')"
