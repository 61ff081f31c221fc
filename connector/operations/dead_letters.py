"""Dead letters: what kinds there are, and how they are sent through the pipeline again, each once.

``retry`` and ``retry_through_route`` have the steps, and what a crash leaves. The rule behind them: the table itself
tells whether it holds a letter's record. An append leaves out records of which it has rows, by their coordinates. An
upsert ignores what isn't newer than its row or its delete. A history ignores an event that it holds. Because the table
tells, and no note in a commit, the rule holds as well after the table's log was cleaned, after a RESTORE (the rows are
gone then, see ``DeadLetters.take_back``), and for records that were read again, and were good then, after a rewind.

A letter whose record the position hasn't passed isn't tried: the record is still to be read.

If somebody takes the table back between a retry's commit and its close, ``DeadLetters.take_back`` takes the marks, so
nothing is closed. Of two retries at the same time one is fenced. It may have taken the other's marks; those letters
stay open until the next retry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone

from connector.config import (
    DeltaAggregateSink,
    DeltaAppendSink,
    DeltaHistorySink,
    DeltaUpsertSink,
    KeyedSink,
    PipelineConfig,
)
from connector.config.unavailable import keeps_by
from connector.display import Line, Page, Shown
from connector.engine.assembly import Assembly
from connector.engine.dead_letters import letters_table
from connector.engine.epoch import Reading, run_epoch
from connector.engine.fold import Folding
from connector.engine.letters_again import (
    forget_deletes,
    forgetting_deletes,
    marked_letters,
    of_letters,
    open_undone,
    without_rows_there,
)
from connector.engine.outputs import Table
from connector.operations.letter_groups import refuse_without_letters
from connector.protocol.recover import TopicsHeld, behind, refuse_replaced
from connector.protocol.steps import Event, Observer, Step
from sinks.contract import Epoch, Position
from sinks.delta.dead_letters import DeadLetters
from sinks.delta.kept_deletes import deletes_since, remember_deletes
from sinks.errors import ConfigurationError
from sinks.plurals import plural

_REPLAY = (
    "While Kafka still holds the records, build the table anew with `lakelock replay`. Give it the corrected file, "
    "with another path in dead_letters, as the letters there are the old table's."
)


@dataclass(frozen=True, repr=False)
class Retried(Shown):
    """What a retry has done, in letters.

    A record has one letter, or several if a transform makes several bad rows of it.
    """

    through: int = 0
    still_bad: int = 0
    too_old: int = 0
    """Letters not tried: the table may have forgotten later deletes of their keys, because of ``tombstone_retention``
    or because a run without dead letters kept none."""
    of_others: int = 0
    """Letters not tried: another table of this pipeline's name has set them aside, such as the one that this was cloned
    from, and may lack their rows."""
    epoch: int | None = None
    """The number of the retry's epoch. None: there was nothing to try, and no epoch was committed."""

    def page(self) -> Page:
        """What became of the letters."""
        lines = [Line("", "no dead letters to send again.")]
        if self.epoch is not None:
            went = f"{plural(self.through, 'dead letter')} went through in epoch {self.epoch}"
            lines = [Line("", f"{went}, {plural(self.still_bad, 'is', 'are')} still bad.")]
        if self.too_old:
            lines.append(
                Line(
                    "",
                    f"{plural(self.too_old, 'was', 'were')} left alone, as older than tombstone_retention, or than the "
                    "last run that had no dead_letters and kept no deletes. So nobody can tell any more whether their "
                    "rows have been deleted since.",
                )
            )
        if self.of_others:
            lines.append(
                Line(
                    "",
                    f"{plural(self.of_others, 'was', 'were')} left alone, as set aside for another table with this "
                    "pipeline's name. Retry them with its file. If this table has taken its place, set _table to this "
                    "table's id (DESCRIBE DETAIL) in these letters, by an UPDATE.",
                )
            )
        return Page(lines)


