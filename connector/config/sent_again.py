"""What becomes of changes that Debezium sends again, as it does after a restart that wasn't clean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from connector.config.flows import by_flow
from connector.config.formats import DebeziumFormat
from connector.config.route import each_once
from connector.config.sinks import DeltaAggregateSink, DeltaHistorySink, SinkOptions

if TYPE_CHECKING:
    from connector.config.pipeline import PipelineConfig


def kept_again(config: PipelineConfig) -> Iterator[str]:
    """A warning for each sink whose table then says for good what never was in the database."""
    if any(isinstance(each.value, DebeziumFormat) for each in by_flow(config)):
        yield from each_once(config, _warnings)


def _warnings(sink: SinkOptions) -> Iterator[str]:
    if isinstance(sink, DeltaHistorySink) and sink.sequence_by is None:
        yield (
            f"{sink.in_file}: changes that Debezium sends again after a restart make versions that never were. Write "
            "sequence_by: _source_position, unless Kafka Connect sends each change exactly once."
        )
    if isinstance(sink, DeltaAggregateSink):
        yield (
            f"{sink.in_file}: changes that Debezium sends again after a restart count twice. Have Kafka Connect "
            "send each exactly once (exactly.once.source.support), or aggregate the table of a delta_upsert in a query."
        )
