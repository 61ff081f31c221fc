"""Protobuf schemas, as the auditor has them: compiled by protoc, or from a descriptor file, with their columns."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from connector.audit.registries import OfConfluent, Texts, referred
from connector.config import ConfluentRegistry
from sinks.errors import ConfigurationError, UnusableSchema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Message: TypeAlias = Any
"""A message's ``Descriptor``."""
_RECORD = "audited.proto"
_HINT = "pip install 'lakelock[protobuf]', on a cluster protobuf on its executors too."
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = (
    "BoolValue", "BytesValue", "DoubleValue", "FloatValue", "Int32Value", "Int64Value", "StringValue", "UInt32Value",
    "UInt64Value",
)  # fmt: skip


class OfProtobuf(OfConfluent):
    """A registry with .proto sources. Each is a tuple of paths and texts in turns: what it imports, then itself."""

    def __init__(self, options: ConfluentRegistry, part: str) -> None:
        """``part``: key or value."""
        super().__init__(options, part, "PROTOBUF")

    def _texts(self, path: str, depth: int = 0) -> Texts | None:
        answer = self._get(path)
        if not isinstance(answer, dict) or answer.get("schemaType") != "PROTOBUF" or depth > 50:
            return None
        found: dict[str, str] = {}
        for each in answer.get("references") or ():
            inner = self._texts(referred(each, path), depth + 1)
            if inner is None:
                return None
            found |= dict(zip(inner[:-2:2], inner[1:-2:2], strict=True)) | {str(each["name"]): inner[-1]}
        return (*(text for pair in found.items() for text in pair), _RECORD, str(answer["schema"]))


def descriptors(texts: Texts) -> bytes | None:
    """The set of descriptor files of a source. None: protoc doesn't take it. Raises ConfigurationError."""
    try:
        import grpc_tools
    except ModuleNotFoundError:
        raise ConfigurationError(
            "`lakelock verify` compiles a registry's Protobuf schemas with grpcio-tools, which isn't installed.",
            hint=_HINT,
        ) from None

    with tempfile.TemporaryDirectory() as work:
        root = Path(work).resolve()
        for name, text in zip(texts[::2], texts[1::2], strict=True):
            file = (root / name).resolve()
            if not file.is_relative_to(root) or file == root:
                return None
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        own = Path(next(iter(grpc_tools.__path__)), "_proto")
        compile = "import sys; sys.path[:] = sys.argv.pop(1).split('|'); from grpc_tools import protoc; "
        compile += "sys.exit(protoc.main(sys.argv))"
        arguments = [f"--proto_path={root}", f"--proto_path={own}", "--include_imports", f"-o{root}/made", _RECORD]
        done = subprocess.run(
            [sys.executable, "-c", compile, "|".join(sys.path), *arguments], capture_output=True, check=False
        )
        return (root / "made").read_bytes() if done.returncode == 0 else None


def pool_of(content: bytes) -> Any:
    """A pool with all files of a set. Raises UnusableSchema, and ConfigurationError where protobuf isn't installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message
    except ModuleNotFoundError:
        raise ConfigurationError(
            "`lakelock verify` reads Protobuf with the package protobuf, which isn't installed, so that it shares no "
            "code with the pipeline.",
            hint=_HINT,
        ) from None

    try:
        pool, waiting = (
            descriptor_pool.DescriptorPool(),
            list(descriptor_pb2.FileDescriptorSet.FromString(content).file),
        )
    except message.DecodeError as error:
        raise UnusableSchema(f"protobuf can't read the descriptors: {error}.") from None
    there: set[str] = set()
    while waiting:
        ready = [file for file in waiting if set(file.dependency) <= there]
        if not ready:
            raise UnusableSchema(
                f"The descriptors lack files that {waiting[0].name} imports.", hint="Write them with --include_imports."
            )
        for file in ready:
            pool.Add(file)
            there.add(file.name)
        waiting = [file for file in waiting if file.name not in there]
    return pool


def own_messages(pool: Any) -> list[tuple[tuple[int, ...], Message]]:
    """The messages that a registry's schema defines itself, each with its indexes."""
    found: list[tuple[tuple[int, ...], Message]] = []
    open_: list[tuple[tuple[int, ...], Message]] = [
        ((index,), each) for index, each in enumerate(pool.FindFileByName(_RECORD).message_types_by_name.values())
    ]
    while open_:
        at, message = open_.pop(0)
        found.append((at, message))
        open_ += [((*at, index), each) for index, each in enumerate(message.nested_types)]
    return found


