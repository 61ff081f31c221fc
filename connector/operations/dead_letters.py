"""Dead letters once more: those of one table are sent through the pipeline as it is now, each once.

They go as an ordinary epoch that reads nothing of Kafka: the position's number goes on, its offsets don't. Two tables
can't share a commit, so the steps are:

1. *Mark.* The open letters whose records the position has passed get this run's id. (A record that it hasn't passed is
   still to be read, and isn't tried here.) A crash here leaves marks that mean nothing: only their own run looks for
   them, the letters are open, and the next retry takes them over.
2. *Commit.* Read, decoded and reduced as every epoch; what is still bad loses its mark, with the new reason, before the
   sink commits the rest. A crash before the commit leaves open letters and no row: as if nothing had been tried. So
   does a run that takes the epoch's number meanwhile: this commit is fenced.
3. *Close.* The letters that still have the mark have gone through. A crash before it leaves rows, and open letters. The
   next retry sends them once more, and the table itself tells that they are there: an append leaves out the records
   of which it has rows, by their coordinates; an upsert ignores what isn't newer than its row or its delete, a history
   an event that it holds. They add nothing, and are closed.

That the table tells, and no note in a commit, holds as well when its log was cleaned, when it was restored (the rows
are gone, see ``DeadLetters.take_back``), and for records that were read again, and were right then, after a rewind. Of
two retries at once one is fenced; it may have taken the other's marks, whose letters then stay open until the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from connector.config import (
    DeltaAggregateSink,
    DeltaAppendSink,
    DeltaPlace,
    DeltaUpsertSink,
    KeyedSink,
    PipelineConfig,
)
from connector.engine.dead_letters import Letters
from connector.engine.epoch import Reading, run_epoch
from connector.engine.outputs import Table
from connector.protocol.recover import TopicsHeld, behind, refuse_replaced
from connector.protocol.steps import Event, Observer, Step
from sinks.contract import Epoch, Position
from sinks.delta.dead_letters import DeadLetters
from sinks.delta.table import COORDINATES, DeltaTable
from sinks.errors import ConfigurationError
from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RECORD = COORDINATES[:3]
_REPLAY = (
    "While Kafka still holds the records, `lakelock replay` builds the table anew: with the mended file, and another "
    "path in dead_letters, as the letters there are the old table's."
)


@dataclass(frozen=True)
class Retried:
    """In letters: a record has one, or several where a transform makes rows of it that are bad in other ways."""

    through: int = 0
    still_bad: int = 0
    too_old: int = 0
    """Left alone: deletes that came after them may have been forgotten (``tombstone_retention``)."""
    epoch: int | None = None
    """None: there was nothing to try, and no epoch was committed."""


@dataclass(frozen=True)
class _StillBad:
    """Where the letters of letters go."""

    letters: DeadLetters
    retry: str

    def add(self, letters: DataFrame, _: Epoch) -> None:
        self.letters.keep(letters, self.retry)


def refuse_unfit(config: PipelineConfig) -> None:
    """Raises ConfigurationError where records that come late wouldn't be counted right, once."""
    letters_place(config)
    sink = config.sinks[0]
    if len(config.sinks) > 1 or config.two_phase:
        why = (
            "several sinks, or one that is no table, move together by ranges of Kafka's offsets, and a letter has none"
        )
        fix = "While Kafka still holds the records, run the mended file, under another name, into new places."
    elif config.delivery != "transactional":
        why = f"with delivery: {config.delivery} the table keeps no position that could tell what it holds"
        fix = "Run the pipeline once with delivery: transactional, which takes the group's offsets over; then retry."
    elif isinstance(sink, DeltaAggregateSink):
        why = "a group remembers how far it has added up each partition, and takes a letter, which is older, for added"
        fix = _REPLAY
    elif isinstance(sink, DeltaUpsertSink) and sink.ignore_null_updates and sink.sequence_by is None:
        why = "ignore_null_updates without sequence_by doesn't keep which of a row's columns are newer than a letter"
        fix = _REPLAY
    else:
        return
    raise ConfigurationError(f"Dead letters of pipeline {config.name!r} can't be sent through again: {why}.", hint=fix)


