"""The options of ``value`` and ``key``: in which format Kafka's bytes are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from connector.config.kinds import Options, Text
from connector.config.registry import RegistryOptions


class JsonFormat(Options):
    format: Literal["json"]
    """One JSON object per record."""
    schema_: Annotated[str, Field(alias="schema", min_length=1)]
    """The columns, as Spark DDL."""
    mode: Literal["strict", "permissive"] = "strict"
    """``strict``: what Spark would round, cut, guess or replace is a bad record."""


class StringFormat(Options):
    """UTF-8 text, in one column ``value``."""

    format: Literal["string"]
    """UTF-8 text, in one column ``value``."""


class BytesFormat(Options):
    """The bytes as they are, in one column ``value``."""

    format: Literal["bytes"]
    """The bytes as they are, in one column ``value``."""


class AvroFormat(Options):
    """Of one schema, in a file; or each record of a schema in the registry, read as the file's or as the latest."""

    format: Literal["avro"]
    """Avro."""
    schema_file: Text | None = None
    """A file with the schema; beside a registry, the reader's."""
    registry: RegistryOptions | None = None
    """Where each record's schema is, see below."""

    @model_validator(mode="after")
    def _schema_is_somewhere(self) -> AvroFormat:
        if self.schema_file is None and self.registry is None:
            raise ValueError("give schema_file, a file with an Avro schema, or registry: {url: ...}")
        return self


class DebeziumFormat(Options):
    """Change events: in JSON, with the schema beside each or without, where ``schema`` says the columns of the
    database's table; in Avro, where there is a ``registry``."""

    format: Literal["debezium"]
    """Debezium's change events."""
    schema_: Annotated[str | None, Field(alias="schema", min_length=1)] = None
    """The columns of the database's table, for events in JSON."""
    mode: Literal["strict", "permissive"] = "strict"
    """As for JSON."""
    registry: RegistryOptions | None = None
    """Where the schemas of events in Avro are."""

    @model_validator(mode="after")
    def _one_schema(self) -> DebeziumFormat:
        if (self.schema_ is None) == (self.registry is None):
            raise ValueError("give schema, the columns of the table, for events in JSON, or registry for Avro")
        return self


class RowsFormat(Options):
    """Rows of a streaming query of the user's own, that ``connector.foreach_batch`` is given: nothing is decoded."""

    format: Literal["rows"]
    """Rows of your own streaming query, in `connector.foreach_batch`: docs/streaming.md."""
    schema_: Annotated[str, Field(alias="schema", min_length=1)]
    """Their columns, as Spark DDL, without the four coordinates."""


def _there_already(value: object) -> object:
    if isinstance(value, Mapping) and value.get("format") == "protobuf":
        raise ValueError(
            "protobuf isn't there yet; read it as format: bytes and decode it downstream, or have it sent as json"
        )
    return value


FormatOptions: TypeAlias = Annotated[
    Annotated[
        JsonFormat | StringFormat | BytesFormat | AvroFormat | DebeziumFormat | RowsFormat,
        Field(discriminator="format"),
    ],
    BeforeValidator(_there_already),
]
FORMATS: Mapping[object, type[BaseModel]] = {
    "json": JsonFormat, "string": StringFormat, "bytes": BytesFormat, "avro": AvroFormat,
    "debezium": DebeziumFormat, "rows": RowsFormat,
}  # fmt: skip
