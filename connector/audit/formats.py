"""The formats of value and key, as the pipeline file gives them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from connector.audit import dropped, json_schema, protobuf_schema
from connector.audit.avro import Avro
from connector.audit.avro_schema import Schema, grown
from connector.audit.debezium import Events, events
from connector.audit.dropped import Takes
from connector.audit.framed import Framed
from connector.audit.json_valid import OfJsonSchema, Valid
from connector.audit.protobuf import Protobuf
from connector.audit.protobuf_schema import OfProtobuf
from connector.audit.registries import OfConfluent, OfFile, Schemas, Texts, schemas_of
from connector.audit.schema_names import Names
from connector.config import (
    OTHER,
    AvroFormat,
    BytesFormat,
    ConfluentRegistry,
    DebeziumFormat,
    DeltaAggregateSink,
    FormatOptions,
    JsonFormat,
    PipelineConfig,
    ProtobufFormat,
    RegistryOptions,
    Route,
    StringFormat,
    TopicPattern,
)
from connector.config.own_schema import names_schema
from connector.config.steps import names_before
from connector.config.truncates import spares_deletes
from connector.spark.compat import from_ddl
from sinks.errors import ConfigurationError, UnusableSchema
from sinks.spark.sql import literal
from sinks.spark.types import is_utf8

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


@dataclass(frozen=True)
class Form:
    """The format of Kafka's value or key: JSON has the fields of a struct; text and bytes are one value."""

    type: DataType
    permissive: bool = False
    events: Events | None = None
    """How Debezium's events are read. None: the values aren't events."""
    binary: Avro | Protobuf | None = None
    """How Avro or Protobuf is read. None: the values are in neither."""
    framed: Framed | None = None
    """How the header before JSON is read. None: there is none."""
    valid: Valid | None = None
    """How JSON is validated. None: it isn't."""
    names: Names | None = None
    """How the name of each record's schema is found out, for the route. None: nothing asks for it."""

    @property
    def columns(self) -> StructType:
        """The columns of a value with this format. One without fields is a single column, ``value``."""
        from pyspark.sql.types import StructField, StructType

        if isinstance(self.type, StructType):
            return self.type
        return StructType([StructField("value", self.type)])


@dataclass(frozen=True)
class RouteForm:
    """Which table of a route a record is for."""

    sql: str
    """SQL over its columns: the name of the table, or null."""
    refused: bool
    """Whether a record that names none is a bad record."""
    keys: tuple[str, ...] = ()
    """The key columns of all its tables: a tombstone names its table by them. Empty: no table takes tombstones."""
    value: Form | None = None
    """The format by which a record names its table. None: that by which it is read."""

    def names(self, table: str) -> str:
        """SQL: whether a record is for the table of this name."""
        return f"({self.sql}) IS NULL" if table == OTHER else f"({self.sql}) <=> {literal(table)}"


@dataclass(frozen=True)
class Forms:
    """How the pipeline file says that a record is read: value, key, headers, the rule in ``require``, the route."""

    value: Form
    key: Form | None
    headers: bool
    require: str | None
    route: RouteForm | None = None
    numbered: frozenset[str] = frozenset()
    """The columns of the table that Delta fills where nobody gives a value."""
    spares_deletes: bool = False
    """Whether the rule isn't about deletes and truncates of a database, unless it asks for them."""
    flows: tuple[Forms, ...] = ()
    """How the records of each of the file's ``flows`` are read; the others are read as this says."""

    @property
    def of_all(self) -> Sequence[Forms]:
        """Of every flow, as ``PipelineConfig.by_flow`` has them."""
        return self, *self.flows


def forms(config: PipelineConfig, table: StructType | None = None) -> Forms:
    """The formats of a pipeline file. Asks the registry, if there is one. ``table``: the columns of the table, without
    those that Delta fills.

    Raises ConfigurationError, UnusableSchema and RegistryUnreachable."""
    first, *others = (_of_flow(flow, table) for flow in config.by_flow)
    return replace(first, flows=tuple(others))


def _of_flow(config: PipelineConfig, table: StructType | None) -> Forms:
    topics = config.source.topics
    if isinstance(topics, TopicPattern):
        topics = (topics.pattern,)  # then the file names the subject
    # Steps and a transform name the columns themselves: what the records get more isn't in the table.
    grows = config.on_new_column == "add" and not config.reshaped
    sink, takes = config.sinks[0], dropped.takes(table, grows=grows)
    gained = dropped.readable(table) if table is not None and learns_columns(config) else None
    if isinstance(sink, DeltaAggregateSink):  # its other columns are results
        gained, table = None, dropped.of_groups(table, sink.group_by)
        takes = dropped.in_groups(table, reshaped=config.reshaped)
    option = config.schema_option.rpartition(".")[0]
    # A route says which types its tables take, and nobody which other subjects the topics of a pattern have.
    judged = () if config.route is not None or isinstance(config.source.topics, TopicPattern) else topics
    key = _form("key", config.key, topics, dropped.takes(table, under="_key")) if config.key is not None else None
    of_all = config.route is not None and config.route.named_by is None
    value = (
        _of_all(option, config, config.value, topics, takes, gained)
        if of_all
        else _form(option, config.value, topics, takes, gained)
    )
    return Forms(
        _of_types(config.value, value, judged),
        _of_types(config.key, key, judged) if config.key is not None and key is not None else None,
        config.headers,
        config.require,
        _route(config, config.route, topics) if config.route is not None else None,
        spares_deletes=spares_deletes(config),
    )


