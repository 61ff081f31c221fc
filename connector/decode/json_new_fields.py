"""New fields of JSON objects: their names and types, learned from the records that have them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from connector.config import OWN_COLUMNS
from connector.decode.json_names import Path
from connector.spark.compat import from_ddl
from sinks.spark.sql import literal
from sinks.spark.types import names, needs_column_mapping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField, StructType


@dataclass(frozen=True)
class Rows:
    """The objects whose fields become columns. All have the same type, that of the first one."""

    paths: Sequence[Path] = ((),)
    reserved: Collection[str] = ()
    """Names of other columns, which no field can have."""


_EXACT = 15
"""Digits that a DOUBLE holds, whichever they are."""
_OF_BIGINT = 20
"""Digits before the point of a DECIMAL that stands for both whole numbers and others."""
LONG = {
    "fractions": r"(?=[\d.]{17,})\d+[.]\d+|(?=[\d.]{16,})[\d.]+[eE]",
    "wholes": r"(?<![\d.])(?:\d{17,}|9\d{15})(?![\d.eE])",
}
"""What a text looks like with numbers, with a fraction or without, that a DOUBLE may not hold. Others may look so too:
a STRING takes any number."""

OUTERMOST = Rows()
"""The value itself is the row."""


def learned(records: DataFrame, known: StructType, rows: Rows) -> tuple[StructType, set[Path]]:
    """``known`` with the fields that the JSON objects in ``bytes`` have, with types that fit all of their values, and
    the paths of fields that can't become columns. Runs one Spark job.

    Whole numbers become BIGINT, or DECIMAL(38,0) if they are too large, other numbers DOUBLE. A field that is always
    null or empty so far, of several types, or of numbers that a DOUBLE may not hold, becomes STRING, which takes any
    value.
    """
    from pyspark.sql.types import StructType

    texts = ", ".join(map(_text_at, rows.paths))
    objects = records.selectExpr(f"explode(array({texts})) AS text").where("json_object_keys(text) IS NOT NULL")
    row = objects.selectExpr(
        "schema_of_variant_agg(try_parse_json(text)) AS found",
        *(f"coalesce(bool_or(text RLIKE {literal(each)}), false) AS {name}" for name, each in LONG.items()),
    ).first()
    assert row is not None
    kind = from_ddl(f"found {as_ddl(row['found'], fractions=row['fractions'], wholes=row['wholes'])}")
    assert isinstance(kind, StructType)
    refused: set[Path] = set()
    own = {name.lower() for name in (*OWN_COLUMNS, *rows.reserved)}

    def takes(field: StructField, at: Path) -> bool:
        taken = _takes(field) and not (at == () and field.name.lower() in own)
        refused.update(() if taken else ((*path, *at, field.name) for path in rows.paths))
        return taken

    whole: DataType = known
    more = grown(_at(known, rows.paths[0]), kind["found"].dataType, takes)
    for path in rows.paths:
        whole = _replaced(whole, path, more)
    assert isinstance(whole, StructType)
    return whole, refused


def grown(
    kind: DataType, found: DataType, takes: Callable[[StructField, Path], bool] = lambda *_: True, at: Path = ()
) -> DataType:
    """The type ``kind``, with the fields that only ``found`` has, inside of it and at any depth. ``takes`` says of such
    a field, and of the path of its STRUCT, whether it is added."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(kind, ArrayType) and isinstance(found, ArrayType):
        return ArrayType(grown(kind.elementType, found.elementType, takes, at), kind.containsNull)
    if isinstance(kind, MapType):
        values = [found.valueType] if isinstance(found, MapType) else []
        values = [each.dataType for each in found] if isinstance(found, StructType) else values
        inner = reduce(lambda one, other: grown(one, other, takes, at), values, kind.valueType)
        return MapType(kind.keyType, inner, kind.valueContainsNull)
    if not isinstance(kind, StructType) or not isinstance(found, StructType):
        return kind
    fields = {each.name.lower(): each for each in kind}
    known = set(fields)
    for each in found:
        name = each.name.lower()
        if name in known:
            old = fields[name]
            inner = grown(old.dataType, each.dataType, takes, (*at, old.name))
            fields[name] = StructField(old.name, inner, old.nullable, old.metadata)
        elif takes(each, at):
            fields.setdefault(name, each)
    return StructType([*fields.values()])


def _text_at(path: Path) -> str:
    text = "CAST(bytes AS STRING)"
    return f"get_json_object({text}, {literal('.'.join(('$', *path)))})" if path else text


def _at(kind: DataType, path: Path) -> DataType:
    from pyspark.sql.types import StructType

    for name in path:
        assert isinstance(kind, StructType)
        kind = kind[name].dataType
    return kind


def _replaced(kind: DataType, path: Path, inner: DataType) -> DataType:
    """The type with another one at the path."""
    from pyspark.sql.types import StructField, StructType

    if not path:
        return inner
    assert isinstance(kind, StructType)
    name, *rest = path
    return StructType(
        [
            StructField(each.name, _replaced(each.dataType, tuple(rest), inner), each.nullable)
            if each.name == name
            else each
            for each in kind
        ]
    )


def _takes(field: StructField) -> bool:
    """Whether a table takes a column of this name and type."""
    from pyspark.sql.types import StructType

    kinds = [field.dataType]
    while kinds:
        kind = kinds.pop()
        if isinstance(kind, StructType):
            if len({name.lower() for name in kind.names}) < len(kind.names):
                return False
            kinds += [each.dataType for each in kind]
        elif hasattr(kind, "elementType"):
            kinds.append(kind.elementType)
    return not any(map(needs_column_mapping, [field.name, *names(field.dataType)]))


def as_ddl(variant: str, *, fractions: bool, wholes: bool) -> str:
    """Turn a type as ``schema_of_variant`` writes it into a column's type. ``fractions`` and ``wholes``: whether there
    may be such numbers that a DOUBLE doesn't hold."""

    def typed(found: re.Match[str]) -> str:
        if found["name"] is not None:
            return found[0]
        if found["scale"] == "0":
            return "DECIMAL(38,0)"
        digits, scale = (int(found[part] or 0) for part in ("digits", "scale"))
        if scale or found[0] == "DOUBLE":
            mixed = found[0] == "DOUBLE" or digits - scale >= _OF_BIGINT
            few = scale and digits <= _EXACT
            return "DOUBLE" if few or not (fractions or (wholes and mixed)) else "STRING"
        return {"OBJECT": "STRUCT", "VARIANT": "STRING", "VOID": "STRING"}.get(found[0], found[0])

    variant = variant.replace("OBJECT<>", "STRING")
    number = r"DECIMAL\((?P<digits>\d+),\s*(?P<scale>\d+)\)"
    return re.sub(rf"(?P<name>`(?:[^`]|``)*`|\w+(?=:))|{number}|\w+", typed, variant)