def refuse_unfit(config: PipelineConfig) -> None:
    """Raises ConfigurationError for a pipeline whose table couldn't count a letter's record exactly once.

    A letter's record is older than the position, so the table itself has to tell whether it holds the record.
    """
    refuse_without_letters(config)
    anew = "While Kafka still holds the records, run the corrected file, under another name, into new places."
    why: str | None = None
    if config.route is None and config.two_phase:
        why = "several sinks, or one that is no table, move together by offset ranges, and a letter has none"
    elif config.route is not None and config.merges_on_read:
        why = "the change log of a table with merge: on_read doesn't tell which letters of a route it holds"
    if why is not None:
        raise _unfit(config, why, anew)
    if config.delivery != "transactional":
        why = f"with delivery: {config.delivery} the table keeps no position that could tell what it holds"
        fix = "Run the pipeline once with delivery: transactional, which takes the group's offsets over; then retry."
        raise _unfit(config, why, fix)
    sinks = config.route.sinks.values() if config.route is not None else config.sinks
    keeps = keeps_by(config)
    for sink in sinks:
        if isinstance(sink, DeltaAggregateSink):
            why = "a group stores the highest offset that it has added per partition, and so takes a letter for added"
        elif isinstance(sink, DeltaUpsertSink) and sink.sequence_by is None and (sink.ignore_null_updates or keeps):
            option = keeps or "ignore_null_updates"
            why = f"{option} without sequence_by doesn't record which columns of a row are newer than a letter"
        if why is not None:
            raise _unfit(config, why, _REPLAY if config.route is None else anew)


def _unfit(config: PipelineConfig, why: str, fix: str) -> ConfigurationError:
    return ConfigurationError(f"Dead letters of pipeline {config.name!r} can't be sent through again: {why}.", hint=fix)


def retried(config: PipelineConfig, assembly: Assembly, observe: Observer) -> Retried:
    """See ``Pipeline.retry_dead_letters``. ``config``: one that `refuse_unfit` has let pass; ``assembly``: ready."""
    letters = letters_table(config, assembly.spark)
    assert letters is not None
    if assembly.routes is not None:
        return retry_through_route(config, assembly, letters, observe)
    table, held, one_table = assembly.table, assembly.source.look(), assembly.one_table(observe)
    if (stands := one_table.position()) is not None:
        one_table.named(stands)
    open_undone(letters, table, config.name)
    reading, folding = assembly.reading({table.label: table}), assembly.folding(observe)
    return retry(config, table, letters, reading, run=assembly.run, held=held, observe=observe, folding=folding)


def retry(
    config: PipelineConfig,
    output: Table,
    letters: DeadLetters,
    reading: Reading,
    *,
    run: str,
    held: TopicsHeld,
    observe: Observer,
    folding: Folding | None = None,
) -> Retried:
    """Send the open dead letters of one table through the pipeline as it is now, each once.

    The letters go as an epoch that reads nothing of Kafka. The table and the letters can't share a commit, so:

    1. *Mark.* The open letters whose records the position has passed get this run's id.
    2. *Forget* the deletes that an earlier retry has kept of their records: they may be none by the file of now.
    3. *Commit*, as in every epoch. A letter that is still bad loses its mark before, and gets the new reason.
    4. *Fold*, with ``merge: on_read``. If the change log ceases to count, its epochs are read again from Kafka. An
       epoch of letters can't be, so its letters stay open until the table itself has it.
    5. *Close.* The letters that still have the mark have gone through, and are closed with the epoch's number.

    ====================  ==============================================================================================
    crash                 what is left
    ====================  ==============================================================================================
    before the marks      Nothing has changed.
    before the commit     Open letters, with a mark that only this run looks for, and no row. Maybe deletes that count
                          too early, or not yet again. The next retry takes the letters over, and notes their deletes
                          anew. A commit that is fenced leaves open letters only.
    before the close      Rows, and open letters. The next retry sends the letters once more. The table itself tells
                          that it holds them, so they add nothing, and are closed.
    ====================  ==============================================================================================

    ``run``: this run's id; ``held``: what Kafka holds; ``folding``: of a table that is merged on read. Raises what it
    raises, Fenced if another run commits at the same time, TableReplaced, and ConfigurationError if the table's offsets
    are in a consumer group.
    """
    sink = output.derivation.sink
    position = sink.position()
    if position is None or not letters.exists():
        return Retried()
    refuse_replaced(position)
    _refuse_offsets_elsewhere(position)
    since = _deletes_known_since(config, output)
    too_old, of_others = letters.older(position.offsets, since) if since else 0, letters.of_others(position.offsets)
    marked = letters.begin(run, position.offsets, noted_since=since)
    if not marked:
        return Retried(too_old=too_old, of_others=of_others)
    epoch = _epoch(config, run, position, held)
    observe(Event(Step.PLANNED, epoch))
    with forgetting_deletes([output], letters.marked_sql(run), epoch.number):
        records = letters.records(run)
        if isinstance(config.sinks[0], DeltaAppendSink):
            records = without_rows_there(output.table, position.version, records, ("topic", "partition", "offset"))
        tried = marked_letters(reading, letters, run, records, output.label)
        committed = run_epoch(epoch, tried, write=sink.write, observe=observe, behind=behind(position.offsets, held))
    if folding is not None:
        folding.into_table(committed.position)
    through = letters.close(run, committed.position.epoch)
    return Retried(through, marked - through, too_old, of_others, committed.position.epoch)


