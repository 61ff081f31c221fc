"""The schema of JSON records that nobody has declared, found from some of them. Pure: without Spark or Kafka.

Each value of these records fits its type without loss. What fits no one type is a STRING, which takes any value as its
text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from sinks.spark.sql import identifier

_LARGEST = 2**63
_DIGITS = 38
"""Of a DECIMAL."""
_EXACT = 15
"""Digits that a DOUBLE holds, whichever they are."""
_UNKNOWN, _BIGINT, _DOUBLE, _WHOLE, _STRING = "", "BIGINT", "DOUBLE", f"DECIMAL({_DIGITS}, 0)", "STRING"
_LONG = "BIGINT that no DOUBLE holds"
_AMONG_NUMBERS = {
    frozenset({_BIGINT, _LONG}): _LONG, frozenset({_BIGINT, _DOUBLE}): _DOUBLE,
    frozenset({_BIGINT, _WHOLE}): _WHOLE, frozenset({_LONG, _WHOLE}): _WHOLE,
}  # fmt: skip
"""The type of numbers of two types. All others have none but STRING."""


@dataclass(frozen=True)
class _Kind:
    """The type of a value: a word of Spark's, the type of an ARRAY's elements, or the fields of a STRUCT."""

    word: str = _UNKNOWN
    elements: _Kind | None = None
    fields: Mapping[str, _Kind] | None = None

    @property
    def sql(self) -> str:
        if self.elements is not None:
            return f"ARRAY<{self.elements.sql}>"
        if self.fields:
            return f"STRUCT<{', '.join(f'{identifier(name)}: {kind.sql}' for name, kind in self.fields.items())}>"
        return _BIGINT if self.word == _LONG else self.word or _STRING


def inferred(values: Iterable[bytes | None]) -> str | None:
    """The columns of these values, as Spark DDL: every field that one of them has. None: no value is a JSON object.

    A whole number is a BIGINT, one with a fraction a DOUBLE; a field with values of several kinds is a STRING.
    """
    return ", ".join(f"{identifier(name)} {kind}" for name, kind in columns(values).items()) or None


def columns(values: Iterable[bytes | None]) -> Mapping[str, str]:
    """As ``inferred``: the name of each column -> its type. Empty: no value is a JSON object with a field."""
    found = [kind for value in values if (kind := _of_value(value)) is not None]
    if not found:
        return {}
    whole = reduce(lambda one, other: _both(one, other, nested=False), found)
    return {name: kind.sql for name, kind in (whole.fields or {}).items()}


def _of_value(value: bytes | None) -> _Kind | None:
    try:
        found = json.loads(value or b"", parse_float=_Fraction, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None
    return _kind(found, nested=False) if isinstance(found, dict) else None


class _Fraction(str):
    """The text of a number with a fraction or an exponent."""

    __slots__ = ()


def _refused(word: str) -> None:
    raise ValueError(word)


def _kind(value: Any, *, nested: bool = True) -> _Kind:
    if value is None:
        return _Kind()
    if isinstance(value, bool):
        return _Kind("BOOLEAN")
    if isinstance(value, int):
        if abs(value) < 10**_EXACT:
            return _Kind(_BIGINT)
        return _Kind(_LONG if -_LARGEST <= value < _LARGEST else _WHOLE if abs(value) < 10**_DIGITS else _STRING)
    if isinstance(value, _Fraction):
        digits = value.lower().partition("e")[0].replace(".", "").lstrip("-0")
        return _Kind(_DOUBLE if len(digits) <= _EXACT and abs(float(value)) < float("inf") else _STRING)
    if isinstance(value, list):
        return _Kind(elements=reduce(_both, map(_kind, value), _Kind()))
    if isinstance(value, dict):
        return _with_fields_of({}, {name: _kind(each) for name, each in value.items()}, nested=nested)
    return _Kind(_STRING)


def _both(one: _Kind, other: _Kind, *, nested: bool = True) -> _Kind:
    """A type for the values of both. ``nested``: whether they are inside of records."""
    if other == _Kind() or one == other:
        return one
    if one == _Kind():
        return other
    if one.elements is not None and other.elements is not None:
        return _Kind(elements=_both(one.elements, other.elements))
    if one.fields is not None and other.fields is not None:
        return _with_fields_of(one.fields, other.fields, nested=nested)
    return _Kind(_AMONG_NUMBERS.get(frozenset({one.word, other.word}), _STRING))


def _with_fields_of(one: Mapping[str, _Kind], other: Mapping[str, _Kind], *, nested: bool) -> _Kind:
    fields = dict(one)
    spelled = {name.lower(): name for name in fields}
    for name, kind in other.items():
        there = spelled.setdefault(name.lower(), name)
        if nested and there != name:
            # An object may have both, and Delta has no STRUCT with both.
            return _Kind(_STRING)
        fields[there] = _both(fields.get(there, _Kind()), kind)
    return _Kind(fields=fields)
