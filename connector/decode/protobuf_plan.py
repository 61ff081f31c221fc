"""How a Protobuf message becomes columns, as the bytes that the Java class ``lakelock.protobuf.Plan`` reads.

The plan has the wire types, the names of enums, and what stands for an absent field, so that executors need no schema
and no library. Numbers are four bytes, a text comes after its number of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connector.decode.protobuf_columns import ENUM, GROUP, MESSAGE, TIMESTAMP, WRAPPERS, is_map
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

    from connector.decode.protobuf_schema import Message

# In the order of the Java class.
_STRUCT, _TIMESTAMP, _WRAPPER = 0, 1, 2
_SINGLE, _REPEATED, _MAP = 0, 1, 2
_DEFAULT, _NULL, _REQUIRED = 0, 1, 2
_INT, _BIGINT, _DECIMAL, _REAL, _WIDE, _TEXT, _OTHER = range(7)
_FLOAT, _DOUBLE, _BOOL, _STRING, _BYTES = 2, 1, 8, 9, 12
_NAMES = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string",
    12: "bytes", 13: "uint32", 14: "enum", 15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64",
}  # fmt: skip


class Misfit(Exception):
    """No message can be read as these columns: why, as in "field id is string, which can't be read as BIGINT"."""


class MessagePlan:
    """The plan of one message."""

    def __init__(self, message: Message, columns: StructType) -> None:
        """Raises Misfit."""
        self.missing: list[str] = []
        """The paths of columns that the message has no field for. They are null."""
        self._out = bytearray()
        self._struct(message, columns, "")

    @property
    def bytes(self) -> bytes:
        """The message's part of a plan."""
        return bytes(self._out)

    def _number(self, *numbers: int) -> None:
        for number in numbers:
            self._out += number.to_bytes(4, "big", signed=True)

    def _text(self, text: str) -> None:
        self._out += _with_length(text)

    def _struct(self, message: Message, columns: StructType, path: str) -> None:
        found: list[tuple[Any, int, StructField | None]] = []
        for index, column in enumerate(columns):
            at = f"{path}.{column.name}" if path else column.name
            field = _field_of(message, column.name, at)
            if field is not None:
                found.append((field, index, column))
                continue
            if not column.nullable:
                raise Misfit(f"{message.full_name} has no field {at}, whose column is NOT NULL")
            self.missing.append(at)
        known = {field.number for field, _, _ in found}
        # A later member of a oneof replaces an earlier one, whether or not a column takes it.
        oneofs = {field.containing_oneof.name for field, _, _ in found if field.containing_oneof is not None}
        others = [
            field
            for oneof in message.oneofs
            for field in oneof.fields
            if oneof.name in oneofs and field.number not in known
        ]
        fields = [*found, *((field, -1, None) for field in others)]
        slots = {field.number: slot for slot, (field, _, _) in enumerate(fields)}
        self._number(_STRUCT, len(columns), len(fields))
        for field, index, column_or_none in fields:
            self._field(field, index, column_or_none, slots, path)

    def _field(self, field: Any, index: int, column: StructField | None, slots: Mapping[int, int], path: str) -> None:
        at = f"{path}.{field.name}" if path else field.name
        if field.type == GROUP:
            raise Misfit(f"field {at} is a group, which Lakelock doesn't read")
        self._number(field.number, index)
        self._text(field.name)
        shape = _MAP if is_map(field) else _REPEATED if field.is_repeated else _SINGLE
        required = field.is_required or (column is not None and not column.nullable)
        presence = _REQUIRED if required else _NULL if field.has_presence else _DEFAULT
        members = field.containing_oneof.fields if field.containing_oneof is not None else ()
        rivals = [slots[each.number] for each in members if each.number != field.number]
        self._number(shape, presence, len(rivals), *rivals)
        if column is None:
            self._passed_over(field)
        elif shape == _MAP:
            self._map(field, column.dataType, at)
        elif shape == _REPEATED:
            self._value(field, _element(column.dataType, at), at)
        else:
            self._value(field, column.dataType, at)

    def _passed_over(self, field: Any) -> None:
        """A field that no column takes: only its wire type counts."""
        self._number(0, _BYTES if field.type == MESSAGE else field.type, _OTHER)
        self._text("")
        self._number(0)

    def _map(self, field: Any, kind: DataType, path: str) -> None:
        from pyspark.sql.types import MapType

        if not isinstance(kind, MapType):
            raise _cannot(path, "a map", kind)
        self._number(1, _STRUCT, 2, 2)
        for index, (name, part) in enumerate((("key", kind.keyType), ("value", kind.valueType))):
            self._part(field.message_type.fields_by_name[name], index, part, path)

    def _part(self, field: Any, index: int, kind: DataType, path: str) -> None:
        """A field that has its default where it isn't there."""
        self._number(field.number, index)
        self._text(field.name)
        self._number(_SINGLE, _DEFAULT, 0)
        self._value(field, kind, path)

    def _value(self, field: Any, kind: DataType, path: str) -> None:
        from pyspark.sql.types import StructType, TimestampType

        if field.type != MESSAGE:
            self._scalar(field, kind, path)
            return
        message = field.message_type
        self._number(1)
        if isinstance(kind, StructType):
            self._struct(message, kind, path)
        elif message.full_name == TIMESTAMP and isinstance(kind, TimestampType):
            self._number(_TIMESTAMP, 2, 2)
            for index, (name, target) in enumerate((("seconds", _BIGINT), ("nanos", _INT))):
                part = message.fields_by_name[name]
                self._number(part.number, index)
                self._text(name)
                self._number(_SINGLE, _DEFAULT, 0, 0, part.type, target)
                self._text("")
                self._number(0)
        elif message.full_name in WRAPPERS:
            self._number(_WRAPPER, 1, 1)
            self._part(message.fields_by_name["value"], 0, kind, path)
        else:
            raise _cannot(path, f"the message {message.full_name}", kind)

    def _scalar(self, field: Any, kind: DataType, path: str) -> None:
        target = _target(field.type, kind)
        if target is None:
            raise _cannot(path, _NAMES[field.type], kind)
        self._number(0, field.type, target)
        if field.type != ENUM:
            self._text("")
            self._number(0)
            return
        names: dict[int, str] = {}
        for value in field.enum_type.values:
            names.setdefault(value.number, value.name)  # an alias comes later
        self._text(field.enum_type.full_name)
        self._number(len(names))
        for number, name in names.items():
            self._number(number)
            self._text(name)


