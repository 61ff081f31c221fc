"""Turns Kafka's records into the rows that each sink takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

from connector.config import (
    OTHER,
    OWN_COLUMNS,
    AvroFormat,
    DeltaAggregateSink,
    DeltaSink,
    KeyedSink,
    PipelineConfig,
    TopicPattern,
)
from connector.config.nearest import did_you_mean
from connector.config.own_schema import names_schema
from connector.config.steps import names_before
from connector.config.transform_sql import column_words
from connector.config.truncates import kept_truncates, spares_deletes
from connector.decode import as_declared, own_format, record_format, with_schema_name
from connector.decode.debezium import METADATA, OP, Debezium
from connector.decode.flows import FlowDecoder, FlowsDecoder, told_of
from connector.decode.format import Format
from connector.decode.held import paths
from connector.decode.json_lossless import unreadable
from connector.decode.json_new_fields import grown
from connector.decode.own_columns import OwnColumns
from connector.decode.records import (
    CARRIED,
    HEADERS,
    KEY,
    PROBLEM,
    RAW,
    ROUTE,
    TOMBSTONE,
    RecordDecoder,
    Routing,
    fields_of,
    refuse_tombstones,
)
from connector.decode.registry.newest import NewestSchemas
from connector.decode.schema_name import SchemaNames, WithSchemaName
from connector.decode.steps import Steps
from connector.decode.transform import transform
from connector.derive.masked_keys import refuse_other_masks
from sinks.delta.table import DeltaTable
from sinks.errors import ConfigurationError
from sinks.spark.schema_changes import OnNewColumn, narrowed
from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

    from connector.decode.format import Format


Rows = Callable[["DataFrame"], "DataFrame"]
_Way: TypeAlias = tuple[tuple[str, ...] | None, str]
"""What the decoders of sinks may differ in: the columns of a tombstone's key, and the truncates that a filter keeps."""
_IN_KEY = "_key."


@dataclass(frozen=True)
class Decoder:
    """Turns Kafka's records into rows of the user's columns, in two steps.

    Sinks with the same ``decode`` share its result.
    """

    decode: RecordDecoder | FlowsDecoder
    """Decodes value and key by their formats. With dead letters, records that have a ``_problem`` stay in."""
    shape: Rows
    """Selects the records without a problem that the sink takes, and applies the transform. With dead letters the rows
    still have ``_raw``, and they have ``_tombstone`` even if the sink takes no tombstones."""
    takes_tombstones: bool
    several: bool
    """A record may make several rows."""

    def __call__(self, records: DataFrame) -> DataFrame:
        """The rows of records that have no problem."""
        rows = self.shape(self.decode(records)).drop(RAW)
        return rows if self.takes_tombstones else rows.drop(TOMBSTONE)


def decoders(
    config: PipelineConfig,
    spark: SparkSession,
    tables: Mapping[int, DeltaTable] = MappingProxyType({}),
    newest: NewestSchemas | None = None,
) -> Sequence[Decoder]:
    """One decoder per sink of the pipeline file, in its order; one for all tables of a route.

    ``tables``: the tables of sinks, by the sink's number in the file; their columns count for ``on_new_column``. A sink
    without a key takes no tombstones. They are refused only where that sink takes its rows. ``newest``: of the
    subjects of a registry; None: those that it has now.

    Raises ConfigurationError for a format or schema that can't be used.
    """
    newest = newest or NewestSchemas()
    flows = [_of_flow(flow, spark, tables, newest) for flow in config.by_flow]
    _refuse_unknown(config, [known for each in flows for known in each.known])
    refuse_other_masks(config)
    letters = config.on_bad_record == "dead_letter"
    keys = [sink.key if isinstance(sink, KeyedSink) else None for sink in config.sinks]
    if config.route is not None:
        keys = [config.route.key_columns or None]
    ways = list(zip(*(each.ways for each in flows), strict=True))
    decode = {way: _united(config, flows, way) for way in set(ways)}

    def shape(index: int, columns: Sequence[str] | None, table: DeltaTable | None, rows: DataFrame) -> DataFrame:
        if letters:
            rows = rows.where(f"{PROBLEM} IS NULL").drop(PROBLEM)
        elif columns is None and TOMBSTONE in rows.columns:
            rows = refuse_tombstones(rows)
        rows = transform(rows, config.transform, CARRIED, view=f"lakelock_records_{index}")
        carried = CARRIED if columns is None else (*CARRIED, *METADATA)  # a keyed table is made by them
        return rows if table is None else _without_new_columns(rows, table, carried, key=columns or ())

    return [
        Decoder(
            decode[ways[index]],
            partial(shape, index, columns, tables.get(index) if config.on_new_column == "ignore" else None),
            takes_tombstones=columns is not None,
            several=config.several_rows,
        )
        for index, columns in enumerate(keys)
    ]


