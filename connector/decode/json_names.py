"""The names of JSON's fields, at any depth: those in another case than the schema's, and those that the schema lacks.

Spark's parser knows a field by its exact name only. So a text whose names are in another case is parsed by a schema
that spells them as the text does. Which ones these are, is asked of the text, level by level. Such records are rare,
and a look at the parsed values finds them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sinks.spark.sql import identifier, let, literal

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Path = tuple[str, ...]
"""A field's name, after the names of the STRUCTs around it as the schema spells them."""

TWICE = "twice"
"""Stands for spellings of a text that no one schema can have."""
NONE = "[]"
"""Stands for the spellings of a text whose names are the schema's own."""


@dataclass(frozen=True)
class Names:
    """The names in JSON texts of one type. ``options`` are those of ``from_json``."""

    type: StructType
    options: Mapping[str, str]
    permissive: bool = False

    def odd(self, text: str) -> str:
        """SQL of an ID: the names that differ from the schema's in case only, ``NONE``, or ``TWICE``.

        A name that the same object also has as the schema spells it counts for nothing.
        """
        levels = [
            f"transform({_odd_among(_own(objects, kind), kind)}, name -> {path_sql(at, 'name')})"
            for at, kind, objects in self._levels(text)
        ]
        twice = "size(array_distinct(transform(odd, path -> lower(to_json(path))))) < size(odd)"
        return let("odd", f"array_sort({_all(levels)})", f"IF({twice}, {literal(TWICE)}, to_json(odd))")

    def unknown(self, text: str, within: Sequence[Path] = ((),)) -> str:
        """SQL of the paths of fields that the schema lacks, ARRAY<ARRAY<STRING>>, inside of the STRUCTs ``within``."""
        levels = [
            f"transform(filter({_every_name(objects)}, name -> NOT {_in(_lower(kind), 'lower(name)')}), "
            f"name -> {path_sql(at, 'name')})"
            for at, kind, objects in self._levels(text)
            if any(at[: len(root)] == root for root in within)
        ]
        return _all(levels)

    def may_be_odd(self, text: str, parsed: str) -> str:
        """SQL: false only if ``odd`` is ``NONE``. ``parsed``: SQL of the text, parsed by the schema as it is."""
        lacks = let("parsed", parsed, _lacks(self.type, "parsed"))
        return f"{lacks} AND {self.may_be_spelled_otherwise(text)}"

    def may_be_spelled_otherwise(self, text: str) -> str:
        """SQL: false only if no name of the schema is in the text in another case. It costs one search."""
        if any(_UNLIKE_OTHERS & {*name} for name in self._with_letters):
            return "true"
        found = [f"(?i:{each})(?<!{each})" for each in map(self._pattern, self._with_letters)]
        if not found:
            return "false"
        if self.permissive:  # names may be without quotes
            return f"(contains({text}, {literal(_BACKSLASH)}) OR {text} RLIKE {literal('(?u)' + '|'.join(found))})"
        # A name may be written with escapes. Those of values are many more, and a search for the first is cheap.
        escaped = f"contains({text}, {literal(_BACKSLASH)}) AND {text} RLIKE {literal(_ESCAPED_NAME)}"
        spelled = rf'(?u)"(?:{"|".join(found)})[ \t\r\n]*+:'
        return f"({escaped} OR {text} RLIKE {literal(spelled)})"

    def _pattern(self, name: str) -> str:
        """Of a name as the text may have it, up to the quote at its end."""
        return re.escape(name if self.permissive else json.dumps(name, ensure_ascii=False)[1:])

    @cached_property
    def _with_letters(self) -> list[str]:
        every = dict.fromkeys(name for _, kind in structs(self.type) for name in kind.names)
        return [name for name in every if name.lower() != name.upper()]

    def _levels(self, text: str) -> Iterator[tuple[Path, StructType, str]]:
        """Each STRUCT of the type, and SQL of the objects that are there in a text: ARRAY<MAP<name, text of value>>."""
        return self._within(self.type, f"array({text})", ())

    def _within(self, kind: DataType, texts: str, at: Path) -> Iterator[tuple[Path, StructType, str]]:
        from pyspark.sql.types import ArrayType, MapType, StructType

        if isinstance(kind, ArrayType):
            yield from self._within(kind.elementType, f"flatten({self._read(texts, 'ARRAY<STRING>')})", at)
        elif isinstance(kind, MapType):
            values = f"transform({self._read(texts, _OBJECT)}, object -> map_values(object))"
            yield from self._within(kind.valueType, f"flatten({values})", at)
        elif isinstance(kind, StructType) and kind.names:
            objects = self._read(texts, _OBJECT)
            yield at, kind, objects
            for field in kind:
                if any(True for _ in structs(field.dataType)):
                    values = f"transform({objects}, object -> {_values_of(field.name)})"
                    yield from self._within(field.dataType, f"flatten({values})", (*at, field.name))

    def _read(self, texts: str, kind: str) -> str:
        options = ", ".join(f"{literal(name)}, {literal(value)}" for name, value in self.options.items())
        read = f"from_json(text, '{kind}', map({options}))"
        return f"filter(transform({texts}, text -> {read}), found -> found IS NOT NULL)"


