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

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from connector.config import (
    DeltaAggregateSink,
    DeltaAppendSink,
    DeltaHistorySink,
    DeltaUpsertSink,
    KeyedSink,
    PipelineConfig,
)
from connector.config.unavailable import keeps_by
from connector.display import Grid, Line, Page, Shown
from connector.engine.assembly import Assembly
from connector.engine.dead_letters import letters_table
from connector.engine.epoch import Reading, run_epoch
from connector.engine.fold import Folding
from connector.engine.letters_again import (
    forget_deletes,
    forgetting_deletes,
    marked_letters,
    of_letters,
    without_rows_there,
)
from connector.engine.outputs import Table
from connector.protocol.recover import TopicsHeld, behind, refuse_replaced
from connector.protocol.steps import Event, Observer, Step
from sinks.contract import Epoch, Position
from sinks.delta.dead_letters import DeadLetters
from sinks.delta.table import DeltaTable
from sinks.delta.tombstones import deletes_since
from sinks.errors import ConfigurationError
from sinks.plurals import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    table, held = assembly.table, assembly.source.look()
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

    The letters go as an ordinary epoch that reads nothing of Kafka: the position's epoch number goes on, its offsets
    don't. The table and the letters are two tables and can't share a commit, so there are these steps:

    1. *Mark.* The open letters whose records the position has passed get this run's id.
    2. *Forget* the deletes that an earlier retry has kept of their records, see ``sinks.delta.tombstones``. By the file
       of now they may be no deletes any more.
    3. *Commit.* Read, decode and reduce as in every epoch. A letter that is still bad loses its mark and gets the new
       reason, before the sink commits the rest.
    4. *Fold*, with ``merge: on_read``. If the change log ceases to count, its epochs are read again from Kafka. An
       epoch of letters can't be, so its letters stay open until the table itself has it.
    5. *Close.* The letters that still have the mark have gone through, and are closed with the epoch's number.

    ====================  ==============================================================================================
    crash                 what is left
    ====================  ==============================================================================================
    before the marks      Nothing has changed.
    before the commit     Open letters, with a mark that only this run looks for, and no row; maybe deletes that are
                          kept too early, or without a delete that an undone rewind had brought back. The next retry
                          takes the letters over, and notes their deletes anew. A commit that is fenced leaves open
                          letters only.
    before the close      Rows, and open letters. The next retry sends the letters once more, and the table itself tells
                          that it holds them. They add nothing, and are closed.
    after the close       Nothing is left to do.
    ====================  ==============================================================================================

    ``run`` is the id of this run. ``held`` is what Kafka holds. ``folding`` is for a table that is merged on read.
    Raises what a fold raises, Fenced if another run of the pipeline commits at
    the same time, TableReplaced, and ConfigurationError if the table's offsets are in a consumer group.
    """
    sink = output.derivation.sink
    position = sink.position()
    if position is None or not letters.exists():
        return Retried()
    refuse_replaced(position)
    _refuse_offsets_elsewhere(position)
    since = _deletes_known_since(config, output.table)
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
    kept = (_deletes_known_since(config.routed(name), output.table) for name, output in tables.items())
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
    offsets = position.offsets
    return replace(
        Epoch.of_no_records(position, pipeline=config.name, owner=run),
        # Partitions with records to be read hold the watermark back as before.
        backlog=frozenset(at for at, end in held.ends.items() if at in offsets and offsets[at] < end),
    )


def _deletes_known_since(config: PipelineConfig, table: DeltaTable) -> datetime | None:
    """The time since which the table remembers every delete.

    None: it remembers deletes for ever, or the sink has no deletes.

    A delete that came after a letter is noted later than the letter.
    """
    sink = config.sinks[0]
    if not isinstance(sink, KeyedSink) or (isinstance(sink, DeltaHistorySink) and sink.bitemporal):
        return None
    since = [datetime.now(timezone.utc) - sink.tombstone_retention]
    if isinstance(sink, DeltaUpsertSink):
        if sink.deletes == "soft":
            since.clear()
        # Only an upsert by offset has runs that keep no deletes. One that was by offset once says since when it isn't.
        told = sink.sequence_by is None or sink.deletes == "hard"
        if told and (kept := deletes_since(table)) is not None:
            since.append(kept)
    return max(since, default=None)


@dataclass(frozen=True)
class LetterGroup:
    """Open dead letters that have the same thing wrong with them."""

    reason: str
    detail: str
    sink: str | None
    """The sink that refused the records. None: the records couldn't be decoded for any sink."""
    count: int
    first_epoch: int
    last_epoch: int
    topic: str
    partition: int
    offset: int
    """The coordinates of the group's first record: this, and ``topic`` and ``partition``."""
    last_noted_at: datetime


