"""The destination of a pipeline with one Delta table: rows and next offsets in one commit."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from connector.config import DeltaAggregateSink, PipelineConfig, Translated
from connector.delivery.handover import TRANSACTIONAL
from connector.delivery.ports import Destination
from connector.engine.dead_letters import letters_table
from connector.engine.epoch import Reading, write_epoch
from connector.engine.fold import Folding
from connector.engine.left_letters import LeftLetters
from connector.engine.letters_again import forget_deletes
from connector.engine.outputs import Table
from connector.engine.undo import undo, undo_on_read
from connector.protocol.recover import TopicsHeld
from connector.protocol.steps import Event, Observer, Step
from connector.source.topics import KafkaSource
from connector.source.translated_offsets import translated
from connector.spark.tuning import for_few, tuned
from sinks.contract import Committed, Epoch, Position
from sinks.delta.past_restores import former_ids
from sinks.delta.recreated import retire
from sinks.delta.tombstones import Tombstones
from sinks.errors import OffsetsLost, TopicRecreated
from sinks.offsets import Offsets
from sinks.plurals import plural
from sinks.recreated import retired_names, with_retired_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakelock.delta")


@dataclass(frozen=True)
class OneTable(Destination):
    """The destination of a run with one Delta table. ``run`` is the id of the run, which owns its epochs."""

    config: PipelineConfig
    run: str
    spark: SparkSession
    source: KafkaSource
    table: Table
    reading: Reading
    folding: Folding | None
    """None without ``merge: on_read``."""
    observe: Observer
    small: bool = False
    """Whether the table and its log are small."""
    left: LeftLetters = field(default_factory=lambda: LeftLetters(None, ""))
    _uncompared: list[tuple[Epoch, Committed, int]] = field(default_factory=list, init=False, repr=False)
    """The epoch that is committed while nobody has asked yet whether its topics are still those of its plan, if any."""

    @property
    def takes_recreated(self) -> bool:
        """Whether the pipeline file says to go on with a recreated topic."""
        return self.config.source.takes_recreated

    def position(self) -> Position | None:
        """Where the pipeline stands, from the table's own history. None: the table holds no epoch yet.

        If Kafka didn't answer after this run's last commit, ask it first: nothing is planned on an epoch that may have
        to be taken back. Raises OffsetsLost after that if a log was cut: a look from before the epoch doesn't show it.
        """
        try:
            self._compare()
        except TopicRecreated as error:
            # The next plan begins before the epoch, and a look at the topics then says what is to be said of them.
            log.warning("%r: the last epoch was taken back: %s", self.table.label, error.message)
        with for_few(self.spark, self.config.spark_options, few=self.small):
            return self.table.derivation.sink.position()

    def run_epoch(self, epoch: Epoch, behind: int) -> Committed:
        """Commit one epoch: rows and next offsets in one commit. See ``epoch.write_epoch`` for what a crash leaves.

        Take the commit back if a topic was recreated, or its log cut, while Spark read it. Spark reads within the
        write, so this is known only after the commit.

        ====================  ==========================================================================================
        crash                 what is left
        ====================  ==========================================================================================
        before the commit     The old position. Nothing of the epoch is in the table.
        before the question   The same as before the RESTORE. A run that Kafka doesn't answer asks again in `position`.
        before the RESTORE    The epoch, with what was read of the new topic. The next run stops with TopicRecreated or
                              OffsetsLost.
        after the RESTORE     The table as before the epoch. The next run reopens dead letters whose retry it has
                              undone.
        ====================  ==========================================================================================

        With ``merge: on_read`` an epoch that was appended to the change log is taken out there, and what was appended
        before it is folded: a RESTORE would give that up. Raises TopicRecreated or OffsetsLost, or SinkError where the
        epoch can't be taken back.
        """
        sink = self.table.derivation.sink
        appended = epoch.span if sink.appends else None
        with tuned(self.spark, self.config.spark_options, appended=appended):
            epoch, committed = write_epoch(epoch, self.reading, write=sink.write, observe=self.observe, behind=behind)
        self._uncompared.append((epoch, committed, behind))
        self._compare()
        return committed

    def _compare(self) -> None:
        """Ask Kafka whether the topics of the last epoch changed while it was read, unless it has answered already.

        Raises TopicRecreated or OffsetsLost after the epoch was taken back, and what `run_epoch` raises.
        """
        if not self._uncompared:
            return
        ((epoch, committed, behind),) = self._uncompared
        try:
            self.source.refuse_changed(epoch)
        except (TopicRecreated, OffsetsLost) as error:
            self._uncompared.clear()
            self._take_back(epoch, committed.position, error)
            raise
        self._uncompared.clear()
        self.left.close(committed.position)
        self.observe(Event(Step.COMMITTED, epoch, committed, behind))

    def _take_back(self, epoch: Epoch, committed: Position, why: TopicRecreated | OffsetsLost) -> None:
        """``committed``: the position of the table, or of its change log."""
        table = self.table.table
        if self.folding is not None:
            folded = self.folding.log.folded
            if folded is None or folded.epoch < epoch.number:
                undo_on_read(self.folding, table, epoch, why)
                return
            committed = folded  # this epoch was merged into the table, and has started the log
        undo(table, self.table.commits, committed, why)
        look_back(self.config, self.spark, self.run, self.table)

    def restored(self, position: Position) -> None:
        """Bring the table's dead letters and tombstones in line with it."""
        after_restore(self.config, self.spark, position, self.table)

    def tidied(self, position: Position | None) -> Position | None:
        """Remove the tombstones of records that are still to be read, and mark their dead letters. See
        ``sinks.delta.tombstones`` and ``LeftLetters``.

        An epoch of another run may be on its way, and needs its tombstones. So an epoch without records fences it
        first. If the other was sooner, this one fails, and nothing is deleted. Before the pipeline's first epoch there
        is no position that it could repeat: of two first runs at once, one may lose its tombstones.

        ====================  ==========================================================================================
        crash                 what is left
        ====================  ==========================================================================================
        before the epoch      Nothing has changed.
        before the DELETE     The same tombstones, some of them twice, and the same offsets. The next run does both
                              steps again.
        after the DELETE      Nothing is left to do.
        ====================  ==========================================================================================

        Raises Fenced if the other run was sooner.
        """
        tombstones = self.table.derivation.tombstones
        # In a consumer group's deliveries tombstones count before the position passes them.
        if position is not None and (position.replaced or position.delivery != TRANSACTIONAL):
            return position
        if position is not None:
            position = self.named(position)
        self.left.mark(position)
        if tombstones is None:
            return position
        with for_few(self.spark, self.config.spark_options, few=self.small):
            left = tombstones.left_over(position.offsets if position else Offsets(), self.config.source.topics)
        if left is None:
            return position
        if position is not None:
            empty = Epoch.of_no_records(position, pipeline=self.config.name, owner=self.run)
            position = self.run_epoch(empty, 0).position
        left.delete(position.epoch if position is not None else None)
        log.info("%r: forgot %s whose records are read again", self.table.label, plural(left.number, "delete"))
        return position

    def named(self, position: Position) -> Position:
        """Give tombstones and dead letters their topics' names again that were renamed for a retirement which isn't
        part of what led to ``position``, see ``sinks.delta.recreated``: else they wouldn't count.

        Another run may be about to commit that retirement. So an epoch without records fences it first, as in
        ``tidied``: if the other was sooner, nothing is renamed. Raises Fenced then.

        ====================  ==========================================================================================
        crash                 what is left
        ====================  ==========================================================================================
        before the epoch      Nothing has changed.
        before the last name  The same offsets, and some of the names. The next run, or retry, does all steps again.
        ====================  ==========================================================================================
        """
        if position.replaced or position.delivery != TRANSACTIONAL:
            return position
        names, passed = retired_names(position.topics), position.offsets
        tombstones, letters = self.table.derivation.tombstones, self.left.letters
        if letters is not None and not (letters.exists() and letters.not_retired(passed, names)):
            letters = None
        notes = tombstones.not_retired(passed, names) if tombstones is not None else None
        if notes is None and letters is None:
            return position
        self.left.finish(position)
        position = self.run_epoch(Epoch.of_no_records(position, pipeline=self.config.name, owner=self.run), 0).position
        if tombstones is not None and notes is not None:
            tombstones.name_back(notes, names, position.epoch)
        if letters is not None:
            letters.name_back(passed, names)
        log.info("%r: deletes and dead letters count again that were renamed for a recreated topic", self.table.label)
        return position

    def added(self, topics: Collection[str]) -> Offsets:
        """The next offsets after those in the groups of an aggregate. Empty for other tables."""
        aggregates = isinstance(self.config.sinks[0], DeltaAggregateSink)
        return self.table.table.coordinates(topics) if aggregates else Offsets()

    def fold(self, position: Position) -> None:
        """Fold the change log into the table, if there is one and a fold is due."""
        if self.folding is not None:
            self.folding.after(position)

    def finish(self) -> None:
        """Wait for a fold that goes on beside the epochs."""
        if self.folding is not None:
            self.folding.finish()

    def starts(self, position: Position, held: TopicsHeld, names: Mapping[str, str]) -> Offsets:
        """Where recreated topics begin if their offsets were translated (`lakelock translate`)."""
        return recreated_starts(self.config, position, held, names)

    def retire(self, epoch: Epoch, names: Mapping[str, str]) -> Committed:
        """Rename what the table, its tombstones and its dead letters hold of the old topics, and commit the epoch."""
        letters = letters_table(self.config, self.spark)
        tombstones = Tombstones(self.table.table, ()).table
        self.reading.forget()
        return retire(self.table.table, self.table.commits, epoch, names, tombstones=tombstones, letters=letters)


