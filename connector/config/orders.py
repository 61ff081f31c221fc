"""By what a sink orders records. An order that is made of Kafka's offset is none across topics and partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from connector.config.route import each_once
from connector.config.sinks import DeltaAggregateSink, DeltaHistorySink, KeyedSink, SinkOptions
from connector.config.transform_sql import begun_with, call_in, columns_in, first_column, made_of

if TYPE_CHECKING:
    from connector.config.pipeline import PipelineConfig

OFFSET = "_offset"
_BY_ORDER = ("first", "last", "min_by", "max_by")
"""The aggregates whose second argument is an order."""
_OF_SORTED = ("min", "max", "top_n")


def orders(sink: SinkOptions) -> Iterator[tuple[str, str]]:
    """Each option of a sink that orders records, and its SQL expression."""
    if isinstance(sink, KeyedSink):
        for option in ("sequence_by", "system_sequence_by"):
            if (sequence := getattr(sink, option, None)) is not None:
                yield sink.option(option), sequence
    for option, function, arguments in _calls(sink):
        if function in _BY_ORDER and arguments[1:]:
            yield option, arguments[1]


def sorted_values(sink: SinkOptions) -> Iterator[tuple[str, str]]:
    """Each aggregate of a sink that is the smallest or the largest of values, and their SQL expression."""
    for option, function, arguments in _calls(sink):
        if function in _OF_SORTED and arguments:
            yield option, arguments[0]


def _calls(sink: SinkOptions) -> Iterator[tuple[str, str, Sequence[str]]]:
    """The aggregates of a sink that are Lakelock's own: the option, the name and the arguments."""
    if isinstance(sink, DeltaAggregateSink):
        own = {name.lower() for name in sink.states}
        for name, text in sink.aggregates.items():
            function, arguments = call_in(text)
            if function not in own:
                yield sink.option("aggregates", name), function, arguments


def unfit_orders(config: PipelineConfig) -> Iterator[str]:
    """The orders of offsets that nothing checks across partitions, and those that a recreated topic begins anew."""
    yield from each_once(config, partial(_unchecked, config))
    if config.source.takes_recreated:
        yield from each_once(config, partial(_begun_anew, config))


def _unchecked(config: PipelineConfig, sink: SinkOptions) -> Iterator[str]:
    if not isinstance(sink, KeyedSink):
        return
    made = begun_with(config.transform, OFFSET) if config.transform is not None else set()
    both_times = isinstance(sink, DeltaHistorySink) and sink.bitemporal
    for option in ("sequence_by", "system_sequence_by"):
        column = first_column(getattr(sink, option, None) or "")
        if column in made:
            instead = "Order them by a time" if both_times else f"Order them by {OFFSET} itself, which a run checks"
            yield (
                f"{sink.option(option)}: orders records by {column}, which the transform makes of {OFFSET}: offsets of "
                f"two partitions can't be compared. {instead}, or by a value that grows across partitions"
            )
        elif column == OFFSET and both_times:
            yield (
                f"{sink.option(option)}: orders records by {OFFSET}, which is no time: offsets of two partitions can't "
                "be compared. Order them by a value that grows across partitions, such as _timestamp"
            )


def _begun_anew(config: PipelineConfig, sink: SinkOptions) -> Iterator[str]:
    made = made_of(config.transform, OFFSET) if config.transform is not None else set()
    for option, order in orders(sink):
        of_offset = {column for column in columns_in(order) if column.lower() in {OFFSET, *made}}
        for column in sorted(of_offset)[:1]:
            why = "" if column.lower() == OFFSET else f", which the transform makes of {OFFSET}"
            yield (
                f"{option}: orders records by {column}{why}, and source.on_recreated_topic takes in a topic whose "
                "offsets are others: its records would count as older than those of the old topic. Order them by a "
                "value that grows across both, such as _timestamp, or write the new topic to a new table"
            )
