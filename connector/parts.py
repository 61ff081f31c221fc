"""What a pipeline is made of, put together from its file: for each sink how records become its rows, and the sink."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from connector.config import (
    OWN_COLUMNS,
    CustomSink,
    DeltaPlace,
    DeltaUpsertSink,
    KafkaTopicSink,
    KeyedSink,
    PipelineConfig,
    S3ObjectsSink,
    TopicPattern,
)
from connector.decode import as_declared, record_format
from connector.decode.records import CARRIED, PROBLEM, RAW, TOMBSTONE, RecordDecoder, refuse_tombstones
from connector.derive import Derivation, TableDerivation, as_is, derive
from connector.letters import Letters, Place
from connector.own import own_class
from connector.spark import is_connect, isolated
from connector.transform import transform
from sinks.contract import TwoPhaseSink
from sinks.delta import limits
from sinks.delta.append import DeltaAppend
from sinks.delta.commit import PipelineCommits
from sinks.delta.dead_letters import DeadLetters
from sinks.delta.kept import merging
from sinks.delta.table import DeltaTable
from sinks.delta.two_phase import TwoPhaseDelta
from sinks.errors import ConfigurationError, LakelockError
from sinks.evolution import narrowed
from sinks.limits import Limit, of_partition
from sinks.raised import identifier
from sinks.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sinks.objects import S3Objects
    from sinks.topic.dead_letters import TopicDeadLetters

Rows = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True)
class Decoder:
    """From Kafka's records to rows of the user's columns, in two steps: sinks with the same ``decode`` share it."""

    decode: RecordDecoder
    """The formats of value and key. With dead letters, records that have a ``_problem`` are there too."""
    shape: Rows
    """What the sink takes of those without a problem, and the transform. With dead letters they still have ``_raw``,
    and ``_tombstone`` whether the sink takes such or not."""
    takes_tombstones: bool
    several: bool
    """A record may make several rows."""

    def __call__(self, records: DataFrame) -> DataFrame:
        """Of records that are all right."""
        rows = self.shape(self.decode(records)).drop(RAW)
        return rows if self.takes_tombstones else rows.drop(TOMBSTONE)


@dataclass(frozen=True)
class Table:
    """One Delta table of a pipeline."""

    decode: Decoder
    derivation: TableDerivation
    table: DeltaTable
    commits: PipelineCommits

    @property
    def label(self) -> str:
        return self.table.label

    @property
    def location(self) -> str:
        return self.table.location

    def ready(self) -> None:
        """Make the table, unless it is there. Raises SchemaMismatch, NotADeltaTable."""
        if self.table.detail() is None:
            self.table.create(self.derivation.columns)
        self.check()
        self.table.allow_widening(self.derivation.columns)

    def check(self) -> bool:
        """Whether it is there; raises SchemaMismatch where it doesn't take the rows."""
        detail = self.table.detail()
        if detail is not None:
            columns, carried = self.derivation.columns, self.derivation.carried
            self.derivation.check()
            merged = not isinstance(self.derivation.sink, DeltaAppend)
            self.table.check(detail, columns, limits.faults(detail, self._demanding, columns, carried, merged=merged))
        return detail is not None

    def unfit(self, rows: DataFrame) -> Sequence[Limit]:
        """What the table can't hold of decoded records."""
        detail = self.table.detail()
        if detail is None:
            return ()
        found = limits.of_values(detail, self._demanding, rows.schema, self.derivation.carried)
        whole = isinstance(self.derivation.sink, DeltaAppend)
        return [*found, *limits.of_rows(detail, rows, self._demanding)] if whole else found

    @cached_property
    def _demanding(self) -> StructType:
        """The table's columns with what they demand, read once as ``detail`` is: columns that a run adds have none."""
        return self.table.schema

    def two_phase(self, pipeline: str) -> TwoPhaseSink[DataFrame]:
        return TwoPhaseDelta(self.table, self.derivation.sink, pipeline=pipeline)


@dataclass(frozen=True)
class Other:
    """A sink that isn't a table."""

    decode: Decoder
    derivation: Derivation
    sink: TwoPhaseSink[DataFrame]
    partition_by: Sequence[str] = ()

    @property
    def label(self) -> str:
        return self.sink.name

    @property
    def location(self) -> str:
        """No table's: such a sink looks after itself."""
        return ""

    def ready(self) -> None:
        self.check()

    def check(self) -> bool:
        return True

    def unfit(self, rows: DataFrame) -> Sequence[Limit]:
        return [limit for name in self.partition_by for limit in of_partition(name, rows.schema[name].dataType)]

    def two_phase(self, _: str) -> TwoPhaseSink[DataFrame]:
        return self.sink


