"""Formats: how Kafka's bytes become columns. Each format has its own file; ``records`` combines key and value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from connector.config import (
    OWN_COLUMNS,
    AvroFormat,
    ConfluentRegistry,
    DebeziumFormat,
    FormatOptions,
    JsonFormat,
    ProtobufFormat,
    RowsFormat,
    StringFormat,
)
from connector.decode import control_events
from connector.decode.avro import AvroFile, AvroOfRegistry
from connector.decode.debezium import METADATA, ROWS, Debezium, envelope
from connector.decode.format import Format
from connector.decode.framed import Framed, FramedOfRegistry, newest_columns
from connector.decode.held import ROWS_OF_EVENT, held_of_event, own_names, row_of_event
from connector.decode.json import Json
from connector.decode.json_lossless import unreadable
from connector.decode.json_schema import of_file as schema_of_file
from connector.decode.protobuf import ProtobufFile, ProtobufOfRegistry
from connector.decode.protobuf_schema import of_file
from connector.decode.registry import opened, opened_json, opened_protobuf
from connector.decode.registry.newest import NewestSchemas
from connector.decode.rows import Rows
from connector.decode.schema_name import SchemaNames, WithSchemaName
from connector.decode.text import Bytes, Text
from connector.decode.validated import Validated
from connector.spark.compat import from_ddl, needs
from sinks.errors import ConfigurationError
from sinks.spark.row_errors import problem
from sinks.spark.schema_changes import OnNewColumn
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

_OF_AVRO = (
    "Give the field another name in a schema_file. With a registry that is the reader's schema, where the field's old "
    'name stands beside its new one, "aliases": ["_source"], or that leaves the field out.'
)
_OF_A_DATABASE = (
    "Have Kafka Connect rename the database's column on its way, or leave it out (Debezium's column.exclude.list)."
)


def as_declared(schema: StructType) -> StructType:
    """The schema as it is."""
    return schema


def record_format(
    option: Literal["key", "value"],
    options: FormatOptions,
    spark: SparkSession,
    topics: Sequence[str],
    *,
    on_new_column: OnNewColumn | None = None,
    added: Callable[[StructType], StructType] = as_declared,
    held: Collection[str] = (),
    newest: NewestSchemas | None = None,
    one_type: bool = False,
) -> Format:
    """The format that the option ``option`` declares. Asks the registry, if there is one.

    ``added`` extends a schema from a file by the columns that the table has gained from records since. ``held``: the
    paths of fields that a table has a column for, see `paths`: a registry's older schemas may have them.
    ``newest``: of its subjects; None: those that it has now. ``one_type``: see ``AvroOfRegistry``.

    Raises ConfigurationError, UnusableSchema or RegistryUnreachable.
    """
    if on_new_column == "add" and _learns_from_records(options):
        # Spark's VARIANT finds the types of new fields.
        instead = "Write new columns into the schema, and add them to the table: ALTER TABLE ... ADD COLUMNS."
        needs(spark, "4.0", "on_new_column: add, of JSON,", instead)
    newest = newest or NewestSchemas()
    if isinstance(options, JsonFormat):
        return _json(option, options, topics, newest, on_new_column, added, held)
    if isinstance(options, AvroFormat):
        reader = _file(option, options.schema_file) if options.schema_file is not None else None
        if options.registry is not None:
            registry = newest.through(opened(options.registry))
            avro: Format = AvroOfRegistry(
                spark, registry, topics, option, reader, on_new_column, held, one_type=one_type
            )
        else:
            avro = AvroFile(spark, reader or "")
        if option == "value":  # a key is one column, whatever is in it
            refuse_own_names(option, avro.type, _OF_AVRO)
        return avro
    if isinstance(options, ProtobufFormat):
        return _protobuf(option, options, topics, newest, on_new_column, held)
    if isinstance(options, DebeziumFormat):
        events: Format
        if options.registry is not None:
            registry = newest.through(opened(options.registry))
            events = AvroOfRegistry(
                spark, registry, topics, option, None, on_new_column, held_of_event(held), rows=ROWS_OF_EVENT,
                leaves_out=control_events.is_of_schema, one_type=one_type,
            )  # fmt: skip
            refuse_own_names(option, row_of_event(events.type), _OF_A_DATABASE)
        else:
            declares = f"{option}.schema"
            row = _without(METADATA, added(_json_schema(declares, options.schema_ or "")))
            sent = envelope(row, text_ids=options.tx_id == "string")
            json = Json(sent, options.mode == "permissive", on_new_column, option=declares, rows=ROWS)
            events = Framed(json) if options.framed else json
        return Debezium(events, options.unavailable_value, options.unavailable)
    if isinstance(options, RowsFormat):
        return Rows(_schema(f"{option}.schema", options.schema_))
    return Text() if isinstance(options, StringFormat) else Bytes()


def refuse_own_names(option: str, row: DataType, hint: str) -> None:
    """Refuse the columns of an Avro schema if one has the name of a column of Lakelock's own."""
    for name in own_names(row):
        raise ConfigurationError(
            f"{option}: the Avro schema has a field {name}, and Lakelock itself uses the column {name} "
            f"({', '.join(OWN_COLUMNS)}).",
            hint=hint,
        )


