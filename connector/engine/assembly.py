"""A pipeline put together to be run: session, source, consumer group, sinks, and what an epoch does with them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from connector.config import DeltaAppendSink, Fold, KafkaTopicSink, PipelineConfig
from connector.decode.event_time import Timing
from connector.delivery.ports import Group, Topics, Work
from connector.delivery.retries import Patience
from connector.engine.coordinator import Coordinator
from connector.engine.coordinator_log import Log
from connector.engine.dead_letters import letters, letters_topic
from connector.engine.epoch import Reading, prepare_epoch
from connector.engine.fold import Folding
from connector.engine.one_table import OneTable, look_back
from connector.engine.outputs import Output, Table, outputs, with_new_columns
from connector.protocol.recover import TopicsHeld, behind
from connector.protocol.steps import Observer
from connector.source.consumer_group import ConsumerGroup, Unpublished
from connector.source.records import no_records
from connector.source.topics import KafkaSource
from connector.spark.compat import is_connect
from connector.spark.session import session
from sinks.contract import Epoch, Prepared
from sinks.errors import ConfigurationError, LakelockError
from sinks.offsets import OffsetRange
from sinks.s3.hadoop import require_conditional_writes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHORT = 100_000
"""Records that a JVM started in haste appends two seconds sooner than another; at three times as many it no longer
does. See docs/spark.md."""


@dataclass(frozen=True)
class Assembly:
    """One run of a pipeline: ``run`` is its id."""

    config: PipelineConfig
    run: str
    spark: SparkSession
    source: KafkaSource
    group: ConsumerGroup
    outputs: Sequence[Output]
    log: Log | None
    """With two-phase commit."""
    read: Callable[[Sequence[OffsetRange]], DataFrame] | None = None
    """The records of offset ranges, from elsewhere; None: from the source."""

    @property
    def table(self) -> Table:
        """The one table of a pipeline without two-phase commit."""
        (table,) = self.outputs
        assert isinstance(table, Table)
        return table

    def make_ready(self) -> None:
        """Log and tables are there, take the rows, and are where two writers can't overwrite one another."""
        if self.log is not None:
            self.log.create()
            require_conditional_writes(self.spark, self.log.location)
        for output in self.outputs:
            output.ready()
            require_conditional_writes(self.spark, output.location)
        topic = letters_topic(self.config)
        if topic is not None:
            topic.check()

    def look_back(self) -> None:
        """Do what earlier runs left to this one. Raises ConfigurationError where that is somebody's decision."""
        if self.config.two_phase:
            self._refuse_unfolded()
        else:
            look_back(self.config, self.spark, self.run, self.table)

    def _refuse_unfolded(self) -> None:
        for output in self.outputs:
            log = output.derivation.log if isinstance(output, Table) else None
            unfolded = log.unfolded() if log is not None else 0
            if unfolded:
                raise ConfigurationError(
                    f"The table {output.label!r} was merged on read, and {unfolded} epochs aren't folded into it yet: "
                    "several sinks would go on without them.",
                    hint="Run `lakelock fold` with the file as it was.",
                )

    def work(self, observe: Observer, *, topics: Topics) -> Work:
        group: Group = self.group
        if self.log is not None and any(isinstance(sink, KafkaTopicSink) for sink in self.config.sinks):
            group = Unpublished()  # the topic's transactions commit the group's offsets
        return Work(
            pipeline=self.config.name,
            owner=self.run,
            topics=topics,
            destination=self.one_table(observe) if self.log is None else self.coordinator(observe),
            max_records=self.config.epoch.max_records,
            group=group,
            observe=observe,
            continue_on_data_loss=self.config.source.continue_on_data_loss,
            max_bytes=self.config.epoch.max_bytes,
            target_duration=self.config.epoch.target_duration,
            target_latency=self.config.target_latency,
            patience=Patience(self.config.retry.attempts, self.config.retry.longest_wait),
        )

    def one_table(self, observe: Observer) -> OneTable:
        reading = self.reading({self.table.label: self.table})
        folding = self.folding(observe)
        return OneTable(self.config, self.run, self.spark, self.source, self.table, reading, folding, observe)

    def reading(self, outputs: Mapping[str, Output]) -> Reading:
        clock = self.config.clock
        if self.config.of_rows and self.read is None:
            raise ConfigurationError(
                "value: {format: rows} is for the batches of a streaming query: a run has nothing but Kafka's bytes.",
                hint="It is for connector.foreach_batch (docs/streaming.md). Or say in which format they are.",
            )
        return Reading(
            read=self.read or partial(self.source.read, self.spark, headers=self.config.reads_headers),
            outputs=outputs,
            timing=Timing(clock, self.config.idle_after) if clock is not None else None,
            letters=letters(self.config, self.spark),
            with_new_columns=partial(
                with_new_columns, self.config, no_records(self.spark), [output.label for output in self.outputs]
            ),
            refuse_changed=self.source.refuse_changed,
        )

    def folding(self, observe: Observer) -> Folding | None:
        sink = self.config.merged_on_read
        log = self.table.derivation.log if sink is not None else None
        if sink is None or log is None:
            return None
        return Folding(log, sink.fold or Fold(), self.config.name, self.run, observe)

    def coordinator(self, observe: Observer) -> Coordinator:
        sinks = [output.two_phase(self.config.name) for output in self.outputs]
        by_name = {sink.name: (output, sink) for output, sink in zip(self.outputs, sinks, strict=True)}

        def prepare(
            epoch: Epoch, names: Sequence[str], again: bool, behind: int
        ) -> tuple[Epoch, Mapping[str, Prepared]]:
            return prepare_epoch(
                epoch,
                self.reading({name: by_name[name][0] for name in names}),
                {name: by_name[name][1] for name in names},
                again=again,
                at_once=not is_connect(self.spark),
                observe=observe,
                behind=behind,
            )

        assert self.log is not None
        return Coordinator(
            self.log,
            sinks,
            run=self.run,
            config=self.config.shape,
            prepare=prepare,
            observe=observe,
            at_once=not is_connect(self.spark),
        )


