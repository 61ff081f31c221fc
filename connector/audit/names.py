"""Spells the names in JSON texts as the schema does, for the auditor. It changes nothing else.

Spark's parser tells names apart by their case, and a field in another case would be null. Few texts have such names,
and these are taken apart in Python.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*+"'
    r"|'(?:\\.|[^'\\])*+'"
    r"|/\*.*?\*/|//[^\r\n]*+|\s++|[{}\[\]:,]|[^\s{}\[\]:,\"'/]++|.",
    re.DOTALL,
)
_BLANK = re.compile(r"\s|/[*/]")
_NO_JSON = "!"


def respelled(
    frame: DataFrame, kind: StructType, text: str, sound: Column, into: str, *, permissive: bool
) -> DataFrame:
    """The frame with the column ``into``: the JSON text with the schema's names. ``text``: SQL; ``sound``: whether it
    is UTF-8, as it must be for Python.

    A name that the same object also has as the schema spells it is left alone. Where an object has a name in several
    other spellings, the text becomes one that is no JSON.
    """
    from pyspark import cloudpickle
    from pyspark.sql import functions as F

    # The executors of a cluster may not have this package.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    again = F.udf(partial(spelled_as, kind), "string", useArrow=False)  # else PySpark warns: it looks for type hints
    odd = f"odd_{into}"
    frame = frame.withColumn(odd, F.when(sound & F.expr(_may_be_odd(kind, text, permissive)), F.expr(text)))
    return frame.withColumn(into, F.coalesce(again(F.col(odd)), F.expr(text))).drop(odd)


def _may_be_odd(kind: StructType, text: str, permissive: bool) -> str:
    """SQL: false only if each name in the text is spelled as in the schema, or the schema has nothing like it."""
    names = [name if permissive else json.dumps(name, ensure_ascii=False) for name in {*_names(kind)}]
    escapes = ["\\"] if permissive else ["\\u", "\\/"]
    escaped = [f"contains({text}, {literal(each)})" for each in escapes]

    def without(text: str, name: str) -> str:
        return f"length(replace({text}, {literal(name)}, ''))"

    # No lambda: Spark doesn't evaluate Python's functions of what has one.
    differs = [f"{without(text, name)} <> {without(f'lower({text})', name.lower())}" for name in sorted(names)]
    return " OR ".join([*escaped, *differs])


def _names(kind: DataType) -> Iterator[str]:
    """Of all fields of STRUCTs in a type."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        for part in kind:
            yield part.name
            yield from _names(part.dataType)
    elif isinstance(kind, ArrayType | MapType):
        yield from _names(kind.elementType if isinstance(kind, ArrayType) else kind.valueType)


@dataclass
class _Open:
    """An object or an array that hasn't ended yet."""

    kind: DataType | None
    is_object: bool
    names: list[tuple[str, int]] = field(default_factory=list)
    """The names so far, and the indices of their tokens."""

    def inner(self) -> DataType | None:
        """The type of the next value in it."""
        from pyspark.sql.types import ArrayType, MapType, StructType

        if not self.is_object:
            return self.kind.elementType if isinstance(self.kind, ArrayType) else None
        if isinstance(self.kind, MapType):
            return self.kind.valueType
        if not isinstance(self.kind, StructType):
            return None
        small = self.names[-1][0].lower()
        return next((part.dataType for part in self.kind if part.name.lower() == small), None)


def spelled_as(kind: DataType, text: str | None) -> str | None:
    """The text with the names of the type. What is no JSON stays so: it may be changed in any way."""
    if text is None:
        return None
    tokens = _TOKEN.findall(text)
    at: list[_Open] = []
    last = 0
    following: DataType | None = kind
    for index, token in enumerate(tokens):
        if _BLANK.match(token):
            continue
        if token in ("{", "["):
            at.append(_Open(following, token == "{"))
        elif token in ("}", "]") and at:
            if not _end(at.pop(), tokens):
                return _NO_JSON
        elif token == ":" and at and at[-1].is_object:
            at[-1].names.append((_name(tokens[last]), last))
        if at and (at[-1].names or not at[-1].is_object):
            following = at[-1].inner()
        last = index
    return "".join(tokens)


def _name(token: str) -> str:
    if token[:1] not in ('"', "'"):
        return token
    quoted = token if token[0] == '"' else '"' + token[1:-1].replace('"', '\\"') + '"'
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError:
        return token[1:-1]


def _end(closed: _Open, tokens: list[str]) -> bool:
    """Rename what counts of an object that ends. False if nobody knows which name counts."""
    from pyspark.sql.types import StructType

    if not closed.is_object or not isinstance(closed.kind, StructType):
        return True
    exact = {part.name for part in closed.kind}
    there = {name for name, _ in closed.names}
    for name in exact - there:
        alike = [(spelled, index) for spelled, index in closed.names if spelled.lower() == name.lower()]
        alike = [each for each in alike if each[0] not in exact]
        if len({spelled for spelled, _ in alike}) > 1:
            return False
        for _, index in alike:
            tokens[index] = json.dumps(name)
    return True