def _of_types(format: FormatOptions, form: Form, topics: Sequence[str]) -> Form:
    """The form, by which records of other types than those of the topics' subjects can't be read."""
    given = isinstance(format, AvroFormat) and format.schema_file is not None
    if given or not isinstance(form.binary, Avro):
        return form
    return replace(form, binary=replace(form.binary, topics=topics))


def _of_all(
    option: str,
    config: PipelineConfig,
    format: FormatOptions,
    topics: Sequence[str],
    takes: Takes,
    gained: StructType | None = None,
) -> Form:
    """The format that all records of a route have: by it each names its table. It may have no columns."""
    from pyspark.sql.types import StructType

    route = config.route
    assert route is not None
    alone = route.bare(format)
    form = Form(StructType([])) if alone else _form(option, format, topics, takes, gained)
    if not alone and not names_schema(config, format):
        return form
    assert isinstance(format, AvroFormat)
    assert format.registry is not None
    return replace(form, names=Names(schemas_of(format.registry, "value"), alone))


def _route(config: PipelineConfig, route: Route, topics: Sequence[str]) -> RouteForm:
    keys, named_by = names_before(config.steps, route.key_columns), route.named_by
    text = f"CAST(({route.by}) AS STRING)"
    takes = f"{text} NOT IN ('', {literal(OTHER)}) AND "
    values = route.only(named_by or config.value)
    if values is not None:
        takes += f"{text} IN ({', '.join(map(literal, values))})"
    else:
        takes += is_utf8(f"CAST({text} AS BINARY)")
    by = _of_all("value", config, named_by, topics, dropped.takes(None)) if named_by is not None else None
    return RouteForm(f"IF({takes}, {text}, NULL)", route.other in (None, "fail", "dead_letter"), keys, by)


def learns_columns(config: PipelineConfig) -> bool:
    """Whether the table gets columns from fields of records that the file's schema lacks."""
    declared = isinstance(config.value, JsonFormat | DebeziumFormat) and config.value.schema_ is not None
    return config.on_new_column == "add" and not config.reshaped and config.route is None and declared


def _form(
    option: str, format: FormatOptions, topics: Sequence[str], takes: Takes, gained: StructType | None = None
) -> Form:
    """``takes``: which fields that only older versions of the schema have are columns. ``gained``: the table's columns,
    whose fields are read beside those that the file declares."""
    from pyspark.sql.types import BinaryType, StringType

    if isinstance(format, JsonFormat):
        return _json(option, format, topics, takes, gained)
    if isinstance(format, DebeziumFormat) and format.registry is not None:
        avro = of_registry(option, format.registry, topics, None, dropped.of_event(takes))
        found = events(format, *_event(option, avro.type))
        return Form(found.columns, events=found, binary=replace(avro, of_event=True))
    if isinstance(format, DebeziumFormat) and format.schema_ is not None:
        found = events(format, _columns(option, format.schema_, gained))
        return Form(found.columns, found.permissive, found, framed=Framed() if format.framed else None)
    if isinstance(format, AvroFormat):
        given = _file(option, format.schema_file) if format.schema_file is not None else None
        if format.registry is not None:
            avro = of_registry(option, format.registry, topics, given, takes)
        else:
            assert given is not None
            avro = Avro(OfFile(given), Schema.of(given))
        return Form(avro.type, binary=avro)
    if isinstance(format, ProtobufFormat):
        protobuf = _protobuf(option, format, topics, takes)
        return Form(protobuf.type, binary=protobuf)
    if isinstance(format, StringFormat):
        return Form(StringType())
    if isinstance(format, BytesFormat):
        return Form(BinaryType())
    raise ConfigurationError(f"{option}: the auditor can't read format {format.format}.")


def _json(option: str, format: JsonFormat, topics: Sequence[str], takes: Takes, gained: StructType | None) -> Form:
    permissive, schemas = format.mode == "permissive", None
    if isinstance(format.registry, ConfluentRegistry):
        schemas = OfConfluent(format.registry, "key" if option == "key" else "value", "JSON")
    framed, valid = Framed(schemas) if format.framed else None, _valid(option, format)
    if format.schema_ is not None:
        return Form(_columns(option, format.schema_, gained), permissive, framed=framed, valid=valid)
    if format.schema_file is not None:
        (text,) = _file(option, format.schema_file)
        return Form(json_schema.columns_of(text), framed=framed, valid=valid)
    assert schemas is not None
    versions = [version[-1] for topic in topics for version in schemas.versions(topic)]
    if not versions:
        raise UnusableSchema(
            f"{option}.registry: the registry has no JSON Schema for {' and '.join(topics)}.",
            hint="Check registry.subject, or write the columns: schema.",
        )
    read = dropped.without(json_schema.grown(versions), json_schema.grown(versions[-1:]), takes)
    return Form(read, permissive, framed=framed, valid=valid)


