"""The option ``sensitive``: columns whose values nobody may see but who reads the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from connector.config.places import DeltaSink
from connector.config.route import each_once
from connector.config.sinks import DeltaAggregateSink, DeltaHistorySink, KeyedSink, S3ObjectsSink, SinkOptions
from connector.config.transform_sql import column_words, columns_in

if TYPE_CHECKING:
    from connector.config.pipeline import PipelineConfig

HIDDEN = "(sensitive)"
"""What stands for a value that isn't shown."""
_STATE = "_state"
"""The column with the events of a history, or with what an aggregate has added up."""
_OF_SEQUENCE = ("_sequence", "_columns", "__start_at", "__end_at")
"""Columns that hold values of ``sequence_by``."""
_OF_SYSTEM = ("_system_sequence", "__system_start_at", "__system_end_at")
"""Columns that hold values of ``system_sequence_by``."""


def is_sensitive(config: PipelineConfig, column: str) -> bool:
    """Whether a column of the rows has values of a sensitive column. A masked one doesn't, and a constant doesn't."""
    return any(_is_sensitive(flow, column) for flow in config.by_flow)


def _is_sensitive(config: PipelineConfig, column: str) -> bool:
    hidden, names = {name.lower() for name in config.sensitive}, {column.lower()}
    for step in reversed(config.steps):
        names -= _lower(step.mask) | _lower(step.add)
        if names & _lower(step.header) and "_headers" in hidden:
            return True
        names -= _lower(step.header)
        old = {new.lower(): name.lower() for name, new in (step.rename or {}).items()}
        names = {old.get(name, name) for name in names}
        # A column of this name may have been there beside the one with its fields.
        names |= {part for part in _lower(step.flatten) if any(name.startswith(f"{part}_") for name in names)}
    return bool(names & hidden)


def is_sensitive_in_table(config: PipelineConfig, sink: object, column: str) -> bool:
    """Whether a column of a sink's table has values of a sensitive column, also as parts of its own."""
    name, made = column.lower(), ""
    if name == _STATE:
        return bool(config.sensitive)
    if isinstance(sink, DeltaAggregateSink):
        made = next((text for each, text in sink.aggregates.items() if each.lower() == name), "")
    elif isinstance(sink, KeyedSink) and name in _OF_SEQUENCE:
        made = sink.sequence_by or ""
    elif isinstance(sink, DeltaHistorySink) and name in _OF_SYSTEM:
        made = sink.recorded_by or ""
    return any(is_sensitive(config, word) for word in {column, *column_words(made)})


def _lower(names: Iterable[str] | None) -> set[str]:
    return {name.lower() for name in names or ()}


def unfit_sensitive(config: PipelineConfig) -> Iterator[str]:
    """What of the other options would show values of sensitive columns."""
    if not config.sensitive:
        if config.dead_letters is not None and config.dead_letters.sensitive == "allow":
            yield "dead_letters.sensitive: is never used: no column is named in sensitive. Remove it"
        return
    named = ", ".join(config.sensitive)
    if config.dead_letters is not None and config.dead_letters.sensitive != "allow":
        yield (
            f"dead_letters: a dead letter holds its whole record, also the values of {named}. Write sensitive: allow "
            "into dead_letters if who can read the letters may see them, or on_bad_record: fail without dead_letters"
        )
    yield from each_once(config, partial(_shows, config))
    if config.clock is not None and is_sensitive(config, config.clock):
        yield f"sensitive: {config.clock} is the event time, which commits and status show. Choose another"
    if config.route is not None:
        words = _lower(columns_in(config.route.by))
        for column in config.sensitive:
            if column.lower() in words:
                yield f"sensitive: {column} is in route.by, and names tables: steps mask columns after it"


def _shows(config: PipelineConfig, sink: SinkOptions) -> Iterator[str]:
    for option, columns, why in _shown(sink):
        for column in columns:
            if is_sensitive(config, column):
                yield f"sensitive: {column} is in {sink.option(option)}, and {why}. Mask it in steps"


def _shown(sink: object) -> Iterator[tuple[str, Sequence[str], str]]:
    """Options with columns whose values are shown: the option, its columns, and where."""
    if isinstance(sink, KeyedSink):
        yield "key", sink.key, "errors and verify name rows by their key"
    if isinstance(sink, DeltaAggregateSink):
        yield (
            "group_by",
            sink.group_by,
            "verify names groups by it",
        )
    if isinstance(sink, DeltaSink | S3ObjectsSink):
        yield "partition_by", sink.partition_by, "its values become names of folders"
