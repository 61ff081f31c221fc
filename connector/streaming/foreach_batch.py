"""The sinks' guarantees inside a Structured Streaming job: a micro-batch is an epoch.

Spark runs a batch again when it doesn't know whether the batch was finished, so a function for ``foreachBatch`` may
write it twice. Here the batch's offsets are committed with its rows, and what the sinks hold already is left out.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from connector.config import PipelineConfig, RowsFormat, load, parse
from connector.decode.rows import as_records
from connector.delivery.ports import Work
from connector.delivery.transactional import publish
from connector.engine.assembly import Assembly, assembled
from connector.engine.settled import settled_first
from connector.protocol.batch import Batch, epoch_of, reaches
from connector.protocol.gone import doubts
from connector.protocol.read_to import ahead, of_wrong_clock
from connector.protocol.recover import TopicsHeld, behind
from connector.protocol.steps import Event, Observer, Step, all_of
from connector.source.columnar import PlainValues
from connector.spark.compat import is_connect
from connector.streaming.checkpoint import batch_of
from connector.telemetry.notify import QueryNotifier
from sinks.contract import Position
from sinks.delta.early_state import state_beside
from sinks.errors import ConfigurationError, Fenced, LakelockError, PreparedLost
from sinks.kafka import TOLD_TIMESTAMP
from sinks.offsets import OffsetRange
from sinks.spark.by_partition import by_partition
from sinks.spark.row_errors import raise_sql
from sinks.spark.settings import as_written, lossless, with_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("lakelock.pipeline")

_OF = "spark.lakelock.run"
"""Settings in the query's session, one per pipeline: the id of the run that was assembled in it."""
_TURN = "spark.lakelock.turn"
"""A setting in the query's session, which names its lock in ``_turns``."""
_turns: dict[str, threading.Lock] = {}
_naming = threading.Lock()
_KAFKAS = ("key", "value", "topic", "partition", "offset", "timestamp")


def foreach_batch(
    pipeline: str | Path | Mapping[str, object], *, checkpoint: str | Path, observers: Sequence[Observer] = ()
) -> Callable[[DataFrame, int], None]:
    """A function for ``DataStreamWriter.foreachBatch`` that commits each batch to the sinks of a pipeline, once.

    ``pipeline``: a pipeline file, or a mapping with the same options. ``checkpoint``: the query's own
    ``checkpointLocation``. A batch has the columns of Spark's Kafka source, which are decoded as in a run. Or, with
    ``value: {format: rows, schema: ...}``, it has the columns of the schema and the coordinates of the records that its
    rows were made of.

    ====================  ==============================================================================================
    crash                 what is left when the query starts again
    ====================  ==============================================================================================
    before the commit     Spark repeats the batch. The sinks' position says that they lack it, and it is committed.
    after the commit      Spark repeats the batch, unless it noted its end. The sinks' position says that they hold it,
                          and nothing is written.
    ====================  ==============================================================================================

    Raises ConfigurationError. Whatever the function itself raises (see ``sinks.errors``) stops the query, and leaves
    the sinks with whole epochs.
    """
    config = parse(pipeline) if isinstance(pipeline, Mapping) else load(pipeline)
    if config.delivery != "transactional":
        raise ConfigurationError(
            f"delivery: {config.delivery} is for `lakelock run`; foreach_batch needs transactional."
        )
    if config.flows:
        raise ConfigurationError(
            "flows: is for `lakelock run`; foreach_batch reads all records of a batch in one way.",
            hint="Run the pipeline: `lakelock run FILE`. Or decode the records in the query: value: {format: rows}.",
        )
    return _Batches(config, str(checkpoint), observers)