def _target(type: int, kind: DataType) -> int | None:
    """How a value of this type is kept in a column. None: it isn't."""
    from pyspark.sql import types as T

    if type in (_FLOAT, _DOUBLE):
        wide = _WIDE if isinstance(kind, T.DoubleType) else None
        return _REAL if type == _FLOAT and isinstance(kind, T.FloatType) else wide
    if type == _BOOL:
        return _OTHER if isinstance(kind, T.BooleanType) else None
    if type == _BYTES:
        return _OTHER if isinstance(kind, T.BinaryType) else None
    if type == _STRING or (type == ENUM and isinstance(kind, T.StringType)):
        return _TEXT if type_is_string(kind) else None
    if isinstance(kind, T.DecimalType):
        return _DECIMAL if kind.scale == 0 and kind.precision >= 20 else None
    return _BIGINT if isinstance(kind, T.LongType) else _INT if isinstance(kind, T.IntegerType) else None


def type_is_string(kind: DataType) -> bool:
    """Whether a column is a plain STRING. A CHAR or VARCHAR is none: it has a length."""
    from pyspark.sql.types import StringType

    return type(kind) is StringType


def _element(kind: DataType, path: str) -> DataType:
    from pyspark.sql.types import ArrayType

    if not isinstance(kind, ArrayType):
        raise _cannot(path, "repeated", kind)
    return kind.elementType


def _cannot(path: str, what: str, kind: DataType) -> Misfit:
    return Misfit(f"field {path} is {what}, which can't be read as {sql_type(kind).upper()}")


def _field_of(message: Message, name: str, path: str) -> Any | None:
    """The field of a column: of its name, else of its name in another case."""
    if name in message.fields_by_name:
        return message.fields_by_name[name]
    alike = [field for field in message.fields if field.name.lower() == name.lower()]
    if len(alike) > 1:
        raise Misfit(f"{message.full_name} has {path} in several cases, none of which is the column's")
    return alike[0] if alike else None


def _with_length(text: str) -> bytes:
    found = text.encode()
    return len(found).to_bytes(4, "big") + found


def of_one(name: str, message: bytes) -> bytes:
    """The plan for records without a header, all of one message with this full name."""
    return _plan(0, [_schema(0, name, "", {}, message)])


def of_several(schemas: Mapping[int, tuple[str, Mapping[str, str], bytes]]) -> bytes:
    """The plan for records with Confluent's header: of each ID the name of the message that is read, the names of all
    messages by their indexes, and its plan."""
    parts = []
    for schema_id, (name, paths, message) in schemas.items():
        taken = next(path for path, other in paths.items() if other == name)
        parts.append(_schema(schema_id, name, taken, paths, message))
    return _plan(1, parts)


def _plan(framed: int, schemas: Sequence[bytes]) -> bytes:
    return framed.to_bytes(4, "big") + len(schemas).to_bytes(4, "big") + b"".join(schemas)


def _schema(schema_id: int, name: str, taken: str, paths: Mapping[str, str], message: bytes) -> bytes:
    names = b"".join(_with_length(path) + _with_length(other) for path, other in paths.items())
    head = schema_id.to_bytes(4, "big") + _with_length(name) + _with_length(taken)
    return head + len(paths).to_bytes(4, "big") + names + message