def look_back(config: PipelineConfig, spark: SparkSession, run: str, table: Table) -> None:
    """Bring dead letters and tombstones in line with a table that was restored, and open or end the table's change log.

    The change log ends if the table was merged on read and no longer is.
    """
    _in_line(config, spark, table)
    log = table.derivation.log
    if log is None:
        return
    if config.merged_on_read is None:
        LeftLetters.of(config, spark, run).finish(table.derivation.sink.position())  # this may commit an epoch
        log.close(run)
    else:
        log.make_ready(run)


def look_back_before_accept(config: PipelineConfig, spark: SparkSession, run: str, table: Table) -> None:
    """Bring dead letters and tombstones in line with a table that somebody has replaced, before an epoch of no records
    accepts it. No later run would see by the newest commit that the table was restored, or who has marked letters.

    Its change log is closed by `accept` itself.
    """
    _in_line(config, spark, table)
    LeftLetters.of(config, spark, run).finish(table.derivation.sink.position())


def _in_line(config: PipelineConfig, spark: SparkSession, table: Table) -> None:
    keeps_deletes = config.delivery == TRANSACTIONAL and table.derivation.tombstones is not None
    if config.dead_letters is not None or keeps_deletes:
        after_restore(config, spark, table.derivation.sink.position(), table)


