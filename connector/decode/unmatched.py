"""Declared fields that no record has. A misspelled name in a schema would be a column of nulls, and no error.

A few records are looked at on the driver. Only if they lack a field, Spark counts it in all records of the epoch.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

WHOLE: Sequence[tuple[str, ...]] = ((),)
"""The value itself is the object with the fields."""
_MANY = 100
"""The largest number of names that are looked at."""
IMAGES = (("payload", "after"), ("payload", "before"), ("after",), ("before",))
"""The paths of a row in Debezium's events. The first one that is there counts."""


@dataclass(frozen=True)
class Unmatched:
    """A declared field that none of the records has."""

    path: tuple[str, ...]
    """Its name, after those of the STRUCTs around it."""
    among: int
    """The number of objects that were looked at."""
    unknown: Mapping[str, int]
    """The fields beside it that the schema lacks, and in how many objects each one is."""
    countable: bool
    """Whether Spark can count it: around it there is no ARRAY and no MAP."""

    @property
    def name(self) -> str:
        """``address.city``."""
        return ".".join(self.path)

    @property
    def meant(self) -> str | None:
        """The field of the records that is probably meant."""
        plain = {_plain(name): name for name in sorted(self.unknown, key=lambda name: self.unknown[name])}
        near = difflib.get_close_matches(_plain(self.path[-1]), plain, n=1, cutoff=0.6)
        return plain[near[0]] if near else None

    def told(self, which: str) -> str:
        """What is wrong, as a sentence. ``which`` names the records, as in "of this epoch"."""
        meant = self.meant
        if meant is not None:
            beside = f"; {self.unknown[meant]:,} have {meant}, which the schema lacks. Did you mean {meant}?"
        elif self.unknown:
            beside = f". The fields that the schema lacks are {', '.join(sorted(self.unknown)[:10])}."
        else:
            beside = ". The records have no field that the schema lacks."
        return f"no record {which} has a field {self.name}{beside}"


def in_sample(values: Iterable[bytes | None], schema: StructType, roots: Sequence[tuple[str, ...]]) -> list[Unmatched]:
    """The declared fields that none of these values has. Values that aren't JSON objects don't count.

    ``roots`` are paths of the object with the fields: ``WHOLE`` or ``IMAGES``.
    """
    found = [each for value in values if (each := _object(value, roots)) is not None]
    return list(_missing(schema, found, (), countable=True)) if found else []


def has_objects(values: Iterable[bytes | None], roots: Sequence[tuple[str, ...]]) -> bool:
    """Whether ``in_sample`` has anything to look at."""
    return any(_object(value, roots) is not None for value in values)


def objects(
    records: DataFrame, part: Literal["value", "key"], roots: Sequence[tuple[str, ...]], limit: int
) -> list[bytes | None]:
    """A few values of ``records`` that have such an object. Runs one Spark job, which stops at the ``limit``."""
    there = records.where(f"json_object_keys({_root(part, roots)}) IS NOT NULL")
    return [row[part] for row in there.select(part).limit(limit).collect()]


def counted(
    records: DataFrame, part: Literal["value", "key"], fields: Sequence[Unmatched], roots: Sequence[tuple[str, ...]]
) -> list[Unmatched]:
    """Those of the fields that are in none of all ``records``, with numbers of all of them. Runs one Spark job."""
    text = _root(part, roots)
    sums: dict[str, str] = {}
    for index, field in enumerate(fields):
        keys = f"transform(json_object_keys({_at(text, field.path[:-1])}), name -> lower(name))"
        sums[f"among_{index}"] = f"count_if({keys} IS NOT NULL)"
        for number, name in enumerate((field.path[-1], *field.unknown)):
            sums[f"has_{index}_{number}"] = f"count_if(array_contains({keys}, {literal(name.lower())}))"
    row = records.selectExpr(*(f"{sql} AS {name}" for name, sql in sums.items())).first()
    assert row is not None
    return [
        Unmatched(
            field.path,
            row[f"among_{index}"],
            {
                name: row[f"has_{index}_{number}"]
                for number, name in enumerate(field.unknown, 1)
                if row[f"has_{index}_{number}"]
            },
            field.countable,
        )
        for index, field in enumerate(fields)
        if row[f"among_{index}"] and not row[f"has_{index}_0"]
    ]


def _object(value: bytes | None, roots: Sequence[tuple[str, ...]]) -> dict[str, Any] | None:
    try:
        found = json.loads(value or b"")
    except (ValueError, RecursionError):
        return None
    for root in roots:
        inner = found
        for name in root:
            inner = _value(inner, name) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            return inner
    return None


def _missing(
    schema: StructType, objects: Sequence[Mapping[str, Any]], path: tuple[str, ...], *, countable: bool
) -> Iterator[Unmatched]:
    there = Counter(name for each in objects for name in each)
    known = {name.lower() for name in schema.names}
    unknown = {name: count for name, count in there.most_common(_MANY) if name.lower() not in known}
    for field in schema:
        at, lower = (*path, field.name), field.name.lower()
        values = [_value(each, field.name) for each in objects if any(name.lower() == lower for name in each)]
        if not values:
            yield Unmatched(at, len(objects), unknown, countable)
            continue
        inner, direct = _struct(field.dataType)
        if inner is not None:
            structs = list(_dicts(field.dataType, values))
            if structs:
                yield from _missing(inner, structs, at, countable=countable and direct)


def _struct(kind: DataType) -> tuple[StructType | None, bool]:
    """The STRUCT in a field of this type, and whether it is the field itself."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return kind, True
    if isinstance(kind, ArrayType):
        return _struct(kind.elementType)[0], False
    return (_struct(kind.valueType)[0], False) if isinstance(kind, MapType) else (None, False)


def _dicts(kind: DataType, values: Iterable[Any]) -> Iterator[dict[str, Any]]:
    from pyspark.sql.types import ArrayType, MapType

    for value in values:
        if isinstance(kind, ArrayType):
            yield from _dicts(kind.elementType, value if isinstance(value, list) else ())
        elif isinstance(kind, MapType):
            yield from _dicts(kind.valueType, value.values() if isinstance(value, dict) else ())
        elif isinstance(value, dict):
            yield value


def _value(object: Mapping[str, Any], name: str) -> Any:
    """The field's value, as the decoder takes it: the case matters only where the name is there in several."""
    alike = [value for other, value in object.items() if other.lower() == name.lower()]
    return object.get(name, alike[0] if alike else None)


def _root(part: str, roots: Sequence[tuple[str, ...]]) -> str:
    """SQL of the text of the object with the fields."""
    text = f"CAST({part} AS STRING)"
    return f"coalesce({', '.join(_at(text, path) for path in roots)})"


def _at(text: str, path: Sequence[str]) -> str:
    """SQL of the text of the value at a path of names in any case, null if there is none."""
    for name in path:
        entries = f"map_entries(from_json({text}, 'MAP<STRING, STRING>'))"
        exact = f"filter({entries}, each -> each.key = {literal(name)})"
        alike = f"filter({entries}, each -> lower(each.key) = {literal(name.lower())})"
        text = f"get(concat({exact}, {alike}), 0).value"
    return text


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))