Output = Table | Other


@contextmanager
def outputs(config: PipelineConfig, spark: SparkSession, records: DataFrame, staging: str) -> Iterator[list[Output]]:
    """The sinks of the pipeline. ``records``: none, as Kafka gives them; ``staging``: a folder of the pipeline's own.

    Several tables get a session each: a MERGE takes its epoch from the session. Raises ConfigurationError.
    """
    found: list[Output] = []
    with ExitStack() as stack:
        tables: dict[int, DeltaTable] = {}
        for index, sink in enumerate(config.sinks):
            if isinstance(sink, DeltaPlace):
                own = stack.enter_context(isolated(spark)) if config.two_phase and not is_connect(spark) else spark
                merging(own, staged=own is not spark and isinstance(sink, DeltaUpsertSink))
                tables[index] = DeltaTable(own, path=sink.path, name=sink.table, on_new_column=config.on_new_column)
        for index, (sink, decode) in enumerate(zip(config.sinks, decoders(config, spark, tables), strict=True)):
            with _about(index):
                rows = decode(records)
                if isinstance(sink, DeltaPlace):
                    table = tables[index]
                    commits = PipelineCommits(
                        table,
                        pipeline=config.name,
                        topics=config.source.topics,
                        stops_at_changes=config.on_foreign_delete == "stop",
                    )
                    found.append(Table(decode, derive(config.alone(index), table, commits, rows), table, commits))
                else:
                    found.append(_other(config.alone(index), sink, decode, rows, spark, staging))
        yield found


def with_new_columns(
    config: PipelineConfig, records: DataFrame, names: Sequence[str], found: Mapping[str, Output]
) -> dict[str, Output]:
    """The same sinks for records that have got more columns since. ``names``: of the sinks, in the file's order.

    Raises ConfigurationError, SchemaMismatch.
    """
    changed: dict[str, Output] = {}
    for name, output in found.items():
        index = names.index(name)
        with _about(index):
            rows = output.decode(records)
            if isinstance(output, Table):
                derivation = derive(config.alone(index), output.table, output.commits, rows)
                changed[name] = replace(output, derivation=derivation)
                changed[name].ready()
            else:
                changed[name] = replace(output, derivation=as_is(config.alone(index), rows))
    return changed


def decoders(
    config: PipelineConfig, spark: SparkSession, tables: Mapping[int, DeltaTable] = MappingProxyType({})
) -> Sequence[Decoder]:
    """One per sink; ``tables`` by the number of their sink. A sink without a key takes no tombstones, which are refused
    only where it takes its rows."""
    topics = config.source.topics
    if isinstance(topics, TopicPattern):
        topics = (topics.pattern,)  # a registry is asked for the subject that it was given
    # A transform says itself which columns there are: of other fields it wouldn't know.
    learns = config.on_new_column != "add" or config.transform is None
    value = record_format(
        "value", config.value, spark, topics,
        on_new_column=config.on_new_column if learns else None,
        added=partial(_with_columns_of, tables.values()) if config.on_new_column == "add" and learns else as_declared,
    )  # fmt: skip
    key_format = record_format("key", config.key, spark, topics) if config.key is not None else None
    letters = config.on_bad_record == "dead_letter"
    keys = [sink.key if isinstance(sink, KeyedSink) else None for sink in config.sinks]
    first = next((key for key in keys if key), None)
    decode = {
        columns: RecordDecoder(
            value, key_format, headers=config.headers, tombstones=columns, require=config.require, letters=letters,
            raw=config.dead_letters is not None,
        )
        for columns in {columns or first for columns in keys}
    }  # fmt: skip

    def shape(index: int, columns: Sequence[str] | None, table: DeltaTable | None, rows: DataFrame) -> DataFrame:
        if letters:
            rows = rows.where(f"{PROBLEM} IS NULL").drop(PROBLEM)
        elif columns is None and TOMBSTONE in rows.columns:
            rows = refuse_tombstones(rows)
        rows = transform(rows, config.transform, CARRIED, view=f"lakelock_records_{index}")
        return rows if table is None else _without_new_columns(rows, table)

    return [
        Decoder(
            decode[columns or first],
            partial(shape, index, columns, tables.get(index) if config.on_new_column == "ignore" else None),
            takes_tombstones=columns is not None,
            several=config.transform is not None or config.of_rows,
        )
        for index, columns in enumerate(keys)
    ]


