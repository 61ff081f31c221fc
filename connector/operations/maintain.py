"""Maintains what a pipeline writes: its tables, the coordinator log, and what killed runs left. Doesn't need Kafka.

A run may be at work meanwhile. Files that it has written and not committed are younger than those that VACUUM removes.
Rows that it has staged belong to an attempt that isn't over (``LogHeld.over``). The last two epochs of the log stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from rich.filesize import decimal

from connector.config import CustomSink, DeltaPlace, KafkaTopicSink, PipelineConfig, S3ObjectsSink
from connector.config.sinks import SinkOptions
from connector.display import Grid, Line, Page, Shown
from connector.engine.coordinator_log import Log
from connector.engine.custom_sink import custom_sink
from connector.engine.dead_letters import letters_table
from connector.engine.letters_again import letters_version
from connector.engine.outputs import s3_objects
from connector.operations.session import given_or_new
from connector.protocol.decided import Row, State
from connector.telemetry.progress import span
from sinks.delta.change_log import ChangeLog
from sinks.delta.maintenance import Upkeep, upkeep
from sinks.delta.table import DeltaTable
from sinks.delta.tombstones import Tombstones
from sinks.delta.two_phase import staging
from sinks.plurals import plural
from sinks.s3.hadoop import require_conditional_writes
from sinks.spark.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("lakelock.pipeline")


@dataclass(frozen=True)
class Cleared:
    """What was removed beside a table's own files. In a rehearsal: what would be removed."""

    place: str
    what: str
    """``leftovers``: staged rows, uploads and receipts that no run will commit. ``entries``: of the coordinator log."""
    count: int | None
    """None: a custom sink doesn't say."""


class Maintained(Shown, list[Upkeep | Cleared]):
    """What was done at each place of a pipeline. In a rehearsal: what would be done."""

    def __init__(
        self,
        config: PipelineConfig,
        done: Iterable[Upkeep | Cleared],
        *,
        dry_run: bool,
        failed: Mapping[str, Exception] | None = None,
    ) -> None:
        super().__init__(done)
        self.failed: Mapping[str, Exception] = failed if failed is not None else {}
        """The tables that couldn't be maintained, and why not."""
        self.pipeline, self.policy, self.dry_run = config.name, config.maintain, dry_run

    def page(self) -> Page:
        """A row per Delta table, and a line for what was removed elsewhere."""
        tables = [upkeep for upkeep in self if isinstance(upkeep, Upkeep)]
        headings = ("table", "files", "size", "small files", "unused files")
        rows = [self._row(upkeep) for upkeep in tables]
        blocks: list[Line | Grid] = [Grid(headings, rows, right=frozenset({"files", "size"}))]
        if not tables and not self.failed:
            blocks = [Line("", f"{self.pipeline}: there are no Delta tables yet.")]
        cleared = [done for done in self if isinstance(done, Cleared) and done.count != 0]
        blocks += [Line("", f"{done.place}: {self._cleared(done)}") for done in cleared]
        return Page([*blocks, *(Line("", f"{place} couldn't be maintained.") for place in self.failed)])

    def whole(self) -> Maintained:
        """The same. Raises the error of the first table that couldn't be maintained; the log names all of them."""
        for place, why in self.failed.items():
            logger.warning("%r couldn't be maintained: %s", place, why)
        for why in self.failed.values():
            raise why
        return self

    @property
    def _would(self) -> str:
        return "would be " if self.dry_run else ""

    def _row(self, upkeep: Upkeep) -> Sequence[str]:
        """The size of a table, and what became of small and of unused files."""
        if not self.policy.optimize:
            small = "left: maintain.optimize is false"
        elif not upkeep.small:
            small = "none"
        elif upkeep.into == 0:
            small = f"{upkeep.small:,} left: a run rewrites them all the time"
        else:
            small = f"{upkeep.small:,} {self._would}put together" + (f" into {upkeep.into:,}" if upkeep.into else "")
        if not self.policy.vacuum:
            unused = "left: maintain.vacuum is false"
        elif upkeep.needed_by is not None:
            unused = f"left: epoch {upkeep.needed_by} is in doubt and needs old files; `lakelock recover` completes it"
        elif upkeep.unused is None:
            unused = (
                "left: the table keeps unused files for less than an hour, and a run may need longer to write files"
            )
        else:
            unused = f"{upkeep.unused:,} {self._would}removed" if upkeep.unused else "none"
        return upkeep.table, f"{upkeep.files:,}", decimal(upkeep.bytes), small, unused

    def _cleared(self, cleared: Cleared) -> str:
        if cleared.what == "entries":
            age = span(self.policy.keep_entries.total_seconds())
            return f"{plural(cleared.count or 0, 'entry', 'entries')} older than {age} {self._would}removed"
        if cleared.count is None:
            return (
                "is asked to throw away what killed runs left" if self.dry_run else "threw away what killed runs left"
            )
        return f"{cleared.count:,} left by killed runs, staged or begun, {self._would}removed"


