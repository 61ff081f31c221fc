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
from connector.config import DeltaAppendSink, Fold, FromTimestamp, KafkaTopicSink, PipelineConfig, load, parse
from connector.coordinator import Coordinator
from connector.delivery import auto_commit, idempotent, manual_commit, transactional
from connector.delivery.handover import hand_over
from connector.delivery.work import Delivered, Group, GroupWork, Topics, Work, behind
from connector.epoch import Reading, prepare_epoch, run_epoch
from connector.fold import Folding
from connector.group import ConsumerGroup
from connector.log import Log
from connector.member import GroupMember
from connector.parts import (
    Output,
    Table,
    letters,
    letters_table,
    letters_topic,
    outputs,
    with_new_columns,
)
from connector.protocol.recover import TopicsHeld, resume
from connector.protocol.retire import recreated, retirement
from connector.protocol.steps import Event, Observer
from connector.protocol.two_phase import Recovered, Row
from connector.retry import Retried, refuse_unfit, retry
from connector.rewind import Rewind, Unpublished, Until, planned, rewind
from connector.source import KafkaSource, no_records, polled
from connector.spark import is_connect, session
from connector.status import Checked, CheckedSink, Status
from sinks.contract import Committed, Epoch, Position, Prepared
from sinks.delta.commit import PipelineCommits
from sinks.delta.retire import retire
from sinks.delta.rewind import Target, before_event_time, before_offsets
from sinks.delta.table import DeltaTable
from sinks.delta.tombstones import Tombstones
from sinks.errors import ConfigurationError, LakelockError
from sinks.offsets import Offsets
from sinks.s3a import require_conditional_writes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakelock.pipeline")

_SHORT = 100_000
"""Records that a JVM started in haste reads as soon as any other."""
_IN_GROUP = {
    "auto_commit": auto_commit.deliver,
    "manual_commit": manual_commit.deliver,
    "idempotent": idempotent.deliver,
}


