"""Spark's types as SQL text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_SPECIAL = re.compile(r"[ ,;{}()\n\t=]")


def needs_column_mapping(name: str) -> bool:
    """Whether Delta takes this name of a column or field only in a table with column mapping."""
    return not name or _SPECIAL.search(name) is not None


def ddl(schema: StructType) -> str:
    """The columns as DDL, with all names quoted."""
    return ", ".join(f"{identifier(field.name)} {sql_type(field.dataType)}" for field in schema)


def sql_type(data_type: DataType) -> str:
    """A type as DDL, with the names of nested fields quoted."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(data_type, StructType):
        fields = ", ".join(f"{identifier(field.name)}: {sql_type(field.dataType)}" for field in data_type)
        return f"STRUCT<{fields}>"
    if isinstance(data_type, ArrayType):
        return f"ARRAY<{sql_type(data_type.elementType)}>"
    if isinstance(data_type, MapType):
        return f"MAP<{sql_type(data_type.keyType)}, {sql_type(data_type.valueType)}>"

    return data_type.simpleString()


def no_rows(spark: SparkSession, columns: Mapping[str, str]) -> DataFrame:
    """An empty DataFrame. ``columns``: their types, as SQL, by name.

    ``createDataFrame`` would make this session the active one: the user's next statement, or the next pipeline, would
    run in Lakelock's session.
    """
    return spark.range(0).selectExpr(*(f"CAST(NULL AS {kind}) AS {identifier(name)}" for name, kind in columns.items()))


def names(data_type: DataType) -> list[str]:
    """The names of all fields, including nested ones."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(data_type, StructType):
        return [name for field in data_type for name in [field.name, *names(field.dataType)]]
    if isinstance(data_type, ArrayType):
        return names(data_type.elementType)
    if isinstance(data_type, MapType):
        return names(data_type.keyType) + names(data_type.valueType)
    return []


def is_utf8(column: str) -> str:
    """SQL that tells whether these bytes are UTF-8 text. Spark would silently put a replacement character otherwise."""
    from pyspark.sql import functions as F

    if hasattr(F, "is_valid_utf8"):
        return f"is_valid_utf8(CAST({column} AS STRING))"
    return f"(encode(decode({column}, 'UTF-8'), 'UTF-8') = {column})"  # before Spark 4
