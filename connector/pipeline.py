"""A pipeline: its file, and what can be done with it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from connector.config import FromTimestamp, PipelineConfig, load, parse
from connector.delivery import auto_commit, idempotent, manual_commit, transactional
from connector.delivery.handover import hand_over
from connector.delivery.ports import Delivered, GroupWork, Work
from connector.engine.assembly import Assembly, assembled
from connector.engine.dead_letters import letters_table, letters_topic
from connector.engine.epoch import run_epoch
from connector.engine.one_table import recreated_starts
from connector.operations.dead_letters import Retried, refuse_unfit, retry
from connector.operations.rewind import Rewind, planned, rewind
from connector.operations.status import Checked, CheckedSink, Status, next_offsets
from connector.protocol.recover import behind, resume
from connector.protocol.recreated import recreated, retirement
from connector.protocol.steps import Event, Observer
from connector.protocol.two_phase import Recovered, Row
from connector.source.consumer_group import ConsumerGroup, Unpublished
from connector.source.group_member import GroupMember
from connector.source.records import polled
from connector.source.topics import Until
from connector.telemetry.exporters import monitored
from sinks.contract import Committed, Epoch, Position
from sinks.delta.commit import PipelineCommits
from sinks.delta.restore import Target, before_event_time, before_offsets
from sinks.errors import ConfigurationError
from sinks.offsets import Offsets
from sinks.s3.hadoop import require_conditional_writes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakelock.pipeline")

_IN_GROUP = {
    "auto_commit": auto_commit.deliver,
    "manual_commit": manual_commit.deliver,
    "idempotent": idempotent.deliver,
}


class Pipeline:
    """One pipeline file, ready to run. Uses the Spark session that is active, or one of its own."""

    def __init__(self, config: PipelineConfig, *, debug: bool = False, spark: SparkSession | None = None) -> None:
        """``spark``: a session that is nobody else's meanwhile."""
        self.config = config
        self._debug = debug
        self._spark = spark

    @classmethod
    def from_file(cls, path: str | Path, overrides: Sequence[str] = (), *, debug: bool = False) -> Pipeline:
        """``overrides``: options that are changed, as ``sinks[0].path=s3a://lake/flights``.

        Raises ConfigurationError with all faults of the file.
        """
        return cls(load(path, overrides), debug=debug)

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
                return Target(to_version, own.metadata.position) if own else None
            assert to_event_time is not None
            if self.config.clock is not None:
                return before_event_time(commits.lineage(), to_event_time, commits.is_own)
            return before_offsets(commits.lineage(), it.source.at(to_event_time, held), commits.is_own)

        wanted = f"{to_version} of this pipeline" if to_version is not None else f"before {to_event_time}"
        with self._assembled() as it:
            held = it.source.look()
            plan = planned(
                it.table.commits,
                held,
                it.source,
                find=find,
                wanted=wanted,
                continue_on_data_loss=self.config.source.continue_on_data_loss,
            )
            if confirm(plan):
                require_conditional_writes(it.spark, it.table.table.location)
                work = it.work(_all(observers), topics=it.source)
                rewind(plan, it.table.table, work, restored=it.look_back)
            return plan

    def accept(self, *, observers: Sequence[Observer] = ()) -> Position:
        """Take a table that somebody else has replaced (TableReplaced) for what the pipeline has written: an epoch of
        no records, after which the next run goes on from the offsets that the pipeline had.

        What `lakelock verify` finds to be missing stays missing, and is named by it. Raises ConfigurationError where
        nothing was replaced.
        """
        self._needs_one_table("accept", "one of several sinks has to be where the others are")
        with self._assembled() as it:
            it.make_ready()
            position = it.table.derivation.sink.position()
            if position is None or not position.replaced:
                raise ConfigurationError("Nobody has replaced the table: there is nothing to accept.")
            log = it.table.derivation.log
            if log is not None:
                log.close(it.run)
                position = it.table.derivation.sink.position() or position
            if position.replaced:
                nothing = Epoch.of_no_records(position, pipeline=self.config.name, owner=it.run)
                work = it.work(_all(observers), topics=it.source)
                position = work.destination.run_epoch(replace(nothing, delivery=position.delivery), 0).position
            return position

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
        changed = {
            "sinks": (sink,), "source": source, "delivery": "transactional", "trigger": "available_now",
            # They are those of the pipeline, which may be running.
            "metrics": None,
        }  # fmt: skip
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
        with (
            monitored(self.config) as told,
            self._assembled(short=None if publish else False) as it,
        ):
            it.make_ready()
            it.look_back()
            topics = it.source if until is None else Until(it.source, until)
            work = it.work(_all([*observers, *told]), topics=topics)
            if not publish:
                work = replace(work, group=Unpublished())
            log.info("run %s of pipeline %s, %s", work.owner, self.config.name, self.config.delivery)
            if self.config.delivery != "transactional":
                return self._run_in_group(work, it, stop)
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
        with self._assembled() as it:
            it.make_ready()
            position = it.table.derivation.sink.position()
            folding = it.folding(_all(observers))
            return folding.now(position) if position is not None and folding is not None else None

    def retry_dead_letters(self, *, observers: Sequence[Observer] = ()) -> Retried:
        """Send the dead letters through the pipeline as it is now, each that is right now once.

        Raises ConfigurationError where the table can't tell which it holds; Fenced where a run commits meanwhile, which
        is fenced itself where it goes on after this.
        """
        refuse_unfit(self.config)
        with self._assembled() as it:
            it.make_ready()
            found = letters_table(self.config, it.spark)
            assert found is not None
            it.look_back()
            return retry(
                self.config,
                it.table,
                found,
                it.reading({it.table.label: it.table}),
                run=it.run,
                held=it.source.look(),
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
        with self._assembled() as it:
            it.make_ready()
            return it.coordinator(_all(observers)).recover()

    def _run_in_group(self, work: Work, it: Assembly, stop: threading.Event) -> Delivered:
        position = hand_over(work, self.config.delivery)
        member = GroupMember(
            self.config,
            owner=work.owner,
            source=it.source,
            group=it.group,
            position=position,
            stop=stop,
            observe=work.observe,
        )

        reading = it.reading({it.table.label: it.table})

        def write(batch: Epoch) -> int:
            records = member.records
            if not records:
                return 0
            committed = run_epoch(
                batch,
                replace(reading, read=lambda _: polled(it.spark, records)),
                write=it.table.derivation.plain.write,
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
        with self._assembled(short=True) as it:
            held = it.source.look()
            for output in it.outputs:
                require_conditional_writes(it.spark, output.location)
            if it.log is not None:
                require_conditional_writes(it.spark, it.log.location)
            topic = letters_topic(self.config)
            if topic is not None:
                topic.check()
            sinks = [
                CheckedSink(output.label, output.check(), output.derivation.columns.names) for output in it.outputs
            ]
            position, offsets, _ = self._stands(it)
            goes_on = self.config.source.takes_recreated
            if position and goes_on and (names := recreated(position, held)):
                starts = recreated_starts(self.config, position, held, names)
                position = retirement(self.config.name, it.run, position, held, names, starts).position()
                offsets = position.offsets
            resumption = resume(
                position and position.moved_to(offsets),
                held,
                it.source.starting(held),
                it.source.remaining(held),
                continue_on_data_loss=self.config.source.continue_on_data_loss,
            )
            return Checked(sinks, position, resumption.offsets, behind(resumption.offsets, held))

    def status(self) -> Status:
        with self._assembled(short=True) as it:
            position, offsets, in_doubt = self._stands(it)
            held = it.source.look()
            waiting = {
                at: max(next_, held.beginnings[at]) for at, next_ in next_offsets(position, offsets, held).items()
            }
            return Status(
                self.config.name,
                self.config.delivery,
                [output.label for output in it.outputs],
                position,
                offsets,
                held,
                it.source.next_times(Offsets(waiting), held.ends),
                self._unfolded(it, position),
                in_doubt,
            )

    def _unfolded(self, it: Assembly, position: Position | None) -> int | None:
        log = it.table.derivation.log if self.config.merged_on_read is not None else None
        if log is None or position is None or log.folded is None:
            return None
        return max(0, position.epoch - log.folded.epoch)

    def _stands(self, it: Assembly) -> tuple[Position | None, Offsets, Row | None]:
        """Position, next offsets, and what is in doubt. Settles nothing."""
        if it.log is not None:
            known = it.log.read()
            if known.decided is None:
                return None, Offsets(), known.in_doubt
            stands = replace(known.decided.epoch.position(), committed_at=it.log.since())
            return stands, stands.offsets, known.in_doubt
        table = it.table
        position = table.derivation.sink.position() if table.table.detail() is not None else None
        return position, _next_offsets(position, it.group), None

    def _assembled(self, *, short: bool | None = None) -> AbstractContextManager[Assembly]:
        return assembled(self.config, debug=self._debug, short=short, spark=self._spark)

    def _needs_one_table(self, what: str, why: str) -> None:
        if self.config.two_phase:
            raise ConfigurationError(
                f"`{what}` is for pipelines with one Delta table: {why}.",
                hint="Write a pipeline file of another name for the one table, and do it there.",
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