class _Batches:
    """The function for ``foreachBatch``. It outlives the queries that call it."""

    def __init__(self, config: PipelineConfig, checkpoint: str, observers: Sequence[Observer]) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._notifier = QueryNotifier(config, config.notify) if config.notify is not None else None
        self._observers: Sequence[Observer] = [*observers, *([self._notifier] if self._notifier is not None else [])]
        self._query: _Query | None = None

    def __call__(self, rows: DataFrame, number: int) -> None:
        try:
            if is_connect(rows.sparkSession):
                raise ConfigurationError(
                    "foreach_batch needs a classic Spark session: Spark Connect runs the function in a process of its "
                    "server.",
                    hint="Start the query in a session without spark.remote, or run the pipeline: `lakelock run FILE`.",
                )
            # The session is the query's. Whatever else the user does in it keeps the user's settings.
            spark = rows.sparkSession
            with _turn(spark), as_written(spark), with_settings(spark, lossless(spark)):
                self._of(spark).commit(rows, partial(batch_of, spark, self._checkpoint, number))
        except Exception as error:
            if self._notifier is not None:
                self._notifier.failed(error)
            if not isinstance(error, LakelockError):
                raise
            # Spark shows only an error's text, below a long trace.
            error.args = (f"{error.message} {error.hint}".strip(),)
            log.error("pipeline %s, batch %s: %s", self._config.name, number, error)
            raise error.with_traceback(None) from None

    def _of(self, spark: SparkSession) -> _Query:
        """The run that belongs to this session.

        A query that is started again has another session, and gets another run.
        """
        mine = f"{_OF}.{self._config.name}"
        if self._query is None or spark.conf.get(mine, None) != self._query.run:
            if self._query is not None:
                self._query.close()
            self._query = _Query(self._config, spark, self._observers)
            spark.conf.set(mine, self._query.run)
        return self._query


def _turn(spark: SparkSession) -> threading.Lock:
    """A lock of this session. Two functions that a batch calls at the same time would use each other's settings and
    views: the one's MERGE would have the other's rows."""
    with _naming:
        name = spark.conf.get(_TURN, "") or uuid.uuid4().hex
        spark.conf.set(_TURN, name)
        return _turns.setdefault(name, threading.Lock())


