"""The columns of a Protobuf message, where the pipeline file doesn't declare them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connector.config import OWN_COLUMNS
from sinks.errors import UnusableSchema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from connector.decode.protobuf_schema import Message

GROUP, MESSAGE, ENUM = 10, 11, 14
"""Of ``FieldDescriptor.type``. Editions call a group a delimited message."""
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages that hold one value, which may then be null."""
_COLUMNS = {
    1: "DOUBLE", 2: "FLOAT", 3: "BIGINT", 4: "DECIMAL(20,0)", 5: "INT", 6: "DECIMAL(20,0)", 7: "BIGINT", 8: "BOOLEAN",
    9: "STRING", 12: "BINARY", 13: "BIGINT", ENUM: "STRING", 15: "INT", 16: "BIGINT", 17: "INT", 18: "BIGINT",
}  # fmt: skip
"""By ``FieldDescriptor.type``. Each holds every value of its type."""


def is_map(field: Any) -> bool:
    """Whether a field is a map."""
    return field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry


def columns_of(message: Message) -> StructType:
    """A column for each field. Raises UnusableSchema for a field that no column can hold."""
    return _struct(message, "", ())


def _struct(message: Message, path: str, above: tuple[str, ...]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    above = (*above, message.full_name)
    fields, taken = [], dict[str, str]()
    for field in message.fields:
        at = f"{path}.{field.name}" if path else field.name
        if not path and field.name.lower() in OWN_COLUMNS:
            raise _without(at, f"has the name of a column that Lakelock itself uses ({', '.join(OWN_COLUMNS)})")
        other = taken.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise _without(at, f"has the name of the field {other} but for its case, and columns have no case")
        fields.append(StructField(field.name, _type(field, at, above)))
    if not fields:
        raise _without(path, f"is the message {message.full_name}, which has no fields, so no column can hold it")
    return StructType(fields)


def _type(field: Any, path: str, above: tuple[str, ...]) -> DataType:
    from pyspark.sql.types import ArrayType, MapType

    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return MapType(_single(key, path, above), _single(value, path, above))
    kind = _single(field, path, above)
    return ArrayType(kind) if field.is_repeated else kind


def _single(field: Any, path: str, above: tuple[str, ...]) -> DataType:
    from pyspark.sql.types import TimestampType

    if field.type == GROUP:
        raise _without(path, "is a group, which Lakelock doesn't read")
    if field.type != MESSAGE:
        return _plain(_COLUMNS[field.type])
    message = field.message_type
    if message.full_name == TIMESTAMP:
        return TimestampType()
    if message.full_name in WRAPPERS:
        return _plain(_COLUMNS[message.fields_by_name["value"].type])
    if message.full_name in above:
        raise _without(path, f"is the message {message.full_name}, which contains itself, and columns can't")
    return _struct(message, path, above)


def _plain(name: str) -> DataType:
    from pyspark.sql import types as T

    plain = {
        "DOUBLE": T.DoubleType(), "FLOAT": T.FloatType(), "BIGINT": T.LongType(), "INT": T.IntegerType(),
        "BOOLEAN": T.BooleanType(), "STRING": T.StringType(), "BINARY": T.BinaryType(),
        "DECIMAL(20,0)": T.DecimalType(20, 0),
    }  # fmt: skip
    return plain[name]


def _without(path: str, why: str) -> UnusableSchema:
    which = f"The field {path}" if path else "It"
    return UnusableSchema(
        f"The Protobuf message has no columns by itself. {which} {why}.",
        hint='Declare the columns without that field: schema: "id BIGINT, ...".',
    )
