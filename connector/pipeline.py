"""A pipeline: its file, its parts put together, and what can be done with it."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from connector.clock import Timing
from connector.config import COORDINATES, OWN_COLUMNS, FromTimestamp, KeyedSink, PipelineConfig, load, parse
from connector.decode.json import decode_json
from connector.delivery import auto_commit, idempotent, manual_commit, transactional
from connector.delivery.handover import hand_over
from connector.delivery.work import Delivered, GroupWork, Topics, Work, behind
from connector.derive import Derivation, derive
from connector.derive.changes import TOMBSTONE
from connector.epoch import run_epoch
from connector.group import ConsumerGroup
from connector.member import GroupMember
from connector.protocol.recover import TopicsHeld, resume
from connector.protocol.steps import Event, Observer
from connector.rewind import Rewind, Unpublished, Until, planned, rewind
from connector.source import KafkaSource, no_records, polled
from connector.spark import session
from connector.transform import transform
from sinks.contract import Committed, Epoch, Position
from sinks.delta.commit import PipelineCommits
from sinks.delta.rewind import Target, before_event_time, before_offsets
from sinks.delta.table import DeltaTable
from sinks.errors import ConfigurationError
from sinks.offsets import Offsets, TopicPartition
from sinks.raised import problem

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
    commits: PipelineCommits
    decode: Callable[[DataFrame], DataFrame]
    """From Kafka's records to rows of the user's columns: the format, then the transform."""
    derivation: Derivation


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
        return self._run(stop or threading.Event(), observers)

    def rewind(
        self,
        *,
        to_event_time: datetime | None = None,
        to_version: int | None = None,
        confirm: Callable[[Rewind], bool],
        observers: Sequence[Observer] = (),
    ) -> Rewind:
        """Take the table back: to a version, or to the newest one that holds no record at or after an event time.

        Every record that came after is read again by the next run. ``confirm`` is shown the plan; nothing is done
        unless it says so. Without an ``event_time`` in the pipeline file, Kafka's timestamps count.
        """

        def find(commits: PipelineCommits) -> Target | None:
            if to_version is not None:
                own = commits.at(to_version)
                return Target(to_version, own.metadata.epoch, own.metadata.offsets) if own else None
            assert to_event_time is not None
            if self.config.clock is not None:
                return before_event_time(commits.lineage(), to_event_time, commits.is_own)
            return before_offsets(commits.lineage(), parts.source.at(to_event_time, held), commits.is_own)

        wanted = f"{to_version} of this pipeline" if to_version is not None else f"before {to_event_time}"
        with self._parts() as (spark, parts):
            held = parts.source.look()
            plan = planned(
                parts.commits,
                held,
                parts.source.starting,
                find=find,
                wanted=wanted,
                continue_on_data_loss=self.config.source.continue_on_data_loss,
            )
            if confirm(plan):
                rewind(plan, parts.table, self._work(spark, parts, observers, topics=parts.source))
            return plan

    def replay(
        self,
        into: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        stop: threading.Event | None = None,
        observers: Sequence[Observer] = (),
    ) -> Delivered:
        """Read a stretch of time (Kafka's timestamps, ``[since, until)``) into a new table, as this file says now.

        The new table has the pipeline's name and position: put its path into the file, and the next run goes on there.
        Started again after a crash, it goes on.
        """
        sink = self.config.sinks[0].model_copy(update={"path": into, "table": None})
        start = FromTimestamp(timestamp=since) if since is not None else "earliest"
        source = self.config.source.model_copy(update={"start": start})
        changed = {"sinks": (sink,), "source": source, "delivery": "transactional", "trigger": "available_now"}
        anew = Pipeline(self.config.model_copy(update=changed), debug=self._debug)
        return anew._run(stop or threading.Event(), observers, until=until, publish=False)

    def _run(
        self,
        stop: threading.Event,
        observers: Sequence[Observer],
        *,
        until: datetime | None = None,
        publish: bool = True,
    ) -> Delivered:
        with self._parts() as (spark, parts):
            wanted = parts.derivation.columns
            detail = parts.table.detail()
            if detail is None:
                parts.table.create(wanted)
                detail = parts.table.detail()
            if detail is not None:
                parts.derivation.check()
                parts.table.check(detail, wanted)

            topics = parts.source if until is None else Until(parts.source, until)
            work = self._work(spark, parts, observers, topics=topics)
            if not publish:
                work = replace(work, group=Unpublished())
            log.info("run %s of pipeline %s, %s", work.owner, self.config.name, self.config.delivery)
            if self.config.delivery != "transactional":
                return self._run_in_group(work, spark, parts, stop)
            return transactional.deliver(work, interval=self.config.interval, stop=stop)

    def _work(self, spark: SparkSession, parts: _Parts, observers: Sequence[Observer], *, topics: Topics) -> Work:
        def observe(event: Event) -> None:
            for observer in observers:
                observer(event)

        def run_one(epoch: Epoch, offsets_behind: int) -> Committed:
            return run_epoch(
                epoch,
                read=partial(parts.source.read, spark),
                decode=parts.decode,
                derivation=parts.derivation,
                write=parts.derivation.sink.write,
                timing=self._timing(),
                observe=observe,
                behind=offsets_behind,
            )

        return Work(
            pipeline=self.config.name,
            owner=str(uuid.uuid4()),
            topics=topics,
            position=parts.derivation.sink.position,
            run_epoch=run_one,
            max_records=self.config.epoch.max_records,
            group=parts.group,
            observe=observe,
            continue_on_data_loss=self.config.source.continue_on_data_loss,
        )

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
                decode=parts.decode,
                derivation=parts.derivation,
                write=parts.derivation.plain.write,
                timing=self._timing(),
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
            wanted = parts.derivation.columns
            detail, position = parts.table.detail(), None
            if detail is not None:
                parts.derivation.check()
                parts.table.check(detail, wanted)
                position = parts.derivation.sink.position()
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
            position = parts.derivation.sink.position()
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
                decode = self._decoder()
                empty = decode(no_records(spark))
                derivation = derive(self.config, table, commits, empty)
                yield spark, _Parts(source, group, table, commits, decode, derivation)
        finally:
            group.close()
            source.close()

    def _timing(self) -> Timing | None:
        column = self.config.clock
        return Timing(column, self.config.idle_after) if column is not None else None

    def _decoder(self) -> Callable[[DataFrame], DataFrame]:
        schema = _value_schema(self.config)
        sink = self.config.sinks[0]
        key = sink.key if isinstance(sink, KeyedSink) else None

        def decode(records: DataFrame) -> DataFrame:
            decoded = decode_json(records, schema, key=key)
            return transform(decoded, self.config.transform, (*COORDINATES, TOMBSTONE))

        return decode


def _next_offsets(position: Position | None, group: ConsumerGroup) -> Offsets:
    if position is None:
        return Offsets()
    if position.delivery == "transactional":
        return position.offsets
    return position.offsets.join(group.committed())


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
