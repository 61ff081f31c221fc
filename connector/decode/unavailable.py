"""Debezium's placeholder for a value that the database didn't send: a large column that an update left as it was.

PostgreSQL keeps large values beside the row, and its log has them only if they change. Debezium then sends the
placeholder, in a form that depends on the column's type, and on ``binary.handling.mode``.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from sinks.spark.sql import literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def unavailable(value: str, kind: DataType, placeholder: str) -> str | None:
    """SQL: whether a column's value is the placeholder. None: a column of this type has no such form."""
    from pyspark.sql.types import ArrayType, BinaryType, IntegralType, MapType, StringType

    encoded = placeholder.encode()
    if isinstance(kind, StringType):
        forms = (
            placeholder,
            base64.b64encode(encoded).decode(),
            base64.urlsafe_b64encode(encoded).decode(),
            encoded.hex(),
        )
        return f"{value} IN ({', '.join(literal(form) for form in dict.fromkeys(forms))})"
    if isinstance(kind, BinaryType):
        return f"{value} = X'{encoded.hex()}'"
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType):
        return f"{value} = array({literal(placeholder)})"
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, IntegralType):
        return f"{value} = CAST(array({', '.join(map(str, encoded))}) AS {sql_type(kind)})"
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return f"map_keys({value}) = array({literal(placeholder)})"
    return None