def _valid(option: str, format: JsonFormat) -> Valid | None:
    if format.schema_file is not None:
        return Valid(OfFile(("", *_file(option, format.schema_file))), format.framed)
    if format.validate_ and isinstance(format.registry, ConfluentRegistry):
        return Valid(OfJsonSchema(format.registry, "key" if option == "key" else "value"), framed=True)
    return None


def _protobuf(option: str, format: ProtobufFormat, topics: Sequence[str], takes: Takes) -> Protobuf:
    declared = _columns(option, format.schema_) if format.schema_ is not None else None
    if format.descriptor_file is not None:
        content, name = _descriptors(option, format.descriptor_file), format.message or ""
        try:
            message = protobuf_schema.pool_of(content).FindMessageTypeByName(name)
        except KeyError:
            raise ConfigurationError(f"{option}.message: {name!r} isn't in the descriptor file.") from None
        return Protobuf(declared or protobuf_schema.columns(message), name, content)
    assert isinstance(format.registry, ConfluentRegistry)
    schemas = OfProtobuf(format.registry, "key" if option == "key" else "value")
    texts = [version for topic in topics for version in schemas.versions(topic)]
    compiled = [made for each in texts if (made := protobuf_schema.descriptors(each)) is not None]
    pools = map(protobuf_schema.pool_of, compiled)
    own = [[message for _, message in protobuf_schema.own_messages(pool)] for pool in pools]
    name = format.message or (own[-1][0].full_name if own and own[-1] else "")
    messages = [message for version in own for message in version if message.full_name == name]
    if not messages:
        raise UnusableSchema(
            f"{option}.registry: the registry has no Protobuf schema for {' and '.join(topics)}"
            + (f" with the message {name}." if name else "."),
            hint="Check registry.subject, and message.",
        )
    if declared is None:
        every, newest = protobuf_schema.columns_of_all(messages), protobuf_schema.columns(messages[-1])
        declared = dropped.without(every, newest, takes)
    return Protobuf(declared, name, schemas=schemas)


def _descriptors(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{option}.descriptor_file: {path!r} can't be read: {error}.") from None


def of_registry(
    option: str, registry: RegistryOptions, topics: Sequence[str], given: Texts | None, takes: Takes
) -> Avro:
    """How Avro of a registry is read: by the schema that is ``given``, or by the newest version."""
    schemas: Schemas = schemas_of(registry, "key" if option == "key" else "value")
    if given is not None:
        return Avro(schemas, Schema.of(given), _usable(schemas, topics))
    versions = [version for topic in topics for version in schemas.versions(topic)]
    if not versions:
        raise UnusableSchema(
            f"{option}.registry: the registry has no Avro schema for {' and '.join(topics)}.",
            hint="Check registry.subject, or give the reader's schema: schema_file.",
        )
    parsed = [Schema.of(version) for version in versions]
    return Avro(schemas, grown(parsed, takes), parsed)


def _usable(schemas: Schemas, topics: Sequence[str]) -> list[Schema]:
    """The versions of the registry, as far as it shows them: records are read without."""
    found = []
    with suppress(ConfigurationError):
        for version in [version for topic in topics for version in schemas.versions(topic)]:
            with suppress(UnusableSchema):
                found.append(Schema.of(version, defaults=False))
    return found


def _file(option: str, path: str) -> Texts:
    try:
        return (Path(path).read_text(encoding="utf-8"),)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{option}.schema_file: {path!r} can't be read: {error}.") from None


def _event(option: str, envelope: DataType) -> tuple[StructType, StructType]:
    """The type of an event's row, and its own."""
    from pyspark.sql.types import StructType

    if isinstance(envelope, StructType) and {"before", "after", "op"} <= set(envelope.names):
        row = envelope["after"].dataType
        if isinstance(row, StructType):
            return row, envelope
    raise ConfigurationError(f"{option}.registry: the schema isn't that of Debezium's events: it has no row `after`.")


def _columns(option: str, text: str, gained: StructType | None = None) -> StructType:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        schema = from_ddl(text)
    except PySparkException as error:
        problem = next(line for line in str(error).splitlines() if line.strip())
        raise ConfigurationError(f"{option}.schema: not a Spark schema: {problem.strip()}") from None
    if not isinstance(schema, StructType):
        raise ConfigurationError(f'{option}.schema: write columns, as in "carrier STRING, flight INT".')
    return schema if gained is None else dropped.with_fields_of(schema, gained)
