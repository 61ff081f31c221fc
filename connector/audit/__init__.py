"""The auditor: recomputes from Kafka what a table should hold, and compares. Shares no code with the pipeline.

1. Kafka first: where the consumer group stands. What it has committed was written before, so it must be in the table
   version that is pinned next.
2. The table's history says what the version claims to hold: ``[since, offsets)`` of every partition.
3. What Kafka still holds of that; the rest is named as unchecked, never guessed.
4. One Spark query compares records and rows on the executors. Only counts per partition, and the first coordinates of
   each kind of fault, come back.

``claim`` decides what is claimed (pure), ``topics`` asks Kafka, ``table`` reads the table, ``compare`` is the query:
``records`` of Kafka, read as the file's ``formats`` say (``decode``), and ``rows`` of the table meet in the module of
their kind, ``appended``, ``upserted``, ``history`` or ``aggregate`` (``values``: what of a row is compared;
``counted``: how it is counted); ``letters`` keeps apart what belongs among the dead letters, ``refused`` what makes no
row by the file. ``verdict`` is what was found, and how it is shown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from connector.audit.claim import (
    At,
    Bounds,
    Claim,
    Held,
    Logged,
    Range,
    bounds,
    claimed,
    not_from_earliest,
    shows_all,
    unchecked,
)
from connector.audit.compare import Compared, compare
from connector.audit.consumer_group import committed, refuse_another_group
from connector.audit.foreign import hidden
from connector.audit.forgotten import rows_missing
from connector.audit.formats import Forms, forms, learns_columns
from connector.audit.gone import not_compared, unless_others
from connector.audit.letters import late_letters, no_letters, topic_of_letters
from connector.audit.letters_table import LettersTable, letters_table
from connector.audit.no_record import no_record_yet
from connector.audit.notes import notes_on, unnamed
from connector.audit.on_read import on_read
from connector.audit.records import kafka_records
from connector.audit.remembered import ZONE, other_options, property_of, remembered
from connector.audit.routes import audit_routes
from connector.audit.rows import Earlier
from connector.audit.table import AuditedTable, Filled, file_is_gone
from connector.audit.topic_ends import refuse_recreated, with_ends
from connector.audit.topics import Topics
from connector.audit.verdict import Audit, PartitionAudit, Place, partitions, show
from connector.config import DeltaAggregateSink, DeltaAppendSink, DeltaUpsertSink, KeyedSink, PipelineConfig
from connector.config.unavailable import keeps_by
from connector.spark.in_use import shared_session
from sinks.errors import ConfigurationError, OffsetsLost
from sinks.kafka import reader_refused
from sinks.plurals import plural
from sinks.spark.sql import zone_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Audit", "Claim", "PartitionAudit", "Place", "Range", "audit", "audit_routes", "show"]

log = logging.getLogger("lakelock.audit")

_NO_CLAIM = "No group was compared: no commit of the pipeline tells which records the groups are made of."
_ENDS = (
    "No commit of the pipeline tells how far the table claims to go. Records after those of its last rows may have "
    "deleted rows or ended versions, so what is missing isn't known to be a fault."
)
_CLOSED = (
    "The table's history doesn't tell its epoch, so nobody knows which dead letters had been sent again by then. What "
    "a dead letter may explain that is closed by now is no fault."
)


def audit(
    config: PipelineConfig,
    version: int | None = None,
    *,
    upto: Logged | None = None,
    say: Callable[[str], None] = log.info,
    debug: bool = False,
    given: SparkSession | None = None,
) -> Audit:
    """Compare the table of a pipeline, at ``version`` or the newest, with the records in Kafka. Changes nothing.

    Uses the Spark session that is ``given``, or the active one, or one of its own. ``upto``: what the coordinator log
    says of the table. ``say`` is told what is being done. Faults are in the result, not raised. Raises LakelockError
    where nothing could be compared: TopicMissing, NoRecordYet, TopicRecreated, BrokerUnreachable, OffsetsLost
    (retention overtook the audit), NotADeltaTable, SchemaMismatch, ConfigurationError (no table or no such version),
    UnsupportedFormat.
    """
    topics = Topics(config.source)
    try:
        # A missing broker or topic shows here, long before Spark has started.
        before_spark = topics.held(config.source.topics)
        by_group = committed(topics, config)
        with shared_session(
            config.spark_options, name=f"verify {config.name}", s3=config.on_s3, debug=debug, given=given
        ) as spark:
            with no_record_yet(config, before_spark):
                table = AuditedTable(spark, config.sinks[0], config.sinks[0].in_file)
            as_then = _as_then(config, spark, table)
            known, untold = _forms(_with_schema(config, table), table, version)
            pinned = _pin(config, table, topics, version, by_group, upto)
            foreign = table.foreign(pinned.version, quoted=not config.sensitive)
            say(_plan(table.label, pinned))
            try:
                compared = _compared(config, spark, table, pinned, known)
            except Exception as error:
                if pinned.earlier.rows is None or not file_is_gone(error):
                    raise
                pinned = replace(pinned, earlier=replace(pinned.earlier, rows=None, known=False))
                compared = _compared(config, spark, table, pinned, known)
    finally:
        topics.close()
    # What the table held before the first epoch is what the commits before that have left.
    later = [each for each in foreign if pinned.began is not None and each.version > pinned.began]
    counts, gone = unless_others(compared.counts, later)
    # Where nobody knows what it held then, nobody knows either when the pipeline began.
    since_then = later if pinned.earlier.known else foreign
    behind = [] if shows_all(pinned.cut) else hidden(since_then, compared.counts)
    parts = partitions(counts, pinned.claim)
    held = sum(part.counts["held_before"] for part in parts)
    before = not_compared(pinned.earlier, held, alone=not pinned.others)
    missing = rows_missing(config, pinned.cut, parts) if pinned.since_known else []
    unknown = (*pinned.claim.unknown, *before, *behind, *missing, *compared.unknown, *untold)
    claim = replace(pinned.claim, unknown=unknown)
    told = [each.told for each in foreign]
    notes = [*pinned.notes, *as_then, *compared.notes, *told, *gone, *_of_others(pinned.others)]
    notes += notes_on(config, claim, pinned.cut, pinned.held, parts)
    grouped = isinstance(config.sinks[0], DeltaAggregateSink)
    return Audit(config.name, table.label, pinned.version, claim, parts, unchecked(pinned.cut), notes, grouped)


def _forms(config: PipelineConfig, table: AuditedTable, version: int | None) -> tuple[Forms, list[str]]:
    """How the records are read, and why the table can't be called exact where nobody knows that."""
    number, filled = table.pin(version), table.filled()
    columns = table.rows(number).schema
    if filled is None and learns_columns(config):
        return forms(config), [
            "The table may have columns that Delta generates, and its log doesn't say which. So only the columns that "
            "the file declares were compared."
        ]
    filled = filled or Filled()
    untold = table.not_as_generated(number, filled)
    from_records = [each for each in columns if each.name not in filled.alone]
    known = forms(config, type(columns)(from_records))
    if not filled.numbered or not learns_columns(config):
        return known, untold
    # What the file declares is in every row that a run writes, null or not.
    declared = {name.lower() for name in forms(config).value.columns.names}
    return replace(known, numbered=frozenset(name for name in filled.numbered if name.lower() not in declared)), untold


