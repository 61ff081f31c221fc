"""What a pipeline is made of, put together from its file: for each sink how records become its rows, and the sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from connector.config import (
    COORDINATES,
    OWN_COLUMNS,
    DeltaPlace,
    DeltaUpsertSink,
    KafkaTopicSink,
    KeyedSink,
    PipelineConfig,
    S3ObjectsSink,
)
from connector.decode.json import decode_json, refuse_tombstones
from connector.derive import Derivation, TableDerivation, as_is, derive
from connector.derive.changes import TOMBSTONE
from connector.spark import isolated
from connector.transform import transform
from sinks.contract import TwoPhaseSink
from sinks.delta.commit import PipelineCommits
from sinks.delta.table import DeltaTable
from sinks.delta.two_phase import TwoPhaseDelta
from sinks.errors import ConfigurationError, LakelockError
from sinks.raised import problem
from sinks.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sinks.objects import S3Objects

Rows = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True)
class Decoder:
    """From Kafka's records to rows of the user's columns, in two steps: sinks with the same ``decode`` share it."""

    decode: Rows
    """The format."""
    shape: Rows
    """What the sink takes of it, and the transform."""

    def __call__(self, records: DataFrame) -> DataFrame:
        return self.shape(self.decode(records))


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

    def check(self) -> bool:
        """Whether it is there; raises SchemaMismatch where it doesn't take the rows."""
        detail = self.table.detail()
        if detail is not None:
            self.derivation.check()
            self.table.check(detail, self.derivation.columns)
        return detail is not None

    def two_phase(self, pipeline: str) -> TwoPhaseSink[DataFrame]:
        return TwoPhaseDelta(self.table, self.derivation.sink, pipeline=pipeline)


@dataclass(frozen=True)
class Other:
    """A sink that isn't a table."""

    decode: Decoder
    derivation: Derivation
    sink: TwoPhaseSink[DataFrame]

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
        for index, (sink, decode) in enumerate(zip(config.sinks, decoders(config), strict=True)):
            with _about(index):
                rows = decode(records)
                if isinstance(sink, DeltaPlace):
                    own = stack.enter_context(isolated(spark)) if config.two_phase and can_isolate(spark) else spark
                    if own is not spark and isinstance(sink, DeltaUpsertSink):
                        # What it merges is staged, and stays as it is: no need for Delta to put it aside once more.
                        own.conf.set("spark.databricks.delta.merge.materializeSource", "none")
                    table = DeltaTable(own, path=sink.path, name=sink.table)
                    commits = PipelineCommits(table, pipeline=config.name, topics=config.source.topics)
                    found.append(Table(decode, derive(config.alone(index), table, commits, rows), table, commits))
                else:
                    found.append(_other(config.alone(index), sink, decode, rows, spark, staging))
        yield found


def can_isolate(spark: SparkSession) -> bool:
    """Whether rows of one session can be read in another: not through Spark Connect."""
    return not hasattr(spark, "cloneSession")


def decoders(config: PipelineConfig) -> Sequence[Decoder]:
    """One per sink. A sink without a key takes no tombstones, which are refused only where it takes its rows."""
    schema = _value_schema(config)
    keys = [sink.key if isinstance(sink, KeyedSink) else None for sink in config.sinks]
    first = next((key for key in keys if key), None)
    decode: Mapping[Sequence[str] | None, Rows] = {
        key: partial(decode_json, schema=schema, key=key) for key in {key or first for key in keys}
    }

    def shape(key: Sequence[str] | None, rows: DataFrame) -> DataFrame:
        if key is None and TOMBSTONE in rows.columns:
            rows = refuse_tombstones(rows, TOMBSTONE)
        return transform(rows, config.transform, (*COORDINATES, TOMBSTONE))

    return [Decoder(decode[key or first], partial(shape, key)) for key in keys]


def _other(
    config: PipelineConfig,
    sink: S3ObjectsSink | KafkaTopicSink,
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
    return Other(decode, as_is(config, rows), s3_objects(spark, sink, pipeline=config.name))


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


def _value_schema(config: PipelineConfig) -> StructType:
    """``value.schema`` as Spark reads it. Only Spark knows its DDL, so this is checked once there is a session."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromDDL(config.value.schema_)
    except PySparkException as error:
        raise ConfigurationError(
            f"value.schema: not a Spark schema: {problem(error)}",
            hint='Write columns as in "carrier STRING, flight INT, at TIMESTAMP".',
        ) from None
    if not isinstance(schema, StructType) or not schema.names:
        raise ConfigurationError('value.schema: write columns, as in "carrier STRING, flight INT".')
    lower = [name.lower() for name in schema.names]
    for name in schema.names:
        if lower.count(name.lower()) > 1:
            raise ConfigurationError(f"value.schema: column {name} is there twice (upper and lower case are the same).")
        if name.lower() in OWN_COLUMNS:
            raise ConfigurationError(
                f"value.schema: {name} is a column of Lakelock's own ({', '.join(OWN_COLUMNS)}); take it out."
            )
    return schema