@dataclass(frozen=True)
class _Flow:
    """How one flow's records are decoded: all of them, without flows."""

    config: PipelineConfig
    value: Format
    key: Format | None
    own: tuple[OwnColumns, ...]
    ways: Sequence[_Way]
    """Of each sink."""

    @property
    def known(self) -> Sequence[str]:
        """The columns of the values, also of those with a schema of their own."""
        return [name for format in (self.value, *(own.format for own in self.own)) for name in fields_of(format)]

    def decoder(self, way: _Way) -> RecordDecoder:
        """The decoder for the sinks with this way."""
        config, (columns, kept) = self.config, way
        return RecordDecoder(
            self.value, self.key, headers=config.headers, tombstones=columns, require=config.require,
            letters=config.on_bad_record == "dead_letter", raw=config.dead_letters is not None,
            route=_routing(config), own=self.own, names_schema=isinstance(self.value, SchemaNames | WithSchemaName),
            steps=Steps(config.steps, kept) if config.steps else None, quotes=not config.sensitive,
            leaves_out=isinstance(self.value, Debezium), spares_deletes=spares_deletes(config),
            asks_as=f"{config.flow.option}." if config.flow is not None else "",
        )  # fmt: skip


def _of_flow(
    config: PipelineConfig, spark: SparkSession, tables: Mapping[int, DeltaTable], newest: NewestSchemas
) -> _Flow:
    with told_of(config.flow):
        own = _own_columns(config, spark, newest)
        value, key_format = _formats(config, spark, tables, newest, [each.format for each in own])
    keys = [names_before(config.steps, sink.key) if isinstance(sink, KeyedSink) else None for sink in config.sinks]
    if config.route is not None:
        keys = [names_before(config.steps, config.route.key_columns) or None]
    first = next((key for key in keys if key), None)
    ways = [(columns or first, kept) for columns, kept in zip(keys, _truncates(config, value), strict=True)]
    return _Flow(config, value, key_format, own, ways)


def _united(config: PipelineConfig, flows: Sequence[_Flow], ways: Sequence[_Way]) -> RecordDecoder | FlowsDecoder:
    """The decoder of all flows. ``ways``: of each flow."""
    made = [flow.decoder(way) for flow, way in zip(flows, ways, strict=True)]
    if not config.flows:
        return made[0]
    topics = tuple(topic for flow in config.flows for topic in flow.topics)
    rest = FlowDecoder(None, topics, others=True, decode=made[0])
    named = zip(flows[1:], config.flows, made[1:], strict=True)
    return FlowsDecoder(
        (
            rest,
            *(FlowDecoder(of.config.flow, flow.topics, others=False, decode=each) for of, flow, each in named),
        )
    )