_OBJECT = "MAP<STRING, STRING>"
_UNLIKE_OTHERS = frozenset("\u0130\u0307\u03a3\u03c3\u03c2")
"""Letters whose small letter is two characters, or depends on what is around. A pattern doesn't know that."""
_BACKSLASH = "\\"
_ESCAPED_NAME = r'\\[u/](?:[^"\\]|\\.)*+"[ \t\r\n]*+:'


def structs(kind: DataType, at: Path = ()) -> Iterator[tuple[Path, StructType]]:
    """The STRUCTs in a type, with itself. What is in an ARRAY or a MAP has its path."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        yield from structs(kind.elementType, at)
    elif isinstance(kind, MapType):
        yield from structs(kind.valueType, at)
    elif isinstance(kind, StructType):
        yield at, kind
        for field in kind:
            yield from structs(field.dataType, (*at, field.name))


def spelled_as(kind: DataType, odd: str, at: Path = ()) -> DataType:
    """The type with names as the ID ``odd`` says, in the same order."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(kind, ArrayType):
        return ArrayType(spelled_as(kind.elementType, odd, at))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, spelled_as(kind.valueType, odd, at))
    if not isinstance(kind, StructType):
        return kind
    here = {name.lower(): name for *of, name in json.loads(odd) if tuple(of) == at}
    return StructType(
        [
            StructField(here.get(each.name.lower(), each.name), spelled_as(each.dataType, odd, (*at, each.name)))
            for each in kind
        ]
    )


def _lacks(kind: DataType, value: str, depth: int = 0) -> str:
    """SQL: whether a value lacks a field, or has null in it."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    item = f"item{depth}"
    if isinstance(kind, StructType):
        parts = []
        for each in kind:
            field = f"{value}.{identifier(each.name)}"
            parts.append(f"{field} IS NULL")
            if any(True for _ in structs(each.dataType)):
                parts.append(_lacks(each.dataType, field, depth))
        return " OR ".join(parts) or "false"
    if isinstance(kind, ArrayType):
        return f"exists({value}, {item} -> {_lacks(kind.elementType, item, depth + 1)})"
    assert isinstance(kind, MapType)
    return f"exists(map_values({value}), {item} -> {_lacks(kind.valueType, item, depth + 1)})"


def _own(objects: str, kind: StructType) -> str:
    """SQL of the names in objects that are the schema's, but for their case. An exact one hides the others."""
    is_exact = _in(kind.names, "{0}")
    hidden = f"exists(map_keys(object), one -> lower(one) = lower(name) AND {is_exact.format('one')})"
    counts = f"{_in(_lower(kind), 'lower(name)')} AND ({is_exact.format('name')} OR NOT {hidden})"
    return f"array_distinct(flatten(transform({objects}, object -> filter(map_keys(object), name -> {counts}))))"


def _odd_among(names: str, kind: StructType) -> str:
    """SQL of those of the names that are in another case than the schema's, and of all that are the same as these."""
    other = f"exists(own, one -> lower(one) = lower(name) AND NOT {_in(kind.names, 'one')})"
    return let("own", names, f"filter(own, name -> {other})")


def _values_of(name: str) -> str:
    """SQL of the texts of a field in the map ``object``."""
    exact = f"entry.key = {literal(name)}"
    alike = f"lower(entry.key) = {literal(name.lower())} AND NOT map_contains_key(object, {literal(name)})"
    return f"transform(filter(map_entries(object), entry -> {exact} OR {alike}), entry -> entry.value)"


def _every_name(objects: str) -> str:
    return f"array_distinct(flatten(transform({objects}, object -> map_keys(object))))"


def path_sql(at: Path, *names: str) -> str:
    """SQL of a path. ``names``: SQL of the names at its end."""
    return f"array({', '.join([*map(literal, at), *names])})"


def _all(levels: Sequence[str]) -> str:
    return f"flatten(array({', '.join(levels)}))"


def _in(names: Sequence[str], name: str) -> str:
    return f"array_contains(array({', '.join(map(literal, names))}), {name})"


def _lower(kind: StructType) -> list[str]:
    return [name.lower() for name in kind.names]