def after_restore(config: PipelineConfig, spark: SparkSession, position: Position | None, table: Table) -> None:
    """Bring what is beside a table in line with it, after a RESTORE. Does nothing if ``position`` shows none.

    1. Forget the deletes of epochs that the RESTORE has undone, and bring back those that were forgotten after the
       epoch that the table went back to.
    2. Give the dead letters the table's id, if the RESTORE has brought it back: somebody had replaced the table since,
       and `lakelock accept` gave them the new one.
    3. Reopen those whose retry the RESTORE has undone, and forget the deletes that came of them. Close those whose
       records are read again: with a consumer group's delivery none, because the group's offsets stay.
    4. Close those that a run has marked and hasn't closed, see ``LeftLetters``.

    Each step may be repeated. As long as ``position`` shows the RESTORE, every run begins with them: so a crash before,
    between or after them leaves them to the next run.
    """
    if position is None or position.restored_to is None:
        return
    passed = with_retired_names(position.offsets, position.topics)  # what is of a retirement that was undone
    if table.derivation.tombstones is not None:
        table.derivation.tombstones.went_back(passed, position.restored_to, position.epoch + 1)
    # A table that joins others reads what these have passed: their letters go by the position in the coordinator log.
    letters = letters_table(config, spark) if not config.whole.two_phase else None
    if letters is not None:
        formerly = former_ids(table.table, table.commits, config.name, position)
        for former in sorted(formerly) if formerly and letters.exists() else ():
            letters.take_along(former)
        forget = partial(forget_deletes, [table])
        letters.take_back(
            passed if position.delivery == TRANSACTIONAL else None,
            position.restored_to,
            position.epoch,
            taken_in=table.commits.taken_in_since(position),
            forget=forget,
        )
        if position.delivery == TRANSACTIONAL:
            LeftLetters(letters, "").finish(position)  # a rewind commits the next epoch


def recreated_starts(config: PipelineConfig, position: Position, held: TopicsHeld, names: Mapping[str, str]) -> Offsets:
    """The offsets at which recreated topics begin, by the file of a translation.

    Empty: they begin at their beginning.

    ``names``: old topic -> the name that it retires to. Raises what the file raises.
    """
    on = config.source.on_recreated_topic
    if not isinstance(on, Translated):
        return Offsets()
    return translated(on.translated).starts(config.name, position, held, names)