def _as_then(config: PipelineConfig, spark: SparkSession, table: AuditedTable) -> list[str]:
    """Set the session to the time zone in which the table's rows were made, and say what else was another then.

    The session is one of this audit: nobody else's statements see it."""
    kept = remembered(table.property(property_of(config.name)))
    now, then = str(spark.conf.get(ZONE)), kept.get(ZONE)
    if not isinstance(then, str) or then == now:
        return other_options(kept, config)
    spark.conf.set(ZONE, then)
    if zone_name(then) == zone_name(now):
        return other_options(kept, config)
    zone = f"Times without a time zone were read in {then}, as when the table's rows were made, not in {now}."
    return [zone, *other_options(kept, config)]


def _with_schema(config: PipelineConfig, table: AuditedTable) -> PipelineConfig:
    """The pipeline with the schema that was inferred for its table, if the file names none."""
    format = config.inferred
    if format is None:
        return config
    schema = format.kept_schema(table.property(format.PROPERTY))
    if schema is None:
        raise ConfigurationError(
            f"value.schema: inferred: {table.label!r} doesn't say which schema was inferred for it.",
            hint="Write the columns of the records into value.schema.",
        )
    return config.read_by(schema)


@dataclass(frozen=True)
class _Pinned:
    """One version of the table, what it claims to hold, and what of that Kafka still holds."""

    version: int
    epoch: int | None
    """The last one that the claim reaches. None: nobody knows."""
    claim: Claim
    held: Held
    cut: list[Bounds]
    """The claim, cut to what Kafka can show."""
    others: Mapping[str, str]
    """Topics whose rows another pipeline has written, with that pipeline's name. They are not audited."""
    notes: list[str]
    """What had to be assumed about the claim."""
    earlier: Earlier
    """What the table held before the pipeline's first epoch."""
    began: int | None
    """The version of that epoch, or of the oldest one in the history. None: the history has none."""
    since_known: bool
    """Whether a commit of the pipeline tells where the claim begins."""


