"""The options of ``value`` and ``key``: the format of the bytes in Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, Field, PrivateAttr

from connector.config.kinds import Name, Options, fits
from connector.config.registry import GlueRegistry, RegistryOptions

INFERRED = "inferred"


class JsonFormat(Options):
    """One JSON object per record."""

    format: Literal["json"]
    """Each record is one JSON object."""
    PROPERTY: ClassVar[str] = "lakelock.value.schema"
    """Of a table: the schema that was inferred for it, as hexadecimal UTF-8. Spark hides properties whose text looks
    like a secret, as the name of a column may."""

    schema_: str | None = Field(default=None, alias="schema", min_length=1)
    """The columns, as Spark DDL: ``"id BIGINT, name STRING"``. With ``inferred`` they are found from the first records,
    when the table is made, and kept in its properties. Without it the columns come from a ``registry``."""
    mode: Literal["strict", "permissive"] = "strict"
    """``strict`` takes JSON as it is defined. ``permissive`` also takes what can only mean one thing: single quotes,
    names without quotes, comments, leading zeros, and numbers and booleans in quotes. With both, a value that its
    column can't hold makes a bad record."""
    wire_format: Literal["confluent"] | None = None
    """``confluent``: the JSON text comes after the header that Confluent's JSON Schema serializer writes, a zero byte
    and the schema's id in four bytes. By default there is no header, unless there is a ``registry``."""
    registry: RegistryOptions | None = None
    """The schema registry that has the JSON Schema of each record. Its newest version gives the columns, unless
    ``schema`` does. A registry with Confluent's API only. See below."""
    validate_: bool | None = Field(default=None, alias="validate")
    """``true``: a record that its JSON Schema in the ``registry`` doesn't allow is a bad record. By default the schema
    gives types only."""
    schema_file: Name | None = None
    """The path of a file with a JSON Schema, in place of a ``registry``: a record that it doesn't allow is a bad
    record. It gives the columns, unless ``schema`` does."""

    _inferred: bool = PrivateAttr(False)

    @fits
    def _columns_are_somewhere(self) -> Iterator[str]:
        if isinstance(self.registry, GlueRegistry):
            yield (
                "registry: JSON is read with a registry with Confluent's API only, not with AWS Glue's: write "
                "registry: {url: ...}"
            )
        if self.registry is None and (self.validate_ or (self.validate_ is not None and self.schema_file is not None)):
            yield (
                "validate: is for the JSON Schemas of a registry: add registry: {url: ...}. By a schema_file all "
                "records are validated anyway, so remove validate"
            )
        if self.schema_file is not None and self.registry is not None:
            yield (
                "schema_file: is for records whose schema no registry has. To validate by the registry's, write "
                "validate: true and remove schema_file"
            )
        if self.validated and self.mode == "permissive":
            yield "mode: permissive takes what no JSON Schema describes: remove it, or don't validate"
        if self.schema_ is None and self.registry is None and self.schema_file is None:
            yield (
                'schema: is missing: write the columns, as in "id BIGINT, name STRING", or registry: {url: ...} for '
                "those of its JSON Schema"
            )

    @property
    def framed(self) -> bool:
        """Whether a header comes before the JSON text."""
        return self.wire_format is not None or self.registry is not None

    @property
    def validated(self) -> bool:
        """Whether a record has to be what a JSON Schema allows."""
        return bool(self.validate_) or self.schema_file is not None

    @property
    def inferred(self) -> bool:
        """Whether the schema has to be found from records, or was."""
        return self._inferred or self.schema_ == INFERRED

    @property
    def properties(self) -> Mapping[str, str]:
        """Of the table of these records."""
        return {self.PROPERTY: self.schema_.encode().hex()} if self._inferred and self.schema_ is not None else {}

    @classmethod
    def kept_schema(cls, text: str | None) -> str | None:
        """The schema that a table keeps in its property. None: it keeps none."""
        try:
            return bytes.fromhex(text or "").decode() or None
        except ValueError:
            return None

    def read_by(self, schema: str) -> JsonFormat:
        """The format with the schema that was found."""
        found = self.model_copy(update={"schema_": schema})
        found._inferred = True
        return found


class StringFormat(Options):
    """UTF-8 text in one column ``value``."""

    format: Literal["string"]
    """UTF-8 text in one column ``value``."""


class BytesFormat(Options):
    """The unchanged bytes in one column ``value``."""

    format: Literal["bytes"]
    """The unchanged bytes in one column ``value``."""


class AvroFormat(Options):
    """Avro, with one schema from a file, or with a schema per record from a registry.

    With a registry, the reader's schema is the one in ``schema_file``, or else the latest in the registry.
    """

    format: Literal["avro"]
    """Each record is one Avro value."""
    schema_file: Name | None = None
    """The path of a file with the Avro schema. With a ``registry`` it is the reader's schema; by default that is the
    latest one in the registry."""
    registry: RegistryOptions | None = None
    """The schema registry that has the schema of each record. See below."""

    @fits
    def _schema_is_somewhere(self) -> None:
        if self.schema_file is None and self.registry is None:
            raise ValueError("give schema_file, a file with an Avro schema, or registry: {url: ...}")


