"""Steps that don't go together with the other options, or that would change what identifies and orders the rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from connector.config.route import each_once
from connector.config.sinks import KeyedSink, SinkOptions
from connector.config.steps import last_changes
from connector.config.transform_sql import column_words
from connector.config.unavailable import keeps_by

if TYPE_CHECKING:
    from connector.config.pipeline import PipelineConfig

_GONE = {"drop": "removes", "rename": "renames", "flatten": "replaces"}


def unfit_steps(config: PipelineConfig) -> Iterator[str]:
    """What of the ``steps`` doesn't fit."""
    if not config.steps:
        return
    if (keeps := keeps_by(config)) is not None:
        yield f"steps don't work with {keeps}: a row keeps values by the names of the records. Write a transform"
    if config.of_rows and any(step.header is not None for step in config.steps):
        yield "steps: header doesn't work with value: {format: rows}, whose rows your own query makes"
    yield from each_once(config, partial(_of_the_sink, config))


def _of_the_sink(config: PipelineConfig, sink: SinkOptions) -> Iterator[str]:
    if isinstance(sink, KeyedSink):
        yield from _of_the_key(config, sink)
        yield from _of_the_sequence(config, sink)


def _of_the_key(config: PipelineConfig, sink: KeyedSink) -> Iterator[str]:
    changed = last_changes(config.steps)
    for column in sink.key:
        index, kind = changed.get(column, (0, ""))
        if kind in _GONE:
            yield f"steps[{index}].{kind}: {_GONE[kind]} {column}, a column of {sink.option('key')}"
        elif kind == "add":
            yield (
                f"steps[{index}].add: {column} is in {sink.option('key')}, and would be the same in every record, so "
                "that they overwrite each other. Give the key another column"
            )


def _of_the_sequence(config: PipelineConfig, sink: KeyedSink) -> Iterator[str]:
    sequence = sink.sequence_by or ""
    words = column_words(sequence)
    why = {
        "mask": "a hash has another order than the values",
        "add": "it is the same in every record, and orders nothing",
        **{kind: f"this step {does} it" for kind, does in _GONE.items()},
    }
    for column, (index, kind) in last_changes(config.steps).items():
        at = f"steps[{index}].{kind}: {sink.option('sequence_by')} orders records by {column}"
        if column in words and kind in why:
            yield f"{at}, and {why[kind]}. Order them by another column"
        elif kind == "cast" and column == sequence.strip("` ") and config.steps[index].option[column] == "STRING":
            yield f"{at}, and as text 10 comes before 9. Leave out this cast, or order them by another column"