def retry_through_route(config: PipelineConfig, assembly: Assembly, letters: DeadLetters, observe: Observer) -> Retried:
    """Send the open dead letters of a route through the pipeline as it is now, each once, to the tables that they name.

    The steps are those of ``retry``, and the commit is an epoch of the coordinator log, with no records of Kafka:

    1. *Settle* an epoch in doubt, as every run does. It may be an earlier retry's.
    2. *Mark* and *forget*, as above.
    3. *Prepare.* Read the marked letters, in the version of their table that the epoch names. Those that are still bad
       lose their mark. Count the rows of each table.
    4. *Decide*, in the log. Then each table that gets a row commits the epoch.
    5. *Close* the letters that still have the mark. Only then the log says that the epoch is done.

    ====================  ==============================================================================================
    crash                 what is left
    ====================  ==============================================================================================
    before the decision   As with one table: open letters, and no row.
    between two commits   The epoch is in doubt, with open letters, and rows in some tables. The next run, retry or
                          ``recover`` reads the same letters, by the same pipeline file, in the version that the epoch
                          names, and brings them to the tables that lack the epoch. Then it closes the letters.
    before or after the   The epoch is in doubt, and all tables hold it. The next run closes the letters, which changes
    close                 nothing the second time, and says that the epoch is done.
    ====================  ==============================================================================================

    If another retry has taken a mark meanwhile, its letter stays open, although the table has the row. The next retry
    sends it again, and the table tells that it holds it, as above.
    """
    coordinator, log = assembly.coordinator(observe), assembly.log
    assert assembly.routes is not None
    assert log is not None
    position, held = coordinator.position(), assembly.source.look()
    if position is None or not letters.exists():
        return Retried()
    decided = log.read().decided
    tables = assembly.routes.tables(decided.prepared if decided is not None else ())
    kept = [_deletes_known_since(config.routed(name), output) for name, output in tables.items()]
    since = max((each for each in kept if each is not None), default=None)
    too_old, of_others = letters.older(position.offsets, since) if since else 0, letters.of_others(position.offsets)
    marked = letters.begin(assembly.run, position.offsets, noted_since=since)
    if not marked:
        return Retried(too_old=too_old, of_others=of_others)
    epoch = of_letters(_epoch(config, assembly.run, position, held), letters.version)
    forget_deletes(tables.values(), letters.marked_sql(assembly.run), epoch.number)
    observe(Event(Step.PLANNED, epoch))
    committed = coordinator.run_epoch(epoch, behind(position.offsets, held))
    coordinator.settle()
    through = letters.closed(assembly.run)
    return Retried(through, marked - through, too_old, of_others, committed.position.epoch)


def _refuse_offsets_elsewhere(position: Position) -> None:
    if position.delivery != "transactional":
        raise ConfigurationError(
            f"The table is written by delivery: {position.delivery}. Its offsets are in a consumer group.",
            hint="Run the pipeline once with delivery: transactional, which takes them over; then retry.",
        )


def _epoch(config: PipelineConfig, run: str, position: Position, held: TopicsHeld) -> Epoch:
    # Partitions with records to be read hold the watermark back as before.
    nothing = Epoch.of_no_records(position, pipeline=config.name, owner=run)
    return replace(nothing, backlog=held.backlog(position.offsets))


def _deletes_known_since(config: PipelineConfig, output: Table) -> datetime | None:
    """The time since which the table remembers every delete.

    None: it remembers deletes for ever, or the sink has no deletes.

    A delete that came after a letter is noted later than the letter. If the last run kept no deletes, the table keeps
    them from now on, as before a run with dead letters.
    """
    sink, table = config.sinks[0], output.table
    if not isinstance(sink, KeyedSink) or (isinstance(sink, DeltaHistorySink) and sink.bitemporal):
        return None
    since: list[datetime | None] = [datetime.now(timezone.utc) - sink.tombstone_retention]
    if isinstance(sink, DeltaUpsertSink):
        if sink.deletes == "soft":
            since.clear()
        if sink.sequence_by is None:  # only then there are runs that keep no deletes
            remember_deletes(table, kept=True)
        # A table that was by offset once says since when it isn't.
        if sink.sequence_by is None or sink.deletes == "hard":
            since.append(deletes_since(table))
    if output.derivation.tombstones is not None:
        since.append(output.derivation.tombstones.expired_before)
    return max((each for each in since if each is not None), default=None)