class ProtobufFormat(Options):
    """Protobuf messages: bare ones of a descriptor file, or with Confluent's header, with a schema per record from a
    registry. See docs/sources.md."""

    format: Literal["protobuf"]
    """Each record is one Protobuf message."""
    descriptor_file: Name | None = None
    """The path of a file with compiled schemas, as ``protoc --include_imports --descriptor_set_out`` writes it, for
    messages without a header."""
    message: Name | None = None
    """The message's full name, as in ``shop.Order``. With a ``registry`` by default the first message of the newest
    schema."""
    schema_: str | None = Field(default=None, alias="schema", min_length=1)
    """The columns, as Spark DDL, of the fields with these names. By default every field is a column."""
    registry: RegistryOptions | None = None
    """The schema registry that has the schema of each record. A registry with Confluent's API only. See below."""

    @fits
    def _schema_is_somewhere(self) -> Iterator[str]:
        if (self.descriptor_file is None) == (self.registry is None):
            yield "give either descriptor_file, a file that protoc has made, or registry: {url: ...}"
        if self.descriptor_file is not None and self.message is None:
            yield "message: is missing: write the full name of the records' message, as in shop.Order"
        if isinstance(self.registry, GlueRegistry):
            yield (
                "registry: Protobuf is read with a registry with Confluent's API only, not with AWS Glue's: write "
                "registry: {url: ...}"
            )
        if self.schema_ == INFERRED:
            yield "schema: inferred is for JSON. Leave schema out, and the columns are those of the message"


class DebeziumFormat(Options):
    """Debezium change events, in JSON (with or without an embedded schema) or in Avro.

    JSON needs ``schema``, the columns of the database's table. Avro needs a ``registry``.
    """

    format: Literal["debezium"]
    """Each record is a Debezium change event."""
    schema_: str | None = Field(default=None, alias="schema", min_length=1)
    """The columns of the database's table as Spark DDL, for events in JSON."""
    mode: Literal["strict", "permissive"] = "strict"
    """As for ``format: json``."""
    wire_format: Literal["confluent"] | None = None
    """As for ``format: json``, for events in JSON."""
    registry: RegistryOptions | None = None
    """The schema registry, for events in Avro."""
    unavailable: Literal["bad_record", "null", "keep"] = "bad_record"
    """What to do with a value that the database didn't send, as PostgreSQL does with a large column that an update left
    as it was: the event is a bad record, the value is null, or the row keeps the value that it has (``keep``, for
    ``delta_upsert`` and ``delta_history``)."""
    unavailable_value: Name = "__debezium_unavailable_value"
    """What stands for such a value: Debezium's ``unavailable.value.placeholder``."""
    tx_id: Literal["string"] | None = None
    """The type of ``_source.txId`` of events in JSON. By default it is a BIGINT, as PostgreSQL's connector sends it.
    ``string`` is for Oracle and Informix, whose IDs are texts: without it their events are bad records."""

    @fits
    def _one_schema(self) -> Iterator[str]:
        if (self.schema_ is None) == (self.registry is None):
            yield "give schema, the columns of the table, for events in JSON, or registry for Avro"
        if self.wire_format is not None and self.registry is not None:
            yield "wire_format: is for events in JSON, with schema; registry says it of Avro. Remove one"
        if self.mode == "permissive" and self.registry is not None:
            yield "mode: permissive is for events in JSON, with schema. Events in Avro have no text: remove it"
        if self.tx_id is not None and self.registry is not None:
            yield "tx_id: is for events in JSON, with schema. In Avro the registry's schema has the type: remove it"

    @property
    def framed(self) -> bool:
        """Whether a header comes before the JSON text."""
        return self.wire_format is not None


class RowsFormat(Options):
    """Rows of the user's own streaming query, passed to ``connector.foreach_batch``. Nothing is decoded."""

    format: Literal["rows"]
    """Rows of your own streaming query, in `connector.foreach_batch`: docs/streaming.md."""
    schema_: str = Field(alias="schema", min_length=1)
    """The columns of the rows as Spark DDL, without the four coordinates (``_topic`` and so on)."""


FormatOptions: TypeAlias = Annotated[
    JsonFormat | StringFormat | BytesFormat | AvroFormat | ProtobufFormat | DebeziumFormat | RowsFormat,
    Field(discriminator="format"),
]
FORMATS: Mapping[object, type[BaseModel]] = {
    "json": JsonFormat, "string": StringFormat, "bytes": BytesFormat, "avro": AvroFormat,
    "protobuf": ProtobufFormat, "debezium": DebeziumFormat, "rows": RowsFormat,
}  # fmt: skip


def unset_since(format: FormatOptions | None) -> set[str]:
    """The options that a format got later and that aren't set: an epoch in doubt knows the hash without them."""
    later: Sequence[str] = ()
    if isinstance(format, JsonFormat):
        later = ("wire_format", "registry", "validate_", "schema_file")
    elif isinstance(format, DebeziumFormat):
        later = ("wire_format", "tx_id")
    return {name for name in later if getattr(format, name) is None}


def schema_files(*formats: FormatOptions | None) -> bytes:
    """What the files hold that these formats name. Of one that can't be read whoever decodes will say so."""
    content = b""
    for format in formats:
        file = format.schema_file if isinstance(format, AvroFormat | JsonFormat) else None
        file = format.descriptor_file if isinstance(format, ProtobufFormat) else file
        if file is not None:
            with suppress(OSError):
                content += Path(file).read_bytes() + b"\0"
    return content
