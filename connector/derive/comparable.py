"""Which values a history can compare, so that it can tell whether they have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def incomparable(data_type: DataType) -> str:
    """In words, why values of the type can't be compared; empty: they can."""
    from pyspark.sql.types import ArrayType, StructType

    inner: list[DataType] = []
    if isinstance(data_type, StructType):
        inner = [field.dataType for field in data_type]
    elif isinstance(data_type, ArrayType):
        inner = [data_type.elementType]
    elif data_type.typeName() in ("map", "variant"):
        return f"is a {data_type.typeName().upper()}"
    return next((f"holds{why.removeprefix('is').removeprefix('holds')}" for why in map(incomparable, inner) if why), "")
