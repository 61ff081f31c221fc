"""Protobuf, as the auditor reads it: by Google's library for Python, on the executors.

For the columns that a table has, each schema is turned into one that hides nothing: every number has 64 bits, texts are
bytes, enums are numbers, maps are lists of entries, and every field says whether it was there. What Protobuf would cut,
replace or pass over in silence is seen then, and such a record isn't readable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from connector.audit.avro_schema import arrow_type
from connector.audit.batches import headers, with_column
from connector.audit.protobuf_schema import (
    Message,
    OfProtobuf,
    descriptors,
    is_mapped,
    is_time,
    is_wrapper,
    own_messages,
    pool_of,
)
from sinks.errors import UnusableSchema

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, MapType, StructType

Make: TypeAlias = Callable[[Any], Any]
Way: TypeAlias = tuple[tuple[int, ...], type, Make]
"""The indexes of a message, its class, and what its objects become."""

_HEADER = 5


class _Unfit(Exception):
    """A value, or every value with a schema, can't be read."""


def _unfit(*why: object) -> NoReturn:
    raise _Unfit(*why)


@dataclass(frozen=True)
class Protobuf:
    """Kafka's value or key in Protobuf. One of ``content``, the set of descriptor files, and ``schemas`` is there."""

    type: StructType
    message: str
    content: bytes = b""
    schemas: OfProtobuf | None = None

    def read(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """``records`` with the column ``into``: STRUCT<value>, or null where no value can be read.

        Asks for the schema of each header that the records have. Raises RegistryUnreachable, ConfigurationError.
        """
        from pyspark.sql import types as T

        known = self._known(records, column)
        name, kind, framed = self.message, self.type, self.schemas is not None
        schema = T.StructType([*records.schema.fields, T.StructField(into, T.StructType().add("value", kind))])

        def decode(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
            yield from decoded(batches, column, into, known, name, kind, framed=framed)

        return records.mapInArrow(decode, schema)

    def _known(self, records: DataFrame, column: str) -> Mapping[bytes, bytes]:
        """Header -> its descriptor files: of the headers that most records have, as corrupt ones may have any."""
        if self.schemas is None:
            return {b"": self.content}
        texts = {each: self.schemas.of(each) for each in headers(records, column, _HEADER)}
        made = {each: descriptors(found) for each, found in texts.items() if found is not None}
        return {each: content for each, content in made.items() if content is not None}


def decoded(
    batches: Iterable[RecordBatch],
    column: str,
    into: str,
    known: Mapping[bytes, bytes],
    name: str,
    kind: StructType,
    *,
    framed: bool,
) -> Iterator[RecordBatch]:
    """On an executor: the batches with one more column. ``known``: of each header its descriptor files."""
    import pyarrow

    arrow = pyarrow.struct([("value", arrow_type(kind))])
    ways = {header: found for header, each in known.items() if (found := way(each, name, kind, framed=framed))}
    length = _HEADER if framed else 0

    def value_of(content: bytes | None) -> dict[str, Any] | None:
        found = ways.get(content[:length]) if content is not None else None
        if found is None or content is None:
            return None
        (taken, parse, make), at = found, length
        try:
            if framed:
                indexes, at = _indexes(content, at)
                if indexes != taken:
                    return None
            return {"value": make(parse.FromString(content[at:]))}  # type: ignore[attr-defined]
        except Exception:  # whatever bytes that are no message make it say
            return None

    yield from with_column(batches, column, into, arrow, value_of)


def _indexes(content: bytes, at: int) -> tuple[tuple[int, ...], int]:
    count, at = _number(content, at)
    found = []
    for _ in range(count):
        each, at = _number(content, at)
        found.append(each)
    return tuple(found) if found or count < 0 else (0,), at


def _number(content: bytes, at: int) -> tuple[int, int]:
    """The number at ``at``, where the sign comes last, and where it ends."""
    found = 0
    for place in range(10):
        byte = content[at + place]
        found |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at + place + 1
    raise _Unfit


def way(content: bytes, name: str, kind: StructType, *, framed: bool) -> Way | None:
    """How the message with this name is read with a set of descriptor files. None: it can't be."""
    try:
        pool = pool_of(content)
        if not framed:
            return ((), *_Wide().reading(pool.FindMessageTypeByName(name), kind))
        at, message = next(((at, each) for at, each in own_messages(pool) if each.full_name == name), ((), None))
        return (at, *_Wide().reading(message, kind)) if message is not None else None
    except (_Unfit, UnusableSchema, KeyError):
        return None


class _Wide:
    """Makes the schema that hides nothing, and what its messages become."""

    def __init__(self) -> None:
        from google.protobuf import descriptor_pb2

        self._file = descriptor_pb2.FileDescriptorProto(name="wide.proto", package="wide", syntax="proto2")

    def reading(self, message: Message, kind: StructType) -> tuple[type, Make]:
        """Raises _Unfit: no value fits."""
        from google.protobuf import descriptor_pool, message_factory

        name, make = self._struct(message, kind)
        pool = descriptor_pool.DescriptorPool()
        pool.Add(self._file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name)), make

    def _struct(self, message: Message, kind: StructType) -> tuple[str, Make]:
        """The name of the wide message, and what it becomes: the values of the columns, by their names."""
        wanted = {column.name: self._named(message, column.name) for column in kind}
        if any(wanted[column.name] is None and not column.nullable for column in kind):
            raise _Unfit
        fields = [(field, kind[name]) for name, field in wanted.items() if field is not None]
        wide = self._begun()
        numbers = {field.number for field, _ in fields}
        rivals = {
            each.number: each
            for field, _ in fields
            if field.containing_oneof is not None
            for each in field.containing_oneof.fields
        }
        oneofs: dict[str, int] = {}
        makes: dict[str, Make] = {name: lambda _: None for name, field in wanted.items() if field is None}
        for field, column in fields:
            makes[column.name] = self._field(wide, oneofs, field, column.dataType, nullable=column.nullable)
        for number, field in rivals.items():
            if number not in numbers:
                self._added(wide, oneofs, field, "TYPE_BYTES" if field.message_type is not None else _WIDE[field.type])
        return f"wide.{wide.name}", self._whole(makes, numbers)

    def _whole(self, makes: Mapping[str, Make], numbers: set[int]) -> Make:
        from google.protobuf.unknown_fields import UnknownFieldSet

        def make(found: Any) -> dict[str, Any]:
            # A field that was written as another type is no field of its schema to the library.
            unknown: Any = UnknownFieldSet(found)
            if any(each.field_number in numbers for each in unknown):
                raise _Unfit
            return {name: of(found) for name, of in makes.items()}

        return make

    def _begun(self) -> Any:
        return self._file.message_type.add(name=f"M{len(self._file.message_type)}")

    @staticmethod
    def _named(message: Message, name: str) -> Any:
        if name in message.fields_by_name:
            return message.fields_by_name[name]
        alike = [field for field in message.fields if field.name.lower() == name.lower()]
        return alike[0] if len(alike) == 1 else None if not alike else _unfit(name)

    @staticmethod
    def _added(wide: Any, oneofs: dict[str, int], field: Any, kind: str, of: str | None = None) -> str:
        """Add a field to the wide message. Returns its name."""
        if field.type == field.TYPE_GROUP:
            raise _Unfit
        made = wide.field.add(name=f"f{field.number}", number=field.number)
        made.label = made.LABEL_REPEATED if field.is_repeated else made.LABEL_OPTIONAL
        made.type = getattr(made, kind)
        if of is not None:
            made.type_name = f".{of}"
        if field.containing_oneof is not None:
            name = field.containing_oneof.name
            if name not in oneofs:
                oneofs[name] = len(wide.oneof_decl)
                wide.oneof_decl.add(name=f"o{len(oneofs)}")
            made.oneof_index = oneofs[name]
        return str(made.name)

    def _field(self, wide: Any, oneofs: dict[str, int], field: Any, kind: DataType, *, nullable: bool) -> Make:
        """Of a wide message the value of one column."""
        from pyspark.sql.types import ArrayType, MapType

        if is_mapped(field):
            if not isinstance(kind, MapType):
                raise _Unfit
            entry, pair = self._entry(field.message_type, kind)
            name = self._added(wide, oneofs, field, "TYPE_MESSAGE", entry)
            return lambda found: list(dict(pair(each) for each in getattr(found, name)).items())
        if field.is_repeated:
            if not isinstance(kind, ArrayType):
                raise _Unfit
            of, make = self._value(field, kind.elementType)
            name = self._added(wide, oneofs, field, *of)
            return lambda found: [make(each) for each in getattr(found, name)]
        of, make = self._value(field, kind)
        name = self._added(wide, oneofs, field, *of)
        required, present = field.is_required or not nullable, field.has_presence

        def single(found: Any) -> Any:
            if found.HasField(name) or not (required or present):
                return make(getattr(found, name))
            return _unfit(name) if required else None

        return single

    def _entry(self, entry: Message, kind: MapType) -> tuple[str, Make]:
        wide = self._begun()
        parts = []
        for name, part in (("key", kind.keyType), ("value", kind.valueType)):
            field = entry.fields_by_name[name]
            of, make = self._value(field, part)
            parts.append((self._added(wide, {}, field, *of), make))

        def pair(found: Any) -> tuple[Any, Any]:
            key, value = (make(getattr(found, name)) for name, make in parts)
            return key, value

        whole = self._whole({"pair": pair}, {1, 2})
        return f"wide.{wide.name}", lambda found: whole(found)["pair"]

    def _value(self, field: Any, kind: DataType) -> tuple[tuple[str, str | None], Make]:
        """The type of the wide field, and what one of its values becomes."""
        from pyspark.sql import types as T

        message = field.message_type
        if message is None:
            return (_WIDE[field.type], None), _scalar(field, kind)
        if isinstance(kind, T.StructType):
            name, make = self._struct(message, kind)
            return ("TYPE_MESSAGE", name), make
        if is_time(message) and isinstance(kind, T.TimestampType):
            parts = T.StructType().add("seconds", T.LongType()).add("nanos", T.IntegerType())
            name, make = self._struct(message, parts)
            return ("TYPE_MESSAGE", name), lambda found: _micros(**make(found))
        if is_wrapper(message):
            name, make = self._struct(message, T.StructType().add("value", kind))
            return ("TYPE_MESSAGE", name), lambda found: make(found)["value"]
        raise _Unfit


_WIDE = {
    1: "TYPE_DOUBLE", 2: "TYPE_FLOAT", 3: "TYPE_INT64", 4: "TYPE_UINT64", 5: "TYPE_INT64", 6: "TYPE_FIXED64",
    7: "TYPE_FIXED32", 8: "TYPE_UINT64", 9: "TYPE_BYTES", 10: "TYPE_GROUP", 12: "TYPE_BYTES", 13: "TYPE_UINT64",
    14: "TYPE_INT64", 15: "TYPE_SFIXED32", 16: "TYPE_SFIXED64", 17: "TYPE_SINT64", 18: "TYPE_SINT64",
}  # fmt: skip
_BITS_32 = {5: (-(2**31), 2**31), 13: (0, 2**32), 14: (-(2**31), 2**31), 17: (-(2**31), 2**31), 8: (0, 2)}
"""Of the types that are wider now: the numbers that they have."""


def _micros(seconds: int, nanos: int) -> int:
    if not -62135596800 <= seconds < 253402300800 or not 0 <= nanos < 10**9 or nanos % 1000:
        raise _Unfit
    return seconds * 10**6 + nanos // 1000


def _scalar(field: Any, kind: DataType) -> Make:
    from pyspark.sql import types as T

    wanted: tuple[type, ...] = {
        field.TYPE_DOUBLE: (T.DoubleType,), field.TYPE_FLOAT: (T.FloatType, T.DoubleType),
        field.TYPE_BOOL: (T.BooleanType,), field.TYPE_STRING: (T.StringType,), field.TYPE_BYTES: (T.BinaryType,),
        field.TYPE_ENUM: (T.StringType, T.IntegerType, T.LongType, T.DecimalType),
    }.get(field.type, (T.IntegerType, T.LongType, T.DecimalType))  # fmt: skip
    if type(kind) not in wanted or (isinstance(kind, T.DecimalType) and (kind.scale or kind.precision < 20)):
        raise _Unfit
    if field.type in (field.TYPE_DOUBLE, field.TYPE_FLOAT, field.TYPE_BYTES):
        return lambda value: value
    if field.type == field.TYPE_STRING:
        return lambda value: value.decode("utf-8")
    names = {each.number: each.name for each in reversed(list(field.enum_type.values))} if field.enum_type else {}
    low, high = _BITS_32.get(field.type, (-(2**63), 2**64))
    bits = 31 if isinstance(kind, T.IntegerType) else 63 if isinstance(kind, T.LongType) else 99

    def whole(value: int) -> Any:
        if not low <= value < high:
            raise _Unfit
        if isinstance(kind, T.BooleanType):
            return bool(value)
        if isinstance(kind, T.StringType):
            return names[value]
        if not -(2**bits) <= value < 2**bits:
            raise _Unfit
        return Decimal(value) if isinstance(kind, T.DecimalType) else value

    return whole
