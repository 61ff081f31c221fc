"""Folds beside the epochs, so that no record waits for a fold.

The fold has a thread, a session and a sink of its own, as ``lakelock fold`` has them in a process of its own: what
``sinks.delta.merge_on_read`` says of two processes, that one appends while the other folds, makes it safe. An epoch
that is appended meanwhile has a higher number, and stays unfolded.

====================  ================================================================================================
crash                 what is left
====================  ================================================================================================
during the fold       What a crash of `lakelock fold` leaves: the table is behind the change log, and the next fold
                      begins anew. The epochs that were appended meanwhile are in the log.
after its commit      The table has the epochs up to the one after which the fold began.
====================  ================================================================================================
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from connector.config import PipelineConfig
from connector.engine.output import Output
from connector.engine.outputs import Table
from connector.source.records import no_records
from connector.spark.compat import is_connect
from connector.spark.session import isolated
from sinks.contract import Committed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_POOL = "lakelock-fold"


@dataclass(frozen=True)
class Folded:
    """What a fold has done. ``committed`` is None if there was nothing to fold."""

    committed: Committed | None
    seconds: float


class Beside:
    """Where the folds of a run work. One at a time."""

    def __init__(
        self, config: PipelineConfig, spark: SparkSession, table: Table, owner: str, opened: ExitStack
    ) -> None:
        self._config = config
        self._spark = spark
        self._table = table
        self._owner = owner
        self._opened = opened

    @cached_property
    def _place(self) -> tuple[ThreadPoolExecutor, SparkSession, DataFrame]:
        own = self._opened.enter_context(isolated(self._spark))
        rows = self._table.decode(no_records(self._spark))
        return self._opened.enter_context(ThreadPoolExecutor(1, thread_name_prefix=_POOL)), own, rows

    def start(self) -> Future[Folded]:
        """Begin a fold. The future raises what the fold raises."""
        thread, own, rows = self._place
        return thread.submit(self._fold, own, rows)

    def _fold(self, spark: SparkSession, rows: DataFrame) -> Folded:
        from pyspark import SparkContext

        started = time.monotonic()
        # Spark shares its cores between this pool and the epochs; else the epochs' tasks would wait for the fold's.
        SparkContext.getOrCreate().setLocalProperty("spark.scheduler.pool", _POOL)
        log = self._table.in_session(spark, self._config, rows).derivation.log
        assert log is not None
        log.position()
        committed = log.fold(self._owner)
        return Folded(committed, time.monotonic() - started)


@contextmanager
def beside(
    config: PipelineConfig, spark: SparkSession, outputs: Sequence[Output], owner: str
) -> Iterator[Beside | None]:
    """A place for the folds of run ``owner``, which has these outputs.

    At the end of the block it waits for the fold that is going on.

    None where folds come between two epochs: in a run that ends by itself, nobody waits for the records meanwhile.
    """
    if config.merged_on_read is None or config.interval is None or is_connect(spark):
        yield None
        return
    with ExitStack() as opened:
        (table,) = outputs
        assert isinstance(table, Table)
        yield Beside(config, spark, table, owner, opened)