def _protobuf(
    option: Literal["key", "value"],
    options: ProtobufFormat,
    topics: Sequence[str],
    newest: NewestSchemas,
    on_new_column: OnNewColumn | None,
    held: Collection[str],
) -> Format:
    declared = _schema(f"{option}.schema", options.schema_) if options.schema_ is not None else None
    if isinstance(options.registry, ConfluentRegistry):
        registry = newest.through(opened_protobuf(options.registry))
        return ProtobufOfRegistry(registry, topics, option, options.message, declared, on_new_column, held)
    assert options.descriptor_file is not None
    assert options.message is not None
    return ProtobufFile(of_file(option, options.descriptor_file), options.message, declared, option=option)


def own_format(
    value: FormatOptions,
    option: str,
    spark: SparkSession,
    topics: Sequence[str],
    *,
    of: str,
    held: Collection[str] = (),
    newest: NewestSchemas,
) -> Format:
    """The format of the records of a route's value, ``of``, with a schema of its own. ``option`` names the schema.
    ``held``, ``newest``: as in ``record_format``.

    Raises what ``record_format`` raises.
    """
    if isinstance(value, AvroFormat) and value.registry is not None:
        reader = _file(option.removesuffix(".schema_file"), value.schema_file) if value.schema_file else None
        registry = newest.through(opened(value.registry), own=of)
        avro = AvroOfRegistry(spark, registry, topics, "value", reader, held=held, fixed=True)
        refuse_own_names(option, avro.type, _OF_AVRO)
        return avro
    assert isinstance(value, JsonFormat)
    format = Json(_json_schema(option, value.schema_ or ""), value.mode == "permissive", option=option)
    return Framed(format) if value.framed else format  # a registry has been asked for the record's ID already


def with_schema_name(value: AvroFormat, format: Format | None, own: Sequence[Format]) -> Format:
    """The format with the column ``_schema``. ``format`` None: there are no other columns. ``own``: of the records of
    values with a schema of their own. Raises ConfigurationError."""
    if format is None:
        assert value.registry is not None
        return SchemaNames(opened(value.registry), [each for each in own if isinstance(each, AvroOfRegistry)])
    assert isinstance(format, AvroOfRegistry)
    return WithSchemaName(format)


def _json(
    option: Literal["key", "value"],
    options: JsonFormat,
    topics: Sequence[str],
    newest: NewestSchemas,
    on_new_column: OnNewColumn | None,
    added: Callable[[StructType], StructType],
    held: Collection[str],
) -> Format:
    registry, validated = None, bool(options.validate_)
    if isinstance(options.registry, ConfluentRegistry):
        registry = newest.through(opened_json(options.registry, references=validated))
    schema = None
    if options.schema_file is not None:
        schema = schema_of_file(f"{option}.schema_file", _file(option, options.schema_file))
    if options.schema_ is not None:
        declares = f"{option}.schema"
        kind, of_records = added(_json_schema(declares, options.schema_)), on_new_column
    elif schema is not None:
        declares = f"{option}.schema_file"
        kind, of_records = added(_json_schema(declares, schema.columns)), on_new_column
    else:
        assert registry is not None
        declares = f"the schema of {option}.registry"
        kind = _json_schema(f"{option}.registry", newest_columns(registry, topics, option))
        # The types of new columns are those of newer schemas.
        of_records = "fail" if on_new_column == "fail" else None
    format = Json(kind, options.mode == "permissive", of_records, option=declares)
    if registry is not None:
        declared = options.schema_ is not None
        return FramedOfRegistry(
            format, registry, topics, option, on_new_column, held, declared=declared, validated=validated
        )
    found: Format = Framed(format) if options.framed else format
    return found if schema is None else Validated(found, schema)


def _learns_from_records(options: FormatOptions) -> bool:
    """Whether only the records can say the types of new columns."""
    if isinstance(options, JsonFormat):
        return options.schema_ is not None or options.schema_file is not None
    return isinstance(options, DebeziumFormat) and options.registry is None


def _without(names: Sequence[str], columns: StructType) -> StructType:
    return columns.__class__([field for field in columns if field.name not in names])


def _file(option: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{option}.schema_file: {path!r} can't be read: {error}.") from None


def _json_schema(option: str, text: str) -> StructType:
    """A schema that JSON can be read by. ``option``: where it comes from."""
    schema = _schema(option, text)
    for field in schema:
        kind = unreadable(field.dataType)
        if kind is not None:
            raise ConfigurationError(
                f"{option}: column {field.name} has a {sql_type(kind).upper()}, and names in JSON are text: "
                "Spark reads a MAP with STRING keys only.",
                hint="Write MAP<STRING, ...>, and change the keys in `transform:`, as in "
                "transform_keys(m, (k, v) -> CAST(k AS INT)) AS m.",
            )
    return schema


def _schema(option: str, text: str) -> StructType:
    """A schema as Spark reads it. Only Spark knows its DDL, so the check needs a session."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        schema = from_ddl(text)
    except PySparkException as error:
        raise ConfigurationError(
            f"{option}: not a Spark schema: {problem(error)}",
            hint='Write columns as in "carrier STRING, flight INT, at TIMESTAMP".',
        ) from None
    if not isinstance(schema, StructType) or not schema.names:
        raise ConfigurationError(f'{option}: write columns, as in "carrier STRING, flight INT".')
    lower = [name.lower() for name in schema.names]
    for name in schema.names:
        if lower.count(name.lower()) > 1:
            raise ConfigurationError(f"{option}: column {name} is there twice (upper and lower case are the same).")
        if name.lower() in OWN_COLUMNS:
            raise ConfigurationError(
                f"{option}: Lakelock itself uses the column {name} ({', '.join(OWN_COLUMNS)}); rename it."
            )
    return schema
