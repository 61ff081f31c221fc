"""Values that a database didn't send, and that a row keeps: ``unavailable: keep``, or a column of the transform."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from connector.config.formats import DebeziumFormat
from connector.config.route import sinks_of
from connector.config.sinks import DeltaHistorySink, DeltaUpsertSink, KeyedSink

if TYPE_CHECKING:
    from connector.config.pipeline import PipelineConfig

UNAVAILABLE = "_unavailable"
"""Column of decoded records, ARRAY<STRING>: the names of the columns that the database didn't send."""


def keeps_by(config: PipelineConfig) -> str | None:
    """The option by which rows keep what an update didn't send. None: they don't.

    No record has the column by itself, so a transform that makes it has to name it.
    """
    if isinstance(config.value, DebeziumFormat) and config.value.unavailable == "keep":
        return "value.unavailable: keep"
    if config.transform is not None and re.search(rf"\b{UNAVAILABLE}\b", config.transform, re.I):
        return f"transform: the column {UNAVAILABLE}"
    return None


def unkept(config: PipelineConfig) -> Iterator[str]:
    """What doesn't go together with values that rows keep."""
    option = keeps_by(config)
    if option is None:
        return
    if config.on_new_column == "add":
        yield f"{option} doesn't work with on_new_column: add; list the columns of the table, and write fail or ignore"
    told = set()
    for sink in sinks_of(config):
        if not isinstance(sink, DeltaUpsertSink | DeltaHistorySink) and option.startswith("value"):
            told.add(
                f"{option} needs a sink with a row for each key, whose value it keeps: delta_upsert or delta_history. "
                f"{sink.type} has none. Write unavailable: bad_record or 'null', or write a pipeline file for each sink"
            )
        if isinstance(sink, DeltaHistorySink) and sink.bitemporal:
            told.add(
                f"{option} doesn't work with stored_as_scd_type: bitemporal, where each change has all its values. "
                "Have the database send whole rows, or write stored_as_scd_type: 2"
            )
        if isinstance(sink, DeltaUpsertSink) and sink.deletes == "soft":
            told.add(f"{option} needs deletes: hard: a soft-deleted row doesn't keep its earlier versions")
        if isinstance(sink, KeyedSink) and UNAVAILABLE in (sink.column_list or ()):
            told.add(f"column_list: {UNAVAILABLE} says what a row keeps, and isn't stored. Remove it from the list")
    yield from sorted(told)