def _with_columns_of(tables: Iterable[DeltaTable], declared: StructType) -> StructType:
    """Columns that a table has got from fields of records since, and that are still to be filled from them."""
    from pyspark.sql.types import StructType

    fields = {field.name.lower(): field for field in declared}
    for table in tables:
        for field in table.schema if table.detail() is not None else ():
            if field.name.lower() not in OWN_COLUMNS:
                fields.setdefault(field.name.lower(), field)
    return StructType(list(fields.values()))


def _without_new_columns(rows: DataFrame, table: DeltaTable) -> DataFrame:
    """What the table, if it is there, lacks is left out."""
    if table.detail() is None:
        return rows
    there = {field.name.lower(): field.dataType for field in table.schema}
    return rows.selectExpr(
        *(
            narrowed(identifier(field.name), field.dataType, there[field.name.lower()])
            + f" AS {identifier(field.name)}"
            if field.name.lower() in there
            else identifier(field.name)
            for field in rows.schema
            if field.name.lower() in there or field.name in CARRIED
        )
    )


def letters(config: PipelineConfig, spark: SparkSession) -> Letters | None:
    place = config.dead_letters
    to: Place | None = letters_table(config, spark) or letters_topic(config)
    return Letters(to, max_share=place.max_share, label=place.place) if place and to else None


def letters_table(config: PipelineConfig, spark: SparkSession) -> DeadLetters | None:
    """None: there are no letters, or they go to a topic."""
    place = config.dead_letters
    if place is None or place.topic is not None:
        return None
    return DeadLetters(DeltaTable(spark, path=place.path, name=place.table), pipeline=config.name)


def letters_topic(config: PipelineConfig) -> TopicDeadLetters | None:
    """None: there are no letters, or they go to a table."""
    from sinks.topic.dead_letters import TopicDeadLetters

    place = config.dead_letters
    if place is None or place.topic is None:
        return None
    return TopicDeadLetters(place.topic, pipeline=config.name, kafka=config.source.kafka_options)


def _other(
    config: PipelineConfig,
    sink: S3ObjectsSink | KafkaTopicSink | CustomSink,
    decode: Decoder,
    rows: DataFrame,
    spark: SparkSession,
    staging: str,
) -> Other:
    if isinstance(sink, KafkaTopicSink):
        from sinks.topic import KafkaTopic

        kafka = config.source.kafka_options
        topic = KafkaTopic(
            sink.topic,
            Staging(spark, staging),
            pipeline=config.name,
            group=config.group,
            kafka={name: value for name, value in kafka.items() if name != "group.id"},
            key=sink.key,
        )
        return Other(decode, as_is(config, rows), topic)
    if isinstance(sink, CustomSink):
        return Other(decode, as_is(config, rows), custom_sink(sink, spark, staging))
    return Other(decode, as_is(config, rows), s3_objects(spark, sink, pipeline=config.name), sink.partition_by)


def s3_objects(spark: SparkSession, sink: S3ObjectsSink, *, pipeline: str) -> S3Objects:
    from sinks.objects import S3Objects
    from sinks.s3 import S3Options

    options = S3Options(
        endpoint=sink.endpoint,
        region=sink.region,
        path_style=sink.path_style,
        server_side_encryption=sink.server_side_encryption,
        kms_key_id=sink.kms_key_id,
        storage_class=sink.storage_class,
    )
    return S3Objects(
        spark, sink.url, pipeline=pipeline, format=sink.format, partition_by=sink.partition_by, options=options
    )


def custom_sink(sink: CustomSink, spark: SparkSession, staging: str) -> TwoPhaseSink[DataFrame]:
    made = own_class("sinks[0].sink", sink.sink)
    # A folder of this sink alone, whatever is in its name.
    own = f"{staging}/{hashlib.sha256(sink.name.encode()).hexdigest()[:16]}"
    try:
        found: TwoPhaseSink[DataFrame] = made(spark, name=sink.name, staging=own, **sink.arguments)
    except TypeError as error:
        raise ConfigurationError(
            f"sinks[0].options: {sink.sink} doesn't take them: {error}.",
            hint="It is called with the Spark session, name, staging, and what options says.",
        ) from error
    if found.name != sink.name:
        raise ConfigurationError(
            f"sinks[0].sink: {sink.sink} calls itself {found.name!r}: it has to keep the name that it is given."
        )
    return found


@contextmanager
def _about(index: int) -> Iterator[None]:
    """What puts one sink together calls it sinks[0]."""
    try:
        yield
    except LakelockError as error:
        error.message = error.message.replace("sinks[0]", f"sinks[{index}]")
        error.hint = error.hint.replace("sinks[0]", f"sinks[{index}]")
        error.args = (error.message,)
        raise