def _formats(
    config: PipelineConfig,
    spark: SparkSession,
    tables: Mapping[int, DeltaTable],
    newest: NewestSchemas,
    own: Sequence[Format],
) -> tuple[Format, Format | None]:
    """Of the value and of the key. ``own``: of values of a route with a schema of their own."""
    topics = _topics(config)
    # A route says itself which types its tables take, and a pattern not which other subjects its topics have.
    one_type = config.route is None and not isinstance(config.source.topics, TopicPattern)
    # Steps and a transform make columns of their own: a column of the table isn't a field of the records.
    learns = config.on_new_column != "add" or not config.reshaped
    of_fields = [number for number, sink in enumerate(config.sinks) if not isinstance(sink, DeltaAggregateSink)]
    held = _held([table for number, table in tables.items() if number in of_fields]) | _held_of_groups(config, tables)
    # The columns of groups are named by the file, whatever other fields the records have.
    on_new_column = config.on_new_column if of_fields or config.on_new_column == "fail" else "ignore"
    unknown = on_new_column if learns else None
    grows = unknown == "add" and config.route is None
    if unknown == "add" and not grows:
        unknown = "fail"  # tables of a route get declared columns only, and no field is lost in silence
    value = None
    if config.route is None or not config.route.bare(config.value):
        value = record_format(
            "value", config.value, spark, topics, on_new_column=unknown,
            added=partial(_with_columns_of, tables.values()) if grows else as_declared,
            held=held, newest=newest, one_type=one_type,
        )  # fmt: skip
    if value is None or names_schema(config, config.value):
        assert isinstance(config.value, AvroFormat)
        value = with_schema_name(config.value, value, own)
    key_format = None
    if config.key is not None:
        of_key = [each.removeprefix(_IN_KEY) for each in held if each.startswith(_IN_KEY)]
        # A key that is one column says by its fields which row is meant: of two keys, none may lose a field.
        is_whole = any(KEY in _key_of(sink) for sink in config.sinks)
        ignored: OnNewColumn | None = "ignore" if on_new_column == "ignore" and not is_whole else None
        key_format = record_format(
            "key", config.key, spark, topics, on_new_column=ignored, held=of_key, newest=newest, one_type=one_type
        )
    return value, key_format


def _key_of(sink: object) -> Sequence[str]:
    """The columns that say which row a record goes to."""
    if isinstance(sink, KeyedSink):
        return sink.key
    return sink.group_by if isinstance(sink, DeltaAggregateSink) else ()


def _topics(config: PipelineConfig) -> tuple[str, ...]:
    topics = config.source.topics
    return (topics.pattern,) if isinstance(topics, TopicPattern) else topics  # a registry has a subject of this name


def _truncates(config: PipelineConfig, value: Format) -> Sequence[str]:
    """Of each sink, SQL: whether a filter keeps truncates for it. Sinks share a decoder where they agree on that."""
    if config.route is not None:
        return [kept_truncates(config, named=ROUTE)]
    if OP not in fields_of(value) or all(step.filter is None for step in config.steps):
        return ["true"] * len(config.sinks)
    return [kept_truncates(config, index) for index in range(len(config.sinks))]


def _refuse_unknown(config: PipelineConfig, columns: Sequence[str]) -> None:
    """Raises ConfigurationError for a sensitive column that no record has: the values of the one that is meant would be
    shown."""
    known = {*columns, KEY, HEADERS}
    for column in config.sensitive:
        if column not in known and column not in column_words(config.transform or ""):
            raise ConfigurationError(
                f"sensitive: {column} isn't a column of the records{did_you_mean(column, known)}.",
                hint="Name columns as the records have them, before the steps, or as the transform makes them.",
            )


def declared_comments(config: PipelineConfig, decode: Decoder) -> Mapping[str, str]:
    """Column -> the comment that the schema of the records has for it. Empty with steps or a transform, which make
    columns of their own."""
    if config.transform is not None:
        return {}
    value = config.route.value if config.route is not None else None
    own = next((own.format for own in decode.decode.own if own.value == value), None)
    return own.comments if own is not None else decode.decode.comments


def _routing(config: PipelineConfig) -> Routing | None:
    route = config.route
    if route is None:
        return None
    stays = route.other == "ignore" or isinstance(route.other, Mapping)
    otherwise: Literal["elsewhere", "failure", "problem"] = "elsewhere" if stays else "problem"
    return Routing(route.by, route.only(config.value), "failure" if route.other == "fail" else otherwise, ("", OTHER))