def maintain(
    config: PipelineConfig, *, dry_run: bool = False, debug: bool = False, spark: SparkSession | None = None
) -> Maintained:
    """Maintain place by place, as ``config.maintain`` says. Places that aren't there are left out.

    ``dry_run``: only say what would be done. ``spark``: a session whose settings nobody else changes. A table that
    can't be maintained is in ``failed``, and keeps no other from it. Raises LakelockError.
    """
    failed: dict[str, Exception] = {}
    places = _maintained(config, failed, dry_run=dry_run, debug=debug, given=spark)
    return Maintained(config, places, dry_run=dry_run, failed=failed)


def _maintained(
    config: PipelineConfig, failed: dict[str, Exception], *, dry_run: bool, debug: bool, given: SparkSession | None
) -> Iterator[Upkeep | Cleared]:
    """``failed``: gets the tables that can't be maintained, which keep no other from it, and why not."""
    policy = config.maintain
    with given_or_new(given, config, config.name, debug=debug) as spark:
        log = _log(config, spark)

        def needed_by() -> int | None:
            """Asked again for each table: all of them may take hours, and a rewind may be decided meanwhile."""
            return needs_old_files(log.read().in_doubt) if log is not None and log.exists() else None

        if log is not None and log.exists():
            if not dry_run:
                require_conditional_writes(spark, log.location)
            if policy.leftovers:
                yield from _leftovers(config, spark, log, dry_run=dry_run)
            forgotten = log.forget(datetime.now(timezone.utc) - policy.keep_entries, rehearse=dry_run)
            yield Cleared(log.label, "entries", forgotten)
        for table, compact in _tables(config, spark, log):
            try:
                if not table.exists():
                    continue
                if not dry_run:
                    require_conditional_writes(spark, table.location)
                compact = compact and policy.optimize
                done = upkeep(table, rehearse=dry_run, compact=compact, vacuum=policy.vacuum, needed_by=needed_by)
            except Exception as error:  # Spark has errors of its own
                failed[table.label] = error
                continue
            yield done


def needs_old_files(in_doubt: Row | None) -> int | None:
    """The number of a decided epoch whose recovery needs files that its tables no longer refer to. None: there is none.

    A rewind restores old versions, and a retry reads the version of the letters from which it began.
    """
    if in_doubt is None or in_doubt.state is not State.DECIDED:
        return None
    needs = in_doubt.back_to is not None or letters_version(in_doubt.epoch.batch) is not None
    return in_doubt.epoch.number if needs else None


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
            if _is_there(table):
                tombstones = Tombstones(table, ())
                yield tombstones.table, True
                yield tombstones.aside, True
                yield ChangeLog(table, pipeline=config.name, topics=config.source.topics).table, False
    letters = letters_table(config, spark)
    if letters is not None:
        yield letters.table, True
    if log is not None:
        yield log.table, True


def _is_there(table: DeltaTable) -> bool:
    """False also for one that can't be looked at, which is told as the fault of this table."""
    try:
        return table.exists()
    except Exception:  # Spark has errors of its own
        return False


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
                yield _cleared(sink.place, staged.prepared(over), partial(staged.clear_all, over), dry_run=dry_run)


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
