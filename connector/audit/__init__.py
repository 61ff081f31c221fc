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
``counted``: how it is counted); ``letters`` keeps apart what belongs among the dead letters. ``verdict`` is what was
found, and how it is shown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from connector.audit.claim import At, Bounds, Claim, Range, bounds, claimed, refuse_recreated, unchecked
from connector.audit.compare import compare
from connector.audit.formats import forms
from connector.audit.letters import no_letters
from connector.audit.records import kafka_records
from connector.audit.table import AuditedTable
from connector.audit.topics import Topics
from connector.audit.verdict import Audit, PartitionAudit, Place, partitions, show
from connector.config import DeltaAggregateSink, DeltaAppendSink, PipelineConfig
from connector.spark.session import session
from sinks.errors import BrokerUnreachable, NotADeltaTable, NotAuthorized, OffsetsLost
from sinks.kafka import reader_refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Audit", "Claim", "PartitionAudit", "Place", "Range", "audit", "show"]

log = logging.getLogger("lakelock.audit")


def audit(
    config: PipelineConfig,
    version: int | None = None,
    *,
    say: Callable[[str], None] = log.info,
    debug: bool = False,
) -> Audit:
    """Compare the table of a pipeline, at ``version`` or the newest, with the records in Kafka. Changes nothing.

    Uses the Spark session that is active, or one of its own. ``say`` is told what is being done. Faults are in the
    result, not raised. Raises LakelockError where nothing could be compared: TopicMissing, TopicRecreated,
    BrokerUnreachable, OffsetsLost (retention overtook the audit), NotADeltaTable, SchemaMismatch, ConfigurationError
    (no table or no such version), UnsupportedFormat.
    """
    topics = Topics(config.source)
    try:
        # That Kafka, or a topic, isn't there is known long before Spark has started.
        topics.held(topics.named(config.source.topics))
        committed = _committed(topics, config)
        with session(config.spark_options, name=f"verify {config.name}", s3=config.on_s3, debug=debug) as spark:
            known = forms(config)
            table = AuditedTable(spark, config.sinks[0])
            pinned = table.pin(version)
            first, found = table.metadata(config.name, pinned)
            stored = (at.topic for at in (found.offsets if found else ()))
            held = topics.held(topics.named(config.source.topics, stored))
            refuse_recreated(found, held)
            claim, notes = claimed(
                found,
                first,
                delivery=config.delivery,
                partitions=held.ends,
                committed={at: offset for at, offset in committed.items() if at.topic in held.ids},
                rows=partial(table.extents, pinned, sorted(held.ids)),
                older_version=pinned < table.newest,
                from_earliest=config.source.start == "earliest",
            )
            cut = bounds(claim, held)
            written = table.others(config.name)
            if found is None:
                claim = _of_another(claim, config.name, {written[topic] for topic in held.ids if topic in written})
            others = {topic: other for topic, other in written.items() if topic not in held.ids}
            beside = _letters(config, spark)
            foreign = table.foreign(pinned)
            apart = config.on_bad_record == "dead_letter"
            # Deletes that aren't committed yet show in Kafka only.
            keyed = not isinstance(config.sinks[0], DeltaAppendSink)
            say(_plan(table.label, pinned, cut))
            with _reading_kafka():
                counted, told = compare(
                    config,
                    records=kafka_records(
                        spark,
                        config.source.kafka_options,
                        cut,
                        held.ends if claim.commits_later and keyed else None,
                        headers=apart or config.headers,
                    ),
                    rows=table.rows(pinned),
                    forms=known,
                    cut=cut,
                    committed_later=claim.commits_later,
                    leave_out=sorted(others),
                    letters=(beside.open_letters(found.epoch if found else 0) if beside else no_letters(spark))
                    if apart
                    else None,
                    late=beside.late(config.name) if beside and _keeps_late(config) else None,
                )
    finally:
        topics.close()
    parts = partitions(counted, claim)
    notes += told
    notes += foreign
    notes += _notes(claim, cut, others, held.compacted, sum(part.counts["unchecked"] for part in parts))
    if not apart and any(part.counts["lost"] for part in parts):
        notes.append(
            "By this file bad records stop a run. Where one was run with --set on_bad_record=dead_letter, what is lost "
            "here may have been set aside: give verify the same."
        )
    grouped = isinstance(config.sinks[0], DeltaAggregateSink)
    return Audit(config.name, table.label, pinned, claim, parts, unchecked(cut), notes, grouped)


@contextmanager
def _reading_kafka() -> Iterator[None]:
    """Raises OffsetsLost, or what Kafka refuses, for what Spark says of it."""
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
    """``others``: pipelines whose commits the table has, of the same topics."""
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


def _committed(topics: Topics, config: PipelineConfig) -> dict[At, int]:
    """Asked for whatever the file says: the table's commits may say that another delivery has written it."""
    try:
        return topics.committed(config.group)
    except (BrokerUnreachable, NotAuthorized):
        if config.delivery != "transactional":
            raise
        return {}  # a transactional pipeline needs no rights on a group


def _letters(config: PipelineConfig, spark: SparkSession) -> AuditedTable | None:
    """The dead letters, as they are after the table's version was pinned; None where there are none, or none yet."""
    if config.dead_letters is None:
        return None
    try:
        return AuditedTable(spark, config.dead_letters)
    except NotADeltaTable:
        return None


def _keeps_late(config: PipelineConfig) -> bool:
    """Whether dead letters keep records out of their windows."""
    sink = config.sinks[0]
    window = sink.window if isinstance(sink, DeltaAggregateSink) else None
    return window is not None and window.late == "dead_letter"


def _plan(table: str, version: int, cut: list[Bounds]) -> str:
    spans = [part.stop - part.begin for part in cut if part.begin < part.stop]
    return (
        f"reading {sum(spans):,} offsets of {len(spans)} partitions from Kafka, and version {version} of {table}, to "
        "compare them"
    )


def _notes(
    claim: Claim, cut: list[Bounds], others: dict[str, str], compacted: frozenset[str], rows_unchecked: int
) -> list[str]:
    notes = [
        f"Rows of topic {topic} are of pipeline {other}, and not part of this audit." for topic, other in others.items()
    ]
    for topic in sorted(compacted):
        if any(part.at.topic == topic for part in cut):
            notes.append(
                f"Topic {topic} is compacted: a row whose record Kafka has removed counts as unchecked, and what "
                "compaction removed isn't expected."
            )
    for part in cut:
        if part.stop < part.end:
            notes.append(
                f"Kafka's log of {part.at.topic}-{part.at.partition} ends at {part.stop}, before the claim does, at "
                f"{part.end}: it lost records that the table has."
            )
    for topic in sorted({at.topic for at in claim.offsets if at.topic.startswith("#")}):
        notes.append(f"Rows of {topic} came from a topic that was made again since: their records are gone with it.")
    for gap in claim.lost:
        notes.append(
            f"The pipeline itself reported [{gap.start}, {gap.end}) of {gap.topic}-{gap.partition} as lost: not part "
            "of the claim."
        )
    if rows_unchecked and not compacted and not any(part.begin > part.since for part in cut):
        notes.append(f"{rows_unchecked:,} rows could not be checked.")
    return notes