class _Query:
    """One run inside a streaming query, from the query's start to its end."""

    def __init__(self, config: PipelineConfig, spark: SparkSession, observers: Sequence[Observer]) -> None:
        self._config = config
        self._observe = all_of(observers)
        self._last: Position | None = None
        self._look: TopicsHeld | None = None
        """One that batches are still to reach the ends of."""
        self._batch: tuple[DataFrame, Batch] | None = None
        with ExitStack() as stack:
            made = settled_first(partial(assembled, config, spark=spark), self._works_with)
            self._assembly, self._work = stack.enter_context(made)
            self.run = self._assembly.run
            self.close = stack.pop_all().close

    def _works_with(self, assembly: Assembly) -> Work:
        # Nothing says when the query has ended, so nothing goes on beside its batches.
        of_query = replace(assembly, read=partial(self._read, assembly), beside=None)
        return of_query.work(self._observe, topics=assembly.source)

    def commit(self, rows: DataFrame, batch_of: Callable[[], Batch]) -> None:
        """Commit what the sinks don't hold of the batch, in one epoch. ``batch_of``: reads the checkpoint."""
        try:
            with self._state_beside():
                batch, looked = self._looked_at(batch_of)
                self._batch = rows, batch
                self._commit(self._work, batch, looked)
        finally:
            self._batch = None
            # Nothing says when the query has ended, so no connection stays open between batches.
            self._assembly.source.close()
            self._assembly.group.close()

    def _state_beside(self) -> AbstractContextManager[None]:
        """Has Delta work out what the commit asks of the table while the batch is planned."""
        if self._config.two_phase or self._config.merged_on_read is not None:
            return nullcontext()
        return state_beside(self._assembly.table.table)

    def _looked_at(self, batch_of: Callable[[], Batch]) -> tuple[Batch, Future[TopicsHeld] | None]:
        """The batch, and a look at Kafka that goes on while Spark reads it. The first batch has none."""
        if self._last is None:
            return batch_of(), None
        with ThreadPoolExecutor(1, thread_name_prefix="lakelock-look") as pool:
            looked = pool.submit(self._work.topics.look)
            return batch_of(), looked

    def _commit(self, work: Work, batch: Batch, looked: Future[TopicsHeld] | None) -> None:
        position = work.destination.position()
        self._refuse_replaced(work, position)
        restored = position is not None and position.restored_to is not None
        if position is not None and restored:
            work.destination.restored(position)
        if self._last is None or restored:
            tidied = work.destination.tidied(position)
            if tidied is not position:
                self._last = position = tidied
        # A look must not be older than the position. One from before is not if this query has made the position.
        own = position is not None and self._last is not None and position.epoch == self._last.epoch
        held = looked.result() if looked is not None and own and not restored else work.topics.look()
        wrong = ahead(position, held.looked_at) if position is not None else None
        if position is not None and wrong is not None:
            log.warning("pipeline %s: %s", work.pipeline, of_wrong_clock(position, wrong))
        epoch = epoch_of(
            batch,
            work.pipeline,
            work.owner,
            position,
            held,
            work.topics.remaining(held),
            now=datetime.now(timezone.utc),
            earlier=self._look,
            continue_on_data_loss=work.continue_on_data_loss,
        )
        if epoch is None:
            log.info("pipeline %s: batch %s is there already", work.pipeline, batch)
            return
        noted = position.gone if position is not None else {}
        if doubt := doubts({topic: since for topic, since in epoch.gone.items() if topic not in noted}):
            log.warning("pipeline %s: %s", work.pipeline, doubt)
        left = behind(epoch.offsets, held)
        self._observe(Event(Step.PLANNED, epoch, behind=left))
        committed = work.destination.run_epoch(epoch, left)
        self._last = committed.position
        if self._look is None or reaches(committed.position.offsets, self._look):
            self._look = held
        log.info("pipeline %s: batch %s is epoch %s, %s rows", work.pipeline, batch, epoch.number, committed.rows)
        publish(work, epoch, held, left)
        work.destination.fold(committed.position)
        work.destination.settle()

    def _refuse_replaced(self, work: Work, position: Position | None) -> None:
        if position is not None and position.delivery != "transactional":
            raise ConfigurationError(
                f"The table of pipeline {work.pipeline!r} belongs to delivery: {position.delivery}, whose offsets "
                "are in its consumer group.",
                hint="Run `lakelock run FILE` once with delivery: transactional, which takes them over.",
            )
        if position is not None and self._last is not None and position.epoch > self._last.epoch:
            raise Fenced(
                f"Pipeline {work.pipeline!r} was replaced: run {position.owner} has committed epoch {position.epoch}; "
                f"this query ({work.owner}) has stopped after its epoch {self._last.epoch}.",
                owner=position.owner,
                epoch=position.epoch,
                hint="Two writers of one pipeline were active. Nothing is lost: the other one goes on. If you start "
                "this query again, it goes on from there.",
            )

    def _read(self, assembly: Assembly, ranges: Sequence[OffsetRange], values: PlainValues | None = None) -> DataFrame:
        """The records of these ranges, from the batch if it has them, else from Kafka.

        With two-phase commit a recovery may need the ranges of an earlier batch. Kafka has their records, but not the
        rows that a query has made of them: then PreparedLost is raised.
        """
        if self._batch is not None and self._batch[1].covers(tuple(ranges)):
            return _taken(self._records(self._batch[0]), self._batch[1], ranges)
        if self._config.of_rows:
            raise PreparedLost(
                "The staged rows of an earlier batch are gone, and only the query can make them again.",
                hint="Bring the staged files back. Or give the epoch up, which `lakelock status FILE` names: `lakelock "
                "rewind FILE --to-epoch` the one before takes all tables back.",
            )
        return assembly.of_kafka(ranges, values)

    def _records(self, rows: DataFrame) -> DataFrame:
        if isinstance(self._config.value, RowsFormat):
            return as_records(rows, self._config.value.schema_)
        wanted = (*_KAFKAS, "headers") if self._config.reads_headers else _KAFKAS
        missing = [name for name in wanted if name not in rows.columns]
        if missing:
            raise ConfigurationError(
                f"The batch lacks {', '.join(missing)}: with value: {{format: {self._config.value.format}}} it has to "
                "have Kafka's own columns.",
                hint='Headers come with .option("includeHeaders", "true").'
                if missing == ["headers"]
                else "For rows that the query has decoded itself write value: {format: rows, schema: ...}.",
            )
        return rows.select(*wanted)


def _taken(records: DataFrame, batch: Batch, ranges: Sequence[OffsetRange]) -> DataFrame:
    """The records of these ranges.

    A record that isn't in the batch's ranges at all fails the query. It would be ignored as an old one, or be missing
    if the batch is cut elsewhere after a crash.
    """
    starts = {at: batch.begins(at) for at in batch.end}
    taken = {**batch.end, **{range_.at: range_.start for range_ in ranges}}
    # An epoch that another run has decided may end before the batch does.
    until = {**batch.end, **{range_.at: range_.end for range_ in ranges}}
    foreign = raise_sql("not_of_batch", topic="topic", partition="partition", offset="offset")
    inside = f"offset >= {by_partition(starts)} AND offset < {by_partition(batch.end)}"
    own = {
        "offset": f"CASE WHEN {inside} THEN offset ELSE {foreign} END AS offset",
        "timestamp": f"{TOLD_TIMESTAMP} AS timestamp",  # the query reads by Spark's own source, too
    }
    checked = records.selectExpr(*(own.get(name, name) for name in records.columns))
    if taken != starts:
        checked = checked.where(f"offset >= {by_partition(taken)}")
    return checked if until == batch.end else checked.where(f"offset < {by_partition(until)}")