@contextmanager
def assembled(
    config: PipelineConfig, *, debug: bool = False, short: bool | None = None, spark: SparkSession | None = None
) -> Iterator[Assembly]:
    """``short``: whether there is little to do; None: that is found out where it makes a difference. ``spark``: a
    session whose settings are nobody else's; None: one is found or made."""
    # Kafka first: that no broker answers is known long before Spark has started.
    source = KafkaSource(config.source)
    group = ConsumerGroup(config)
    run = str(uuid.uuid4())
    try:
        held = source.look()
        with ExitStack() as stack:
            if spark is None:
                own = session(
                    config.spark_options,
                    name=config.name,
                    s3=config.on_s3,
                    debug=debug,
                    short=lambda: _is_short(config, held, group) if short is None else short,
                )
                spark = stack.enter_context(own)
            log = None
            if config.two_phase and config.coordinator is not None:
                place = config.coordinator
                log = Log(spark, path=place.path, name=place.table, pipeline=config.name, run=run)
            found = stack.enter_context(outputs(config, spark, no_records(spark), log.staging if log else ""))
            yield Assembly(config, run, spark, source, group, found, log)
    finally:
        group.close()
        source.close()


def _is_short(config: PipelineConfig, held: TopicsHeld, group: ConsumerGroup) -> bool:
    """Whether a run has little to read, and nothing to merge it with, by the offsets that were published to the
    group: a guess, on which nothing depends but how the JVM is started."""
    if config.interval is not None or not all(isinstance(sink, DeltaAppendSink) for sink in config.sinks):
        return False
    try:
        return behind(group.committed(), held) <= _SHORT
    except LakelockError:
        return False