def _own_columns(config: PipelineConfig, spark: SparkSession, newest: NewestSchemas) -> tuple[OwnColumns, ...]:
    route = config.route
    if route is None:
        return ()
    found = []
    for number, (value, own) in enumerate(route.own.items()):
        alone = config.routed(value)
        (sink,) = alone.sinks
        assert isinstance(sink, DeltaSink)
        # What the subject has dropped since, and the table has a column for, is still read.
        tables = [DeltaTable(spark, path=sink.folder, name=sink.table, label=sink.place)] if own.subject else []
        format = own_format(
            alone.value, route.schema_option(value), spark, _topics(config), held=_held(tables),
            of=value, newest=newest,
        )  # fmt: skip
        key = sink.key if isinstance(sink, KeyedSink) else ()
        found.append(OwnColumns(value, format, key, number))
    return tuple(found)


def _with_columns_of(tables: Iterable[DeltaTable], declared: StructType) -> StructType:
    """The declared columns, and those that the tables have got since from fields of records, also inside of columns.

    Columns that Delta generates, and those of a type that JSON can't hold, have another origin.
    """
    from pyspark.sql.types import StructField, StructType

    fields = {field.name.lower(): field for field in declared}
    for table in tables:
        detail = table.detail()
        if detail is None:
            continue
        others = {*OWN_COLUMNS, *(name.lower() for name in (*detail.generated, *detail.identities))}
        for field in table.schema:
            if field.name.lower() in others or unreadable(field.dataType) is not None:
                continue
            mine = fields.setdefault(field.name.lower(), field)
            inner = grown(mine.dataType, field.dataType)
            fields[field.name.lower()] = StructField(mine.name, inner, mine.nullable, mine.metadata)
    return StructType(list(fields.values()))


def _held(tables: Iterable[DeltaTable]) -> frozenset[str]:
    """The paths of what the tables have columns for, without those that Delta generates: see `paths`."""
    found: set[str] = set()
    for table in tables:
        detail = table.detail() if table.was_there() else None
        if detail is not None:
            found.update(paths(table.schema))
            found.difference_update(name.lower() for name in (*detail.generated, *detail.identities))
    return frozenset(found)


def _held_of_groups(config: PipelineConfig, tables: Mapping[int, DeltaTable]) -> frozenset[str]:
    """The paths of what the tables of aggregates have columns for, of the columns that say which group a record is of.
    Their other columns are results.

    Of a STRUCT that is such a column no field may be left out. Where steps or a transform make columns, one of that
    name isn't a field of the records, and only what is inside counts.
    """
    found: set[str] = set()
    for number, table in tables.items():
        sink = config.sinks[number]
        groups = {name.lower() for name in sink.group_by} if isinstance(sink, DeltaAggregateSink) else ()
        of_groups = [path for path in (_held([table]) if groups else ()) if path.partition(".")[0] in groups]
        found.update(path for path in of_groups if "." in path or not config.reshaped)
    return frozenset(found)


def _without_new_columns(
    rows: DataFrame, table: DeltaTable, carried: Sequence[str], key: Sequence[str] = ()
) -> DataFrame:
    """The rows without the columns that the table lacks, except for those ``carried``. If there is no table yet, all
    columns stay. Those of the ``key`` keep their fields: without one, two keys would be the same."""
    if table.detail() is None:
        return rows
    there = {field.name.lower(): field.dataType for field in table.schema}
    kept = {name.lower() for name in key}

    def selected(field: StructField) -> str:
        name, kind = identifier(field.name), there.get(field.name.lower())
        if kind is None or field.name.lower() in kept:
            return name
        return f"{narrowed(name, field.dataType, kind)} AS {name}"

    return rows.selectExpr(
        *(selected(field) for field in rows.schema if field.name.lower() in there or field.name in carried)
    )
