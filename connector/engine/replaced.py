"""Asks whether a run was replaced, for what it writes beside its commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from connector.config import PipelineConfig
from connector.delivery.handover import TRANSACTIONAL
from connector.engine.coordinator_log import Log
from connector.engine.output import Output
from connector.engine.outputs import Table
from sinks.contract import Epoch
from sinks.delta.fence import refuse_replaced_by
from sinks.delta.merge_on_read import MergeOnRead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def refuser(config: PipelineConfig, spark: SparkSession, outputs: Sequence[Output]) -> Callable[[Epoch], None]:
    """A check that raises Fenced if another run has committed, or decided, an epoch or a later one.

    Nobody fences a run of a consumer group.
    """
    if config.delivery != TRANSACTIONAL:
        return lambda _: None
    place = config.coordinator if config.two_phase else None
    if place is not None:
        # One of its own: the run's log may be appending at the same time.
        log = Log(spark, path=place.folder, name=place.table, pipeline=config.name, run="")
        return partial(_refuse_decided, log)
    return partial(_refuse_committed, outputs)


def _refuse_decided(log: Log, epoch: Epoch) -> None:
    decided = log.read().decided
    refuse_replaced_by(decided.epoch.position() if decided is not None else None, epoch, log.label)


def _refuse_committed(outputs: Sequence[Output], epoch: Epoch) -> None:
    for output in outputs:
        if isinstance(output, Table):
            sink = output.derivation.sink
            # A position of both, table and change log, would also say how the next write goes.
            stands = sink.standing().position if isinstance(sink, MergeOnRead) else sink.position()
            refuse_replaced_by(stands, epoch, output.label)