class LetterGroups(Shown, list[LetterGroup]):
    """The open dead letters of a pipeline in groups, the largest first."""

    def __init__(self, pipeline: str, groups: Iterable[LetterGroup]) -> None:
        super().__init__(groups)
        self.pipeline = pipeline

    @property
    def total(self) -> int:
        """The number of letters in all groups."""
        return sum(group.count for group in self)

    def page(self) -> Page:
        """A row per group."""
        if not self:
            return Page([Line("", f"{self.pipeline}: no dead letters.")])
        headings = ("count", "reason", "what is wrong", "sink", "epochs", "for example", "last")
        rows = [
            (
                f"{group.count:,}",
                group.reason,
                group.detail,
                group.sink or "all",
                f"{group.first_epoch}" + (f"-{group.last_epoch}" if group.last_epoch != group.first_epoch else ""),
                f"{group.topic}-{group.partition}, offset {group.offset}",
                f"{group.last_noted_at:%Y-%m-%d %H:%M:%S}",
            )
            for group in self
        ]
        return Page([Grid(headings, rows, right=frozenset({"count"}))])


def refuse_without_letters(config: PipelineConfig) -> None:
    """Raises ConfigurationError if the pipeline has no table of dead letters."""
    place = config.dead_letters
    if place is None:
        raise ConfigurationError(
            f"Pipeline {config.name!r} sets nothing aside.",
            hint="Write on_bad_record: dead_letter and dead_letters: {path: ...} to have bad records kept.",
        )
    if place.topic is not None:
        raise ConfigurationError(
            f"The dead letters of pipeline {config.name!r} are in the Kafka topic {place.topic!r}, not in a table: "
            "they can be neither counted nor sent through again here.",
            hint=f"Read the topic: kafka-console-consumer --topic {place.topic} --from-beginning --property "
            "print.headers=true shows each record with what is wrong with it. To put them into a table, run a pipeline "
            f"of another name with source: {{topics: [{place.topic}]}}, headers: true and value: {{format: bytes}}.",
        )


def letter_groups(config: PipelineConfig, spark: SparkSession) -> LetterGroups:
    """The open dead letters. Raises ConfigurationError if the pipeline has no table of letters."""
    refuse_without_letters(config)
    letters = letters_table(config, spark)
    assert letters is not None
    return LetterGroups(config.name, _groups(letters, spark) if letters.exists() else [])


def _groups(letters: DeadLetters, spark: SparkSession) -> list[LetterGroup]:
    rows = spark.sql(
        "SELECT reason, detail, sink, count(*) AS count, min(epoch) AS first_epoch, max(epoch) AS last_epoch, "
        "min_by(struct(_topic, _partition, _offset), struct(epoch, _topic, _partition, _offset)) AS first, "
        f"unix_micros(max(_noted_at)) AS last FROM {letters.table.sql} WHERE {letters.own_sql(only_open=True)} "
        "GROUP BY reason, detail, sink ORDER BY count DESC, reason, detail, sink"
    ).collect()
    return [
        LetterGroup(
            row["reason"],
            row["detail"],
            row["sink"],
            row["count"],
            row["first_epoch"],
            row["last_epoch"],
            row["first"]["_topic"],
            row["first"]["_partition"],
            row["first"]["_offset"],
            datetime.fromtimestamp(row["last"] / 1e6, timezone.utc),
        )
        for row in rows
    ]