def _pin(
    config: PipelineConfig,
    table: AuditedTable,
    topics: Topics,
    version: int | None,
    by_group: Mapping[At, int],
    upto: Logged | None,
) -> _Pinned:
    """Pin the ``version`` to audit (None: the newest), find its claim in the commits, and ask Kafka what it holds.

    ``by_group``: the consumer group's offsets, read before. Raises what ``audit`` does.
    """
    number = table.pin(version)
    first, newest = table.metadata(config.name, number)
    refuse_another_group(newest, config, older_version=number < table.newest)
    stored = newest.ids if newest else {}
    held = topics.held(config.source.topics, stored)
    refuse_recreated(newest, held)
    claim, notes = claimed(
        newest,
        first,
        delivery=config.delivery,
        partitions=held.ends,
        committed={at: offset for at, offset in by_group.items() if at.topic in held.ids},
        rows=partial(table.extents, number, sorted(held.ids)),
        older_version=number < table.newest,
        from_earliest=config.source.start == "earliest",
    )
    by_log = on_read(config, table, newest) if number == table.newest else None
    now = number == table.newest and by_log is None
    claim, notes = with_ends(claim, notes, newest, held, upto, config.source.topics, now=now)
    notes += not_from_earliest(newest, claim, held.beginnings) if config.source.start == "earliest" else []
    notes += unnamed(newest, claim, held, upto.offsets if upto is not None else {})
    if by_log is not None:
        notes += by_log.notes
        if upto is not None and newest is not None:
            claim = replace(claim, unknown=(*claim.unknown, *by_log.lacks(upto.holds)))
        # As of its last fold it claims what that says.
        upto = upto if upto is not None and by_log.folded >= upto.holds > 0 else None
    epoch = newest.epoch if newest else None
    if upto is not None:
        # Also where the last epochs had no rows for it, and so made no commit.
        epoch = max(epoch or 0, upto.epoch)
        offsets = {at: max(end, upto.offsets.get(at, 0)) for at, end in claim.offsets.items()}
        # Where it began only the table's own commits tell, unless it is at the beginning.
        by_rows = claim.by_rows and config.source.start != "earliest"
        claim = replace(claim, offsets=offsets, by_rows=by_rows, missed=tuple(sorted({*claim.missed, *upto.missed})))
    if claim.by_rows and isinstance(config.sinks[0], KeyedSink):
        claim = replace(claim, unknown=(*claim.unknown, _ENDS))
    written = table.others(config.name)
    if newest is None:
        claim = _of_another(claim, config.name, {written[topic] for topic in held.ids if topic in written})
    earlier = Earlier()
    if not isinstance(config.sinks[0], DeltaAggregateSink):
        earlier = table.earlier(config.name, first, number, any_first=config.coordinator is not None)
    others = {topic: other for topic, other in written.items() if topic not in {*held.ids, *stored}}
    return _Pinned(
        number, epoch, claim, held, bounds(claim, held), others, notes, earlier,
        first.version if first else None, bool(newest and newest.since),
    )  # fmt: skip


