"""Goes on with a table, or a target topic, that somebody else has replaced, as if the pipeline had written it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from connector.engine.assembly import Assembly
from connector.engine.outputs import Other
from connector.protocol.steps import Observer
from connector.source.records import no_records
from sinks.contract import Epoch, Position
from sinks.errors import ConfigurationError, PreparedLost
from sinks.offsets import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def accepted(assembly: Assembly, observe: Observer) -> Position:
    """See ``Pipeline.accept``: commits an epoch of no records. Raises ConfigurationError if nobody has replaced it."""
    assembly = _without_query(assembly)
    assembly.make_ready()
    sink, log = assembly.table.derivation.sink, assembly.table.derivation.log
    position = sink.position()
    if position is None or not position.replaced:
        raise ConfigurationError("Nobody has replaced the table: there is nothing to accept.")
    if log is not None:
        log.close(assembly.run)
        position = sink.position() or position
    if position.replaced:
        nothing = Epoch.of_no_records(position, pipeline=assembly.config.name, owner=assembly.run)
        work = assembly.work(observe, topics=assembly.source)
        position = work.destination.run_epoch(replace(nothing, delivery=position.delivery), 0).position
    return position


def accepted_topic(assembly: Assembly, observe: Observer) -> Position:
    """See ``Pipeline.accept``: the same for a pipeline with a ``kafka_topic`` sink, whose topic was created again."""
    from sinks.topic import KafkaTopic

    assembly = _without_query(assembly)
    assembly.make_ready()
    sinks = [output.sink for output in assembly.outputs if isinstance(output, Other)]
    new = [sink.accept() for sink in sinks if isinstance(sink, KafkaTopic)]
    coordinator = assembly.coordinator(observe)
    stands = coordinator.position() if any(new) else None
    if stands is None:
        raise ConfigurationError(
            "The target topic is the one that the pipeline has written to: nothing is to be accepted."
        )
    nothing = Epoch.of_no_records(stands, pipeline=assembly.config.name, owner=assembly.run)
    position = coordinator.run_epoch(nothing, 0).position
    coordinator.settle()
    return position


def _without_query(assembly: Assembly) -> Assembly:
    """With ``value: {format: rows}``, whose records only a streaming query has: reads none, which is all that an empty
    epoch needs."""

    def read(ranges: Sequence[OffsetRange], values: object = None) -> DataFrame:  # noqa: ARG001
        if ranges:
            raise PreparedLost(
                "An epoch that was begun is to be finished first, and only the streaming query has its rows.",
                hint="Start the query: it finishes the epoch, and stops. Then accept what was replaced.",
            )
        return no_records(assembly.spark)

    return replace(assembly, read=read) if assembly.config.of_rows else assembly
