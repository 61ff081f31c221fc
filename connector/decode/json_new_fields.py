"""New fields of JSON objects: their names and types, learned from the records that have them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from connector.config import OWN_COLUMNS
from connector.spark.compat import from_ddl
from sinks.spark.types import names, needs_column_mapping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType


def learned(records: DataFrame, known: StructType) -> tuple[list[StructField], set[str]]:
    """The fields of the JSON objects in ``bytes`` that ``known`` lacks, with types that fit all of their values, and
    the names of fields that can't become columns. Runs one Spark job.

    Whole numbers become BIGINT, or DECIMAL(38,0) if they are too large, other numbers DOUBLE. A field that is always
    null or empty so far, or of several types, becomes STRING, which takes any value.
    """
    from pyspark.sql.types import StructType

    text = "CAST(bytes AS STRING)"
    objects = records.where(f"json_object_keys({text}) IS NOT NULL")
    row = objects.selectExpr(f"schema_of_variant_agg(try_parse_json({text})) AS found").first()
    kind = from_ddl(f"found {_as_ddl(row['found'] if row else 'VOID')}")
    assert isinstance(kind, StructType)
    found = kind["found"].dataType
    taken, own = {name.lower() for name in known.names}, {name.lower() for name in OWN_COLUMNS}
    fields, refused = [], set()
    for each in found.fields if isinstance(found, StructType) else ():
        if each.name.lower() in own or not _takes(each):
            refused.add(each.name)
        elif each.name.lower() not in taken:
            taken.add(each.name.lower())
            fields.append(each)
    return fields, refused


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


def _as_ddl(variant: str) -> str:
    """Turn a type as ``schema_of_variant`` writes it into a column's type."""

    def typed(found: re.Match[str]) -> str:
        if found["scale"] is not None:
            return "DECIMAL(38,0)" if found["scale"] == "0" else "DOUBLE"
        return {"OBJECT": "STRUCT", "VARIANT": "STRING", "VOID": "STRING"}.get(found[0], found[0])

    variant = variant.replace("OBJECT<>", "STRING")
    return re.sub(r"`(?:[^`]|``)*`|\w+(?=:)|DECIMAL\(\d+,\s*(?P<scale>\d+)\)|\w+", typed, variant)