def retry(
    config: PipelineConfig,
    output: Table,
    letters: DeadLetters,
    reading: Reading,
    *,
    run: str,
    held: TopicsHeld,
    observe: Observer,
) -> Retried:
    """``run``: the id of this run. Raises Fenced where another run of the pipeline commits at the same time."""
    sink = output.derivation.sink
    position = sink.position()
    if position is None or not letters.exists():
        return Retried()
    refuse_replaced(position)
    if position.delivery != "transactional":
        raise ConfigurationError(
            f"The table is written by delivery: {position.delivery}: its offsets are in a consumer group.",
            hint="Run the pipeline once with delivery: transactional, which takes them over; then retry.",
        )
    since = _deletes_known_since(config)
    too_old = letters.older(position.offsets, since) if since else 0
    marked = letters.begin(run, position.offsets, noted_since=since)
    if not marked:
        return Retried(too_old=too_old)
    epoch = _epoch(config, run, position, held)
    observe(Event(Step.PLANNED, epoch))
    records = letters.records(run)
    if isinstance(config.sinks[0], DeltaAppendSink):
        records = _not_in(output.table, position, records)
    again = Letters(_StillBad(letters, run), max_share=None, label=output.label)
    committed = run_epoch(
        epoch,
        replace(reading, read=lambda _: records, letters=again),
        write=sink.write,
        observe=observe,
        behind=behind(position.offsets, held),
    )
    through = letters.close(run, committed.position.epoch)
    return Retried(through, marked - through, too_old, committed.position.epoch)


def _epoch(config: PipelineConfig, run: str, position: Position, held: TopicsHeld) -> Epoch:
    offsets = position.offsets
    return replace(
        Epoch.of_no_records(position, pipeline=config.name, owner=run),
        # What is still to be read holds the watermark back as it did.
        backlog=frozenset(at for at, end in held.ends.items() if at in offsets and offsets[at] < end),
    )


def _deletes_known_since(config: PipelineConfig) -> datetime | None:
    """A delete that came after a letter is later noted than it. None: rows, or nobody, keep deletes for ever."""
    sink = config.sinks[0]
    if not isinstance(sink, KeyedSink) or (isinstance(sink, DeltaUpsertSink) and sink.deletes == "soft"):
        return None
    return datetime.now(timezone.utc) - sink.tombstone_retention


def _not_in(table: DeltaTable, position: Position, records: DataFrame) -> DataFrame:
    """The records of which the table has no row. At the position's version: what comes after it fences this epoch."""
    version = f" VERSION AS OF {position.version}" if position.version is not None else ""
    rows = table.spark.sql(f"SELECT {', '.join(_RECORD)} FROM {table.sql}{version}")
    tried = records.selectExpr("topic AS _topic", "partition AS _partition", "offset AS _offset")
    there = rows.join(tried, list(_RECORD), "left_semi").selectExpr(*(f"{name} AS {name[1:]}" for name in _RECORD))
    return records.join(there, [name[1:] for name in _RECORD], "left_anti")


@dataclass(frozen=True)
class LetterGroup:
    """Letters with one thing wrong with them."""

    reason: str
    detail: str
    sink: str | None
    """Which doesn't take them; None: no sink could."""
    count: int
    first_epoch: int
    last_epoch: int
    topic: str
    partition: int
    offset: int
    """Of the first."""
    last_noted_at: datetime


def letters_place(config: PipelineConfig) -> DeltaPlace:
    """The table with the letters. Raises ConfigurationError where there is none."""
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
            "print.headers=true shows each record with what is wrong with it. A pipeline file of another name, with "
            f"source: {{topics: [{place.topic}]}}, headers: true and value: {{format: bytes}}, puts them into a table.",
        )
    return place


def letter_groups(config: PipelineConfig, spark: SparkSession) -> list[LetterGroup]:
    """Of the open ones, the largest first. Raises ConfigurationError where the pipeline has no table of letters."""
    place = letters_place(config)
    table = DeltaTable(spark, path=place.path, name=place.table)
    if table.detail() is None:
        return []
    is_open = "AND _retried_epoch IS NULL " if "_retried_epoch" in spark.table(table.sql).columns else ""
    found = spark.sql(
        "SELECT reason, detail, sink, count(*) AS count, min(epoch) AS first_epoch, max(epoch) AS last_epoch, "
        "min_by(struct(_topic, _partition, _offset), struct(epoch, _topic, _partition, _offset)) AS first, "
        f"unix_micros(max(_noted_at)) AS last FROM {table.sql} WHERE pipeline = {literal(config.name)} "
        f"{is_open}GROUP BY reason, detail, sink ORDER BY count DESC, reason, detail, sink"
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
        for row in found
    ]