def _compared(
    config: PipelineConfig, spark: SparkSession, table: AuditedTable, pinned: _Pinned, known: Forms
) -> Compared:
    """Run the one query.

    Raises OffsetsLost if retention removes records meanwhile, or what Kafka refuses.
    """
    claim, held = pinned.claim, pinned.held
    if claim.by_rows and isinstance(config.sinks[0], DeltaAggregateSink):
        return Compared([], [], [_NO_CLAIM])
    letters = letters_table(config, spark)
    sets_aside = config.on_bad_record == "dead_letter"
    # Deletes that aren't committed yet show in Kafka only. An append whose rows end its claim has none behind it.
    appends = isinstance(config.sinks[0], DeltaAppendSink)
    behind = held if claim.commits_later and not (appends and claim.by_rows) else None
    open_letters = None
    if sets_aside and topic_of_letters(config) is None:
        open_letters = letters.open_letters(pinned.epoch) if letters else no_letters(spark)
    with _reading_kafka():
        compared = compare(
            config,
            records=kafka_records(
                spark,
                config.source.kafka_options,
                pinned.cut,
                behind,
                headers=config.reads_headers,
            ),
            rows=table.rows(pinned.version),
            forms=known,
            cut=pinned.cut,
            committed_later=claim.commits_later,
            leave_out=sorted(pinned.others),
            letters=open_letters,
            late=_late(config, letters, pinned.epoch),
            earlier=pinned.earlier,
            behind=behind,
            kept=remembered(table.property(property_of(config.name))),
        )
    closed = pinned.epoch is None and sets_aside and letters is not None and letters.any_closed(config.name)
    counts = _unless_set_aside(config, compared.counts, closed=closed)
    return replace(compared, counts=counts, notes=[*compared.notes, *([_CLOSED] if closed else [])])


@contextmanager
def _reading_kafka() -> Iterator[None]:
    """Turn what Spark says of Kafka into OffsetsLost, or into the error that names what Kafka refused."""
    try:
        yield
    except Exception as error:
        if "KAFKA_DATA_LOSS" in str(error) or "OffsetOutOfRangeException" in str(error):
            raise OffsetsLost(
                "Kafka's retention removed records while they were being compared.",
                hint="Verify again: what is gone by then is named as unchecked.",
            ) from None
        refusal = reader_refused(error)
        if refusal is not None:
            raise refusal from None
        raise


def _of_another(claim: Claim, pipeline: str, others: set[str]) -> Claim:
    """The claim, unknown if the table has commits of ``others``: other pipelines that wrote rows of the same topics."""
    if not others:
        return claim
    named = " and ".join(sorted(repr(other) for other in others))
    return replace(
        claim,
        unknown=(
            *claim.unknown,
            f"The table's history has commits of pipeline {named}, and none of {pipeline!r}: was `name:` changed?",
        ),
    )


def _late(config: PipelineConfig, letters: LettersTable | None, epoch: int | None) -> DataFrame | None:
    """The dead letters of late records. None: there are none, and the file adds late records."""
    sink = config.sinks[0]
    if letters is None or not isinstance(sink, DeltaAggregateSink) or sink.window is None:
        return None
    found = letters.late(config.name, epoch)
    # What was set aside before the file said `late: add` is in no window later either.
    return None if sink.window.late == "add" and found.isEmpty() else late_letters(found)


def _unless_set_aside(config: PipelineConfig, counts: list[dict[str, Any]], *, closed: bool) -> list[dict[str, Any]]:
    """The counts, in which nothing is a fault that a dead letter in a topic may explain, or one that is ``closed``, if
    nobody knows whether it was then.

    The pipeline is stricter than the audit, and sets late records aside: what such a record would have made or changed
    isn't expected.
    """
    if topic_of_letters(config) is None and not closed:
        return counts
    sink = config.sinks[0]
    if isinstance(sink, DeltaAppendSink):
        explained = ["lost"]
    elif isinstance(sink, DeltaUpsertSink) and sink.ignore_null_updates is False and keeps_by(config) is None:
        explained = ["lost", "stale", "resurrected"]
    else:
        explained = ["lost", "stale", "resurrected", "altered", "unexpected"]
    explained += ["letters_lost"] if closed else []
    return [{**entry, "kind": "doubtful"} if entry["kind"] in explained else entry for entry in counts]


def _of_others(others: Mapping[str, str]) -> list[str]:
    return [
        f"Rows of topic {topic} are of pipeline {other}, and not part of this audit." for topic, other in others.items()
    ]


def _plan(table: str, pinned: _Pinned) -> str:
    """What is going to be read, for a person who waits."""
    spans = [part.stop - part.begin for part in pinned.cut if part.begin < part.stop]
    what = f"{plural(sum(spans), 'offset')} of {plural(len(spans), 'partition')}"
    return f"reading {what} from Kafka, and version {pinned.version} of {table}, to compare them"
