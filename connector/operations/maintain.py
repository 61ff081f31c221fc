"""Maintains what a pipeline writes: its tables, the coordinator log, and what killed runs left. Doesn't need Kafka.

A run may be at work meanwhile. Files that it has written and not committed are younger than those that VACUUM removes.
Rows that it has staged belong to an attempt that isn't over (``LogHeld.over``). The last two epochs of the log stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from connector.config import CustomSink, DeltaPlace, KafkaTopicSink, PipelineConfig, S3ObjectsSink
from connector.config.sinks import SinkOptions
from connector.engine.coordinator_log import Log
from connector.engine.dead_letters import letters_table
from connector.engine.outputs import custom_sink, s3_objects
from connector.spark.session import session
from sinks.delta.change_log import ChangeLog
from sinks.delta.maintenance import Upkeep, upkeep
from sinks.delta.table import DeltaTable
from sinks.delta.tombstones import Tombstones
from sinks.delta.two_phase import staging
from sinks.s3.hadoop import require_conditional_writes
from sinks.spark.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Cleared:
    """What was removed beside a table's own files. In a rehearsal: what would be removed."""

    place: str
    what: str
    """``leftovers``: staged rows, uploads and receipts that no run will commit. ``entries``: of the coordinator log."""
    count: int | None
    """None: a custom sink doesn't say."""


def maintain(config: PipelineConfig, *, dry_run: bool = False, debug: bool = False) -> Iterator[Upkeep | Cleared]:
    """Maintain place by place, as ``config.maintain`` says; yields what was done at each.

    Places that aren't there are left out.

    ``dry_run``: only say what would be done. Raises LakelockError.
    """
    policy = config.maintain
    with session(config.spark_options, name=config.name, s3=config.on_s3, debug=debug) as spark:
        log = _log(config, spark)
        if log is not None and log.exists():
            if not dry_run:
                require_conditional_writes(spark, log.location)
            if policy.leftovers:
                yield from _leftovers(config, spark, log, dry_run=dry_run)
            forgotten = log.forget(datetime.now(timezone.utc) - policy.keep_entries, rehearse=dry_run)
            yield Cleared(log.label, "entries", forgotten)
        for table, compact in _tables(config, spark, log):
            if table.exists():
                if not dry_run:
                    require_conditional_writes(spark, table.location)
                yield upkeep(table, rehearse=dry_run, compact=compact and policy.optimize, vacuum=policy.vacuum)


def _log(config: PipelineConfig, spark: SparkSession) -> Log | None:
    place = config.coordinator
    return Log(spark, path=place.folder, name=place.table, pipeline=config.name, run="") if place is not None else None


def _tables(config: PipelineConfig, spark: SparkSession, log: Log | None) -> Iterator[tuple[DeltaTable, bool]]:
    """The tables of the pipeline, each with whether to compact its small files.

    A change log isn't compacted: each file is one epoch's, and is removed soon.
    """
    for sink in _sinks(config, log):
        if isinstance(sink, DeltaPlace):
            table = DeltaTable(spark, path=sink.folder, name=sink.table)
            yield table, True
            if table.exists():
                yield Tombstones(table, ()).table, True
                yield ChangeLog(table, pipeline=config.name, topics=config.source.topics).table, False
    letters = letters_table(config, spark)
    if letters is not None:
        yield letters.table, True
    if log is not None:
        yield log.table, True


def _sinks(config: PipelineConfig, log: Log | None) -> Sequence[SinkOptions]:
    """The sinks of the pipeline file; of a route, the tables that its log knows."""
    if config.route is None or log is None:
        return config.sinks
    decided = log.read().decided
    return [config.routed(name).sinks[0] for name in (decided.prepared if decided is not None else ())]


def _leftovers(config: PipelineConfig, spark: SparkSession, log: Log, *, dry_run: bool) -> Iterator[Cleared]:
    if config.route is not None:
        return  # its tables stage nothing
    over = log.read().over
    for sink in config.sinks:
        if isinstance(sink, CustomSink):
            if not dry_run:
                custom_sink(sink, spark, log.staging).abort(over)
            yield Cleared(sink.place, "leftovers", None)
        elif isinstance(sink, S3ObjectsSink):
            objects = s3_objects(spark, sink, pipeline=config.name)
            yield _cleared(sink.place, objects.prepared(over), partial(objects.abort, over), dry_run=dry_run)
        else:
            staged = _staging(config, sink, spark, log)
            if staged is not None:
                yield _cleared(sink.place, staged.prepared(over), partial(staged.clear, over), dry_run=dry_run)


def _staging(
    config: PipelineConfig, sink: DeltaPlace | KafkaTopicSink, spark: SparkSession, log: Log
) -> Staging | None:
    """Where a sink's rows are staged. None: the table isn't there yet."""
    if isinstance(sink, KafkaTopicSink):
        return Staging(spark, log.staging)
    table = DeltaTable(spark, path=sink.folder, name=sink.table)
    detail = table.detail()
    return staging(table, detail.location, config.name) if detail is not None else None


def _cleared(place: str, prepared: Sequence[str], clear: Callable[[], None], *, dry_run: bool) -> Cleared:
    if prepared and not dry_run:
        clear()
    return Cleared(place, "leftovers", len(prepared))