def is_time(message: Message) -> bool:
    """Whether it is a point in time."""
    return bool(message.full_name == _TIMESTAMP)


def is_wrapper(message: Message) -> bool:
    """Whether it stands for one value that may be absent."""
    package, _, name = message.full_name.rpartition(".")
    return package == "google.protobuf" and name in _WRAPPERS


def is_mapped(field: Any) -> bool:
    """Whether a field is a map."""
    return bool(field.message_type and field.message_type.has_options and field.message_type.GetOptions().map_entry)


def columns(message: Message, above: Sequence[str] = ()) -> StructType:
    """A column for every field. Raises UnusableSchema."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(each.name, _kind(each, [*above, message.full_name])) for each in message.fields])


def _kind(field: Any, above: Sequence[str]) -> DataType:
    from pyspark.sql.types import ArrayType, MapType

    if is_mapped(field):
        entry = field.message_type.fields_by_name
        return MapType(_one(entry["key"], above), _one(entry["value"], above))
    return ArrayType(_one(field, above)) if field.is_repeated else _one(field, above)


def _one(field: Any, above: Sequence[str]) -> DataType:
    from pyspark.sql import types as T

    message = field.message_type
    if message is None:
        unsigned = T.DecimalType(20, 0)
        by_python = {
            field.CPPTYPE_INT32: T.IntegerType(), field.CPPTYPE_INT64: T.LongType(), field.CPPTYPE_UINT32: T.LongType(),
            field.CPPTYPE_UINT64: unsigned, field.CPPTYPE_DOUBLE: T.DoubleType(), field.CPPTYPE_FLOAT: T.FloatType(),
            field.CPPTYPE_BOOL: T.BooleanType(), field.CPPTYPE_ENUM: T.StringType(),
            field.CPPTYPE_STRING: T.BinaryType() if field.type == field.TYPE_BYTES else T.StringType(),
        }  # fmt: skip
        kind: DataType = by_python[field.cpp_type]
        return kind
    if is_time(message):
        return T.TimestampType()
    if is_wrapper(message):
        return _one(message.fields_by_name["value"], above)
    if message.full_name in above or field.type == field.TYPE_GROUP or not message.fields:
        raise UnusableSchema(
            f"The Protobuf field {field.full_name} has no column of its own.", hint="Declare the columns: schema."
        )
    return columns(message, above)


def columns_of_all(versions: Sequence[Message]) -> StructType:
    """The columns of the newest version, which is the last one, and those of fields that only older ones have."""
    found = columns(versions[-1])
    for older in reversed(versions[:-1]):
        try:
            more = grown(found, columns(older))
        except UnusableSchema:
            continue
        assert isinstance(more, type(found))
        found = more
    return found


def grown(one: DataType, other: DataType) -> DataType:
    """The type, with the fields that only the other one has."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(one, StructType) and isinstance(other, StructType):
        fields = {each.name.lower(): each for each in one}
        for each in other:
            mine = fields.setdefault(each.name.lower(), each)
            fields[each.name.lower()] = type(each)(mine.name, grown(mine.dataType, each.dataType))
        return StructType([*fields.values()])
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(grown(one.elementType, other.elementType))
    if isinstance(one, MapType) and isinstance(other, MapType):
        return MapType(one.keyType, grown(one.valueType, other.valueType))
    return one
