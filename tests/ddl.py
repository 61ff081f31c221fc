"""Types as Spark's DDL has them, for tests without a JVM: those of Debezium's events."""

from __future__ import annotations

import re

from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, StringType, StructField, StructType

_KINDS: dict[str, DataType] = {"STRING": StringType(), "BIGINT": LongType(), "INT": IntegerType()}


def columns_of(ddl: str) -> StructType:
    """In place of ``StructType.fromDDL``."""
    parts = re.findall(r"(\w+):?\s+((?:\w+<[^>]*>)|\w+)", ddl)
    return StructType([StructField(name, _kind_of(kind)) for name, kind in parts])


def _kind_of(ddl: str) -> DataType:
    of, _, inner = ddl.strip().removesuffix(">").partition("<")
    if of == "ARRAY":
        return ArrayType(_kind_of(inner))
    return columns_of(inner) if of == "STRUCT" else _KINDS[of]
