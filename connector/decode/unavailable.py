"""Debezium's placeholder for a value that the database didn't send: a large column that an update left as it was.

PostgreSQL keeps large values beside the row, and its log has them only if they change. Debezium then sends the
placeholder, in a form that depends on the column's type, and on the connector's ``binary.handling.mode`` and
``hstore.handling.mode``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from decimal import Decimal
from hashlib import md5
from typing import TYPE_CHECKING
from uuid import UUID

from sinks.spark.sql import literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import ArrayType, DataType


def unavailable(value: str, kind: DataType, placeholder: str) -> str | None:
    """SQL: whether a column's value is the placeholder. None: a column of this type has no such form."""
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType

    encoded = placeholder.encode()
    if isinstance(kind, StringType):
        return f"{value} IN ({_literals(_texts(encoded))})"
    if isinstance(kind, BinaryType):
        return f"{value} = X'{encoded.hex()}'"
    if isinstance(kind, ArrayType):
        return _of_array(value, kind, encoded)
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return f"map_keys({value}) = array({literal(placeholder)})"
    if kind.typeName() == "variant":  # Spark 4's
        numbers = [byte - 256 if byte > 127 else byte for byte in encoded]
        forms = [*(each for text in _texts(encoded) for each in (text, [text])), {placeholder: placeholder}, numbers]
        return f"to_json({value}) IN ({_literals(map(_json, forms))})"
    return None


def _texts(encoded: bytes) -> list[str]:
    """Those that stand for a text, for bytes, for an hstore in JSON, and in an array for a UUID."""
    text = encoded.decode()
    forms = (
        text,
        _json({text: text}),
        base64.b64encode(encoded).decode(),
        base64.urlsafe_b64encode(encoded).decode(),
        encoded.hex(),
        str(UUID(bytes=md5(encoded, usedforsecurity=False).digest(), version=3)),
    )
    return list(dict.fromkeys(forms))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _literals(texts: Iterable[str]) -> str:
    return ", ".join(map(literal, texts))


def _of_array(value: str, kind: ArrayType, encoded: bytes) -> str | None:
    """The same of an array. Texts and bytes are its only element; of numbers there is one for each byte."""
    from pyspark.sql.types import BinaryType, DecimalType, NumericType, StringType

    element = kind.elementType
    if isinstance(element, StringType):
        return f"(size({value}) = 1 AND get({value}, 0) IN ({_literals(_texts(encoded))}))"
    if isinstance(element, BinaryType):
        return f"{value} = array(X'{encoded.hex()}')"
    if not isinstance(element, NumericType):
        return None
    signed = [byte - 256 if byte > 127 else byte for byte in encoded]
    # As a DECIMAL each is a whole number, or the digits of one with the column's scale.
    scales = {0, element.scale} if isinstance(element, DecimalType) else {0}
    forms = (", ".join(str(Decimal(byte).scaleb(-scale)) for byte in signed) for scale in sorted(scales))
    return f"({' OR '.join(f'{value} = try_cast(array({form}) AS {sql_type(kind)})' for form in forms)})"


def has_placeholder(kind: DataType) -> bool:
    """Whether a column of this type may have a placeholder."""
    return unavailable("value", kind, "") is not None
