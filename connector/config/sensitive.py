"""The option ``sensitive``: columns whose values nobody may see but who reads the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from connector.config.places import DeltaSink
from connector.config.sinks import DeltaAggregateSink, KeyedSink, S3ObjectsSink
from connector.config.transform_sql import column_words

if TYPE_CHECKING:
    from connector.config.pipeline import PipelineConfig

HIDDEN = "(sensitive)"
"""What stands for a value that isn't shown."""


def is_sensitive(config: PipelineConfig, column: str) -> bool:
    """Whether a column of the rows has values of a sensitive column. A masked one doesn't, and a constant doesn't."""
    for step in reversed(config.steps):
        if column in (step.mask or ()) or column in (step.add or ()):
            return False
        if column in (step.header or ()):
            return "_headers" in config.sensitive
        old = {new: name for name, new in (step.rename or {}).items()}
        column = old.get(column, column)
        column = next((name for name in step.flatten or () if column.startswith(f"{name}_")), column)
    return column in config.sensitive


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
    for sink in config.sinks:
        for option, columns, why in _shown(sink):
            for column in columns:
                if is_sensitive(config, column):
                    yield f"sensitive: {column} is in {sink.option(option)}, and {why}. Mask it in steps"
    if config.route is not None:
        words = column_words(config.route.by)
        for column in config.sensitive:
            if column in words:
                yield f"sensitive: {column} is in route.by, and names tables"


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
