"""A pipeline: its file, its parts put together, and what can be done with it."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from connector.config import COORDINATES, DeltaUpsertSink, PipelineConfig, load, parse
from connector.decode.json import decode_json
from connector.delivery import auto_commit, idempotent, manual_commit, transactional
from connector.delivery.handover import hand_over
from connector.delivery.work import Delivered, GroupWork, Work, behind
from connector.epoch import run_epoch
from connector.group import ConsumerGroup
from connector.member import GroupMember
from connector.protocol.recover import TopicsHeld, resume
from connector.protocol.steps import Event, Observer
from connector.reduce import as_is, latest_per_key
from connector.source import KafkaSource, polled
from connector.spark import session
from sinks.contract import Committed, Epoch, Position, Sink
from sinks.delta.append import DeltaAppend
from sinks.delta.commit import PipelineCommits
from sinks.delta.plain import PlainAppend, PlainUpsert
from sinks.delta.table import DeltaTable
from sinks.delta.upsert import DeltaUpsert
from sinks.errors import ConfigurationError
from sinks.offsets import Offsets, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger("lakelock.pipeline")

_IN_GROUP = {
    "auto_commit": auto_commit.deliver,
    "manual_commit": manual_commit.deliver,
    "idempotent": idempotent.deliver,
}


@dataclass(frozen=True)
class Status:
    """Where a pipeline stands: what its table holds, next to what Kafka holds."""

    pipeline: str
    delivery: str
    table: str
    position: Position | None
    offsets: Offsets
    """Next offsets: the table's, or the consumer group's where the delivery keeps them there."""
    held: TopicsHeld

    @property
    def lag(self) -> Mapping[TopicPartition, int]:
        """Offsets that Kafka holds and that are still to be read, per partition: an upper bound on the records."""
        return {at: max(0, end - self.offsets.get(at, self.held.beginnings[at])) for at, end in self.held.ends.items()}


@dataclass(frozen=True)
class Checked:
    """What `check` found: the table as it would be used, and where a run would start."""

    table_exists: bool
    columns: Sequence[str]
    position: Position | None
    next_offsets: Offsets
    behind: int


@dataclass(frozen=True)
class _Parts:
    source: KafkaSource
    group: ConsumerGroup
    table: DeltaTable
    sink: Sink[DataFrame]
    """Rows, offsets and epoch number in one commit."""
    plain: PlainAppend | PlainUpsert
    """Rows alone, for the deliveries whose offsets are in a consumer group."""
    schema: StructType


class Pipeline:
    """One pipeline file, ready to run. Uses the Spark session that is active, or one of its own."""

    def __init__(self, config: PipelineConfig, *, debug: bool = False) -> None:
        self.config = config
        self._debug = debug

    @classmethod
    def from_file(cls, path: str | Path, *, debug: bool = False) -> Pipeline:
        """Raises ConfigurationError with all faults of the file."""
        return cls(load(path), debug=debug)

    @classmethod
    def from_options(cls, options: Mapping[str, object], *, debug: bool = False) -> Pipeline:
        """The same from a mapping with the options of a pipeline file."""
        return cls(parse(options), debug=debug)

    def run(self, *, stop: threading.Event | None = None, observers: Sequence[Observer] = ()) -> Delivered:
        """Move what Kafka holds into the table; with an interval trigger until ``stop`` is set.

        Raises LakelockError: see ``sinks.errors``. Whatever it raises, the table holds whole epochs only.
        """
        owner = str(uuid.uuid4())
        stop = stop or threading.Event()
        with self._parts() as (spark, parts):
            wanted = _table_schema(parts.schema)
            detail = parts.table.detail()
            if detail is None:
                parts.table.create(wanted)
                detail = parts.table.detail()
            if detail is not None:
                parts.table.check(detail, wanted)

            def observe(event: Event) -> None:
                for observer in observers:
                    observer(event)

            def run_one(epoch: Epoch, offsets_behind: int) -> Committed:
                return run_epoch(
                    epoch,
                    read=partial(parts.source.read, spark),
                    decode=partial(decode_json, schema=parts.schema),
                    reduce=self._reduce,
                    write=parts.sink.write,
                    observe=observe,
                    behind=offsets_behind,
                )

            work = Work(
                pipeline=self.config.name,
                owner=owner,
                topics=parts.source,
                position=parts.sink.position,
                run_epoch=run_one,
                max_records=self.config.epoch.max_records,
                group=parts.group,
                observe=observe,
                continue_on_data_loss=self.config.source.continue_on_data_loss,
            )
            log.info("run %s of pipeline %s, %s", owner, self.config.name, self.config.delivery)
            if self.config.delivery != "transactional":
                return self._run_in_group(work, spark, parts, stop)
            return transactional.deliver(work, interval=self.config.interval, stop=stop)

    def _run_in_group(self, work: Work, spark: SparkSession, parts: _Parts, stop: threading.Event) -> Delivered:
        position = hand_over(work, self.config.delivery)
        member = GroupMember(
            self.config,
            owner=work.owner,
            source=parts.source,
            group=parts.group,
            position=position,
            stop=stop,
            observe=work.observe,
        )

        def write(batch: Epoch) -> int:
            records = member.records
            if not records:
                return 0
            committed = run_epoch(
                batch,
                read=lambda _: polled(spark, records),
                decode=partial(decode_json, schema=parts.schema),
                reduce=self._reduce,
                write=parts.plain.write,
                observe=work.observe,
                behind=member.behind,
            )
            return len(records) if committed.rows is None else committed.rows

        try:
            return _IN_GROUP[self.config.delivery](GroupWork(member, write))
        finally:
            member.close()

    def check(self) -> Checked:
        """Everything that a run would find out before its first epoch. Touches nothing."""
        with self._parts() as (_, parts):
            held = parts.source.look()
            wanted = _table_schema(parts.schema)
            detail, position = parts.table.detail(), None
            if detail is not None:
                parts.table.check(detail, wanted)
                position = parts.sink.position()
            stood = position and replace(position, offsets=_next_offsets(position, parts.group))
            resumption = resume(
                stood,
                held,
                parts.source.starting(held),
                continue_on_data_loss=self.config.source.continue_on_data_loss,
            )
            return Checked(
                detail is not None, wanted.names, position, resumption.offsets, behind(resumption.offsets, held)
            )

    def status(self) -> Status:
        with self._parts() as (_, parts):
            position = parts.sink.position()
            return Status(
                self.config.name,
                self.config.delivery,
                parts.table.label,
                position,
                _next_offsets(position, parts.group),
                parts.source.look(),
            )

    @contextmanager
    def _parts(self) -> Iterator[tuple[SparkSession, _Parts]]:
        # Kafka first: that no broker answers is known long before Spark has started.
        source = KafkaSource(self.config.source)
        group = ConsumerGroup(self.config)
        try:
            source.look()
            with session(self.config.spark_options, name=self.config.name, debug=self._debug) as spark:
                options = self.config.sinks[0]
                table = DeltaTable(spark, path=options.path, name=options.table)
                commits = PipelineCommits(table, pipeline=self.config.name, topics=self.config.source.topics)
                schema = _value_schema(self.config)
                sink: Sink[DataFrame]
                plain: PlainAppend | PlainUpsert
                if isinstance(options, DeltaUpsertSink):
                    sink = DeltaUpsert(table, commits, key=options.key)
                    plain = PlainUpsert(table, key=options.key, guarded=self.config.delivery == "idempotent")
                else:
                    sink, plain = DeltaAppend(table, commits), PlainAppend(table)
                yield spark, _Parts(source, group, table, sink, plain, schema)
        finally:
            group.close()
            source.close()

    def _reduce(self, records: DataFrame) -> DataFrame:
        options = self.config.sinks[0]
        return latest_per_key(records, options.key) if isinstance(options, DeltaUpsertSink) else as_is(records)


def _next_offsets(position: Position | None, group: ConsumerGroup) -> Offsets:
    if position is None:
        return Offsets()
    if position.delivery == "transactional":
        return position.offsets
    return position.offsets.join(group.committed())


def _value_schema(config: PipelineConfig) -> StructType:
    """``value.schema`` as Spark reads it. Only Spark knows its DDL, so this is checked once there is a session."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import MapType, StructType

    try:
        schema = StructType.fromDDL(config.value.schema_)
    except PySparkException as error:
        problem = next(line for line in str(error).splitlines() if line.strip())
        raise ConfigurationError(
            f"value.schema: not a Spark schema: {problem.strip()}",
            hint='Write columns as in "carrier STRING, flight INT, at TIMESTAMP".',
        ) from None
    if not isinstance(schema, StructType) or not schema.names:
        raise ConfigurationError('value.schema: write columns, as in "carrier STRING, flight INT".')
    lower = [name.lower() for name in schema.names]
    for name in schema.names:
        if lower.count(name.lower()) > 1:
            raise ConfigurationError(f"value.schema: column {name} is there twice (upper and lower case are the same).")
        if name.lower() in COORDINATES:
            raise ConfigurationError(
                f"value.schema: {name} is a column of Lakelock's own ({', '.join(COORDINATES)}); take it out."
            )
    options = config.sinks[0]
    for column in options.key if isinstance(options, DeltaUpsertSink) else ():
        if column not in schema.names:
            raise ConfigurationError(
                f"sinks[0].key: {column!r} isn't a column of value.schema.",
                hint=f"Its columns are {', '.join(schema.names)}.",
            )
        if isinstance(schema[column].dataType, MapType):
            raise ConfigurationError(f"sinks[0].key: {column!r} is a MAP, which can't be compared.")
    return schema


def _table_schema(value: StructType) -> StructType:
    from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

    types = (StringType(), IntegerType(), LongType(), TimestampType())
    return StructType(
        [*value.fields, *(StructField(name, kind) for name, kind in zip(COORDINATES, types, strict=True))]
    )
