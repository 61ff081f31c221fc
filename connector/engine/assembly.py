"""A pipeline put together to be run: session, source, consumer group, sinks, and what an epoch does with them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from connector.config import DeltaAppendSink, Fold, KafkaTopicSink, PipelineConfig, Translated
from connector.decode.event_time import Timing
from connector.delivery.ports import Group, Topics, Work
from connector.delivery.retries import Patience
from connector.engine.coordinator import Coordinator
from connector.engine.coordinator_log import Log
from connector.engine.dead_letters import letters, letters_table, letters_topic
from connector.engine.epoch import Reading, prepare_epoch, run_epoch
from connector.engine.fold import Folding
from connector.engine.outputs import Output, Table, outputs, with_new_columns
from connector.engine.undo import suspect, undo
from connector.protocol.recover import TopicsHeld, behind
from connector.protocol.steps import Observer
from connector.source.consumer_group import ConsumerGroup, Unpublished
from connector.source.records import no_records
from connector.source.topics import KafkaSource
from connector.source.translated_offsets import translated
from connector.spark.compat import is_connect
from connector.spark.session import session
from connector.spark.tuning import tuned
from sinks.contract import Committed, Epoch, Position, Prepared
from sinks.delta.recreated import retire
from sinks.delta.table import DeltaTable
from sinks.delta.tombstones import Tombstones
from sinks.errors import ConfigurationError, LakelockError, OffsetsLost, TopicRecreated
from sinks.offsets import OffsetRange, Offsets
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
        """Where the table was restored since its last epoch, its letters are what they were. Where the table was merged
        on read, and isn't any more, its log of changes ends."""
        if self.config.two_phase:
            self._refuse_unfolded()
            return
        if self.config.dead_letters is not None:
            self.reopen_letters(self.table.derivation.sink.position())
        log = self.table.derivation.log
        if log is None:
            return
        if self.config.merged_on_read is None:
            log.close(self.run)
        else:
            log.make_ready()

    def reopen_letters(self, position: Position | None) -> None:
        """Letters that have gone through in epochs which a RESTORE has taken back are open again."""
        if position is None or position.restored_to is None:
            return
        found = letters_table(self.config, self.spark)
        if found is not None:
            found.take_back(position.offsets, position.restored_to, position.epoch)

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
        coordinator: Coordinator | None = None
        if self.log is not None:
            coordinator = self.coordinator(observe)
            if any(isinstance(sink, KafkaTopicSink) for sink in self.config.sinks):
                group = Unpublished()  # the topic's transactions commit the group's offsets

        reading = self.reading({output.label: output for output in self.outputs})

        def run_one(epoch: Epoch, offsets_behind: int) -> Committed:
            sink = self.table.derivation.sink
            with tuned(self.spark, self.config.spark_options, appended=epoch.span if sink.appends else None):
                return run_epoch(epoch, reading, write=self._write, observe=observe, behind=offsets_behind)

        folding = self.folding(observe)
        return Work(
            pipeline=self.config.name,
            owner=self.run,
            topics=topics,
            position=coordinator.position if coordinator else self.table.derivation.sink.position,
            run_epoch=coordinator.run_epoch if coordinator else run_one,
            max_records=self.config.epoch.max_records,
            group=group,
            observe=observe,
            continue_on_data_loss=self.config.source.continue_on_data_loss,
            max_bytes=self.config.epoch.max_bytes,
            target_duration=self.config.epoch.target_duration,
            target_latency=self.config.target_latency,
            retire=self._retire if self.config.source.takes_recreated else None,
            starts=self.starts,
            fold=folding.after if folding else None,
            settle=coordinator.settle if coordinator else None,
            restored=self.reopen_letters,
            patience=Patience(self.config.retry.attempts, self.config.retry.longest_wait),
        )

    def _write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        """Spark reads within the write, so only after the commit it is known that no topic was made again meanwhile,
        and no log cut. Where one was, the commit is undone."""
        committed = self.table.derivation.sink.write(epoch, rows)
        try:
            self.source.refuse_changed(epoch)
        except (TopicRecreated, OffsetsLost) as error:
            if self.config.merged_on_read is not None:  # a log that is restored would count no more at all
                raise suspect(self.table.table, committed, error) from None
            undo(self.table.table, self.table.commits, committed, error)
            self.look_back()
            raise
        return committed

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

    def _retire(self, epoch: Epoch, names: Mapping[str, str]) -> Committed:
        """What is stored of topics that were made again gets other names."""
        of, letters = self.table, self.config.dead_letters
        beside = [Tombstones(of.table, ()).table]
        if letters is not None and letters.topic is None:
            beside.append(DeltaTable(of.table.spark, path=letters.path, name=letters.table))
        return retire(of.table, of.commits, epoch, names, beside)

    def starts(self, position: Position, held: TopicsHeld, names: Mapping[str, str]) -> Offsets:
        """Where topics that were made again begin, if not at their beginning."""
        on = self.config.source.on_recreated_topic
        if not isinstance(on, Translated):
            return Offsets()
        return translated(on.translated).starts(self.config.name, position, held, names)

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