@dataclass(frozen=True)
class _Parts:
    run: str
    source: KafkaSource
    group: ConsumerGroup
    outputs: Sequence[Output]
    log: Log | None
    """With two-phase commit."""

    @property
    def table(self) -> Table:
        """The one table of a pipeline without two-phase commit."""
        (table,) = self.outputs
        assert isinstance(table, Table)
        return table


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

        self._needs_one_table("rewind", "what is in a topic or a bucket can't be taken back")

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
                parts.table.commits,
                held,
                parts.source,
                find=find,
                wanted=wanted,
                continue_on_data_loss=self.config.source.continue_on_data_loss,
            )
            if confirm(plan):
                require_conditional_writes(spark, parts.table.table.location)
                work = self._work(spark, parts, observers, topics=parts.source)
                rewind(plan, parts.table.table, work, restored=lambda: self._look_back(spark, parts))
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
        self._needs_one_table("replay", "a replay fills one new table")
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
        with self._parts(short=None if publish else False) as (spark, parts):
            self._make_ready(spark, parts)
            self._look_back(spark, parts)
            topics = parts.source if until is None else Until(parts.source, until)
            work = self._work(spark, parts, observers, topics=topics)
            if not publish:
                work = replace(work, group=Unpublished())
            log.info("run %s of pipeline %s, %s", work.owner, self.config.name, self.config.delivery)
            if self.config.delivery != "transactional":
                return self._run_in_group(work, spark, parts, stop)
            return transactional.deliver(work, interval=self.config.interval, stop=stop)

    def fold(self, *, observers: Sequence[Observer] = ()) -> Committed | None:
        """Fold what was appended with ``merge: on_read`` into the table, also while a run goes on. None: all is folded.

        Raises ConfigurationError for a pipeline that doesn't merge on read.
        """
        if self.config.merged_on_read is None:
            raise ConfigurationError(
                f"Pipeline {self.config.name!r} has nothing to fold: each epoch is merged into the table.",
                hint="`merge: on_read` in a delta_upsert sink appends them, and folds them now and then.",
            )
        with self._parts() as (spark, parts):
            self._make_ready(spark, parts)
            position = parts.table.derivation.sink.position()
            folding = self._folding(parts, _all(observers))
            return folding.now(position) if position is not None and folding is not None else None

    def _folding(self, parts: _Parts, observe: Observer) -> Folding | None:
        sink = self.config.merged_on_read
        log = parts.table.derivation.log if sink is not None else None
        if sink is None or log is None:
            return None
        return Folding(log, sink.fold or Fold(), self.config.name, parts.run, observe)

    def retry_dead_letters(self, *, observers: Sequence[Observer] = ()) -> Retried:
        """Send the dead letters through the pipeline as it is now, each that is right now once.

        Raises ConfigurationError where the table can't tell which it holds; Fenced where a run commits meanwhile, which
        is fenced itself where it goes on after this.
        """
        refuse_unfit(self.config)
        with self._parts() as (spark, parts):
            self._make_ready(spark, parts)
            found = letters_table(self.config, spark)
            assert found is not None
            self._look_back(spark, parts)
            return retry(
                self.config,
                parts.table,
                found,
                self._reading(spark, {parts.table.label: parts.table}, parts),
                run=parts.run,
                held=parts.source.look(),
                observe=_all(observers),
            )

    def recover(self, *, observers: Sequence[Observer] = ()) -> Recovered:
        """Settle an epoch that is in doubt, and nothing else. Needs Kafka only where what was prepared is gone.

        Raises ConfigurationError for a pipeline with one table: its commit is never in doubt.
        """
        if not self.config.two_phase:
            raise ConfigurationError(
                f"Pipeline {self.config.name!r} has one Delta table: rows and offsets are in one commit, which stands "
                "or doesn't. There is never anything to recover."
            )
        with self._parts() as (spark, parts):
            self._make_ready(spark, parts)
            return self._coordinator(spark, parts, _all(observers)).recover()

    def _make_ready(self, spark: SparkSession, parts: _Parts) -> None:
        """Log and tables are there, take the rows, and are where two writers can't overwrite one another."""
        if parts.log is not None:
            parts.log.create()
            require_conditional_writes(spark, parts.log.location)
        for output in parts.outputs:
            output.ready()
            require_conditional_writes(spark, output.location)
        topic = letters_topic(self.config)
        if topic is not None:
            topic.check()

    def _look_back(self, spark: SparkSession, parts: _Parts) -> None:
        """Where the table was restored since its last epoch, its letters are what they were. Where the table was merged
        on read, and isn't any more, its log of changes ends."""
        found = letters_table(self.config, spark) if not self.config.two_phase else None
        position = parts.table.derivation.sink.position() if found is not None else None
        if found is not None and position is not None and position.restored_to is not None:
            found.take_back(position.offsets, position.restored_to, position.epoch)
        log = parts.table.derivation.log if not self.config.two_phase else None
        if log is None:
            return
        if self.config.merged_on_read is None:
            log.close(parts.run)
        else:
            log.make_ready()

    def _work(self, spark: SparkSession, parts: _Parts, observers: Sequence[Observer], *, topics: Topics) -> Work:
        observe = _all(observers)
        group: Group = parts.group
        coordinator: Coordinator | None = None
        if parts.log is not None:
            coordinator = self._coordinator(spark, parts, observe)
            if any(isinstance(sink, KafkaTopicSink) for sink in self.config.sinks):
                group = Unpublished()  # the topic's transactions commit the group's offsets

        reading = self._reading(spark, {output.label: output for output in parts.outputs}, parts)

        def run_one(epoch: Epoch, offsets_behind: int) -> Committed:
            write = parts.table.derivation.sink.write
            return run_epoch(epoch, reading, write=write, observe=observe, behind=offsets_behind)

        folding = self._folding(parts, observe)
        return Work(
            pipeline=self.config.name,
            owner=parts.run,
            topics=topics,
            position=coordinator.position if coordinator else parts.table.derivation.sink.position,
            run_epoch=coordinator.run_epoch if coordinator else run_one,
            max_records=self.config.epoch.max_records,
            group=group,
            observe=observe,
            continue_on_data_loss=self.config.source.continue_on_data_loss,
            max_bytes=self.config.epoch.max_bytes,
            target_duration=self.config.epoch.target_duration,
            target_latency=self.config.target_latency,
            retire=self._retire(parts) if self.config.source.on_recreated_topic == "continue" else None,
            fold=folding.after if folding else None,
            settle=coordinator.settle if coordinator else None,
        )

    def _retire(self, parts: _Parts) -> Callable[[Epoch, Mapping[str, str]], Committed]:
        """What is stored of topics that were made again gets other names."""
        of, letters = parts.table, self.config.dead_letters
        beside = [Tombstones(of.table, ()).table]
        if letters is not None and letters.topic is None:
            beside.append(DeltaTable(of.table.spark, path=letters.path, name=letters.table))
        return lambda epoch, names: retire(of.table, of.commits, epoch, names, beside)

    def _coordinator(self, spark: SparkSession, parts: _Parts, observe: Observer) -> Coordinator:
        sinks = [output.two_phase(self.config.name) for output in parts.outputs]
        by_name = {sink.name: (output, sink) for output, sink in zip(parts.outputs, sinks, strict=True)}

        def prepare(
            epoch: Epoch, names: Sequence[str], again: bool, behind: int
        ) -> tuple[Epoch, Mapping[str, Prepared]]:
            return prepare_epoch(
                epoch,
                self._reading(spark, {name: by_name[name][0] for name in names}, parts),
                {name: by_name[name][1] for name in names},
                again=again,
                at_once=not is_connect(spark),
                observe=observe,
                behind=behind,
            )

        assert parts.log is not None
        return Coordinator(
            parts.log,
            sinks,
            run=parts.run,
            config=self.config.shape,
            prepare=prepare,
            observe=observe,
            at_once=not is_connect(spark),
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

        reading = self._reading(spark, {parts.table.label: parts.table}, parts)

        def write(batch: Epoch) -> int:
            records = member.records
            if not records:
                return 0
            committed = run_epoch(
                batch,
                replace(reading, read=lambda _: polled(spark, records)),
                write=parts.table.derivation.plain.write,
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
        with self._parts(short=True) as (spark, parts):
            held = parts.source.look()
            for output in parts.outputs:
                require_conditional_writes(spark, output.location)
            if parts.log is not None:
                require_conditional_writes(spark, parts.log.location)
            topic = letters_topic(self.config)
            if topic is not None:
                topic.check()
            sinks = [
                CheckedSink(output.label, output.check(), output.derivation.columns.names) for output in parts.outputs
            ]
            position, offsets, _ = self._stands(parts)
            goes_on = self.config.source.on_recreated_topic == "continue"
            if position and goes_on and (names := recreated(position, held)):
                position = retirement(self.config.name, parts.run, position, held, names).position()
                offsets = position.offsets
            resumption = resume(
                position and replace(position, offsets=offsets),
                held,
                parts.source.starting(held),
                parts.source.remaining(held),
                continue_on_data_loss=self.config.source.continue_on_data_loss,
            )
            return Checked(sinks, position, resumption.offsets, behind(resumption.offsets, held))

    def status(self) -> Status:
        with self._parts(short=True) as (_, parts):
            position, offsets, in_doubt = self._stands(parts)
            held = parts.source.look()
            waiting = Offsets({**held.beginnings, **{at: offset for at, offset in offsets.items() if at in held.ends}})
            return Status(
                self.config.name,
                self.config.delivery,
                [output.label for output in parts.outputs],
                position,
                offsets,
                held,
                parts.source.next_times(waiting, held.ends),
                self._unfolded(parts, position),
                in_doubt,
            )

    def _unfolded(self, parts: _Parts, position: Position | None) -> int | None:
        log = parts.table.derivation.log if self.config.merged_on_read is not None else None
        if log is None or position is None or log.folded is None:
            return None
        return max(0, position.epoch - log.folded.epoch)

    def _stands(self, parts: _Parts) -> tuple[Position | None, Offsets, Row | None]:
        """Position, next offsets, and what is in doubt. Settles nothing."""
        if parts.log is not None:
            known = parts.log.read()
            if known.decided is None:
                return None, Offsets(), known.in_doubt
            stands = replace(known.decided.epoch.position(), committed_at=parts.log.since())
            return stands, stands.offsets, known.in_doubt
        table = parts.table
        position = table.derivation.sink.position() if table.table.detail() is not None else None
        return position, _next_offsets(position, parts.group), None

    @contextmanager
    def _parts(self, *, short: bool | None = None) -> Iterator[tuple[SparkSession, _Parts]]:
        """``short``: whether there is little to do; None: that is found out where it makes a difference."""
        # Kafka first: that no broker answers is known long before Spark has started.
        source = KafkaSource(self.config.source)
        group = ConsumerGroup(self.config)
        run = str(uuid.uuid4())
        try:
            held = source.look()
            with session(
                self.config.spark_options,
                name=self.config.name,
                s3=self.config.on_s3,
                debug=self._debug,
                short=lambda: self._is_short(held, group) if short is None else short,
            ) as spark:
                log = None
                if self.config.two_phase and self.config.coordinator is not None:
                    place = self.config.coordinator
                    log = Log(spark, path=place.path, name=place.table, pipeline=self.config.name, run=run)
                with outputs(self.config, spark, no_records(spark), log.staging if log else "") as found:
                    yield spark, _Parts(run, source, group, found, log)
        finally:
            group.close()
            source.close()

    def _is_short(self, held: TopicsHeld, group: ConsumerGroup) -> bool:
        """Whether a run has little to read, and nothing to merge it with, by the offsets that were published to the
        group: a guess, on which nothing depends but how the JVM is started."""
        if self.config.interval is not None or not all(isinstance(s, DeltaAppendSink) for s in self.config.sinks):
            return False
        try:
            return behind(group.committed(), held) <= _SHORT
        except LakelockError:
            return False

    def _needs_one_table(self, what: str, why: str) -> None:
        if self.config.two_phase:
            raise ConfigurationError(
                f"`{what}` is for pipelines with one Delta table: {why}.",
                hint="Write a pipeline file of another name for the one table, and do it there.",
            )

    def _reading(self, spark: SparkSession, outputs: Mapping[str, Output], parts: _Parts) -> Reading:
        clock = self.config.clock
        return Reading(
            read=partial(parts.source.read, spark, headers=self.config.headers or self.config.dead_letters is not None),
            outputs=outputs,
            timing=Timing(clock, self.config.idle_after) if clock is not None else None,
            letters=letters(self.config, spark),
            with_new_columns=partial(
                with_new_columns, self.config, no_records(spark), [output.label for output in parts.outputs]
            ),
        )


def _all(observers: Sequence[Observer]) -> Observer:
    def observe(event: Event) -> None:
        for observer in observers:
            observer(event)

    return observe


def _next_offsets(position: Position | None, group: ConsumerGroup) -> Offsets:
    if position is None:
        return Offsets()
    if position.delivery == "transactional":
        return position.offsets
    return position.offsets.join(group.committed())
