"""The one query that compares records of Kafka with rows of the table, on the executors, counted per partition.

Every row of the table counts as exactly one of found, duplicated, stale, resurrected, altered, unexpected, ahead, held
before and unchecked. Every expected row counts as exactly one of found, lost, stale and altered, or as resurrected if a
deleted row stays. Only these counts, and the first coordinates of each, leave the executors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from connector.audit.aggregate import aggregated
from connector.audit.appended import appended
from connector.audit.claim import Bounds, unchecked
from connector.audit.debezium import passes_over_tombstones, with_its_own_rules
from connector.audit.decode import NAMED, decoded, decoded_for, transformed
from connector.audit.formats import Forms
from connector.audit.history import versions
from connector.audit.letters import told_apart
from connector.audit.records import PROBLEM, TOMBSTONE, Records, table_columns
from connector.audit.routes import of_table
from connector.audit.rows import NOTHING, Earlier
from connector.audit.upserted import upserted
from connector.config import (
    OWN_COLUMNS,
    DeltaAggregateSink,
    DeltaHistorySink,
    DeltaUpsertSink,
    KeyedSink,
    PipelineConfig,
)
from sinks.errors import ConfigurationError
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def compare(
    config: PipelineConfig,
    *,
    records: DataFrame,
    rows: DataFrame,
    forms: Forms,
    cut: Sequence[Bounds],
    committed_later: bool,
    leave_out: Sequence[str] = (),
    letters: DataFrame | None = None,
    late: DataFrame | None = None,
    earlier: Earlier = NOTHING,
) -> tuple[list[dict[str, Any]], list[str]]:
    """The counts, and notes.

    One entry per kind and topic-partition: kind, topic, partition, count, first {topic, partition, offset, key}.

    ``cut`` is the claim as Kafka can show it. ``committed_later``: rows beyond the claim are no fault. ``leave_out``:
    topics whose rows are another pipeline's. ``letters``: all dead letters, if bad records are set aside. ``late``: the
    letters of rows that arrived after their window was closed. ``earlier``: what the table held before
    the pipeline's first epoch; groups are compared without it. Topic and partition are None for groups, and for rows
    and letters that lie outside the claim.

    Raises ConfigurationError and SchemaMismatch.
    """
    key = config.sinks[0].key if isinstance(config.sinks[0], KeyedSink) else ()
    every, letters = _records(config, records, rows, forms, key, letters)
    # Without dead letters, the other kinds of sink ignore records that name no row.
    strict = letters is None and (config.transform is None or config.sinks[0].type == "delta_append")
    made = transformed(every, config.transform, strict=strict)
    config = with_its_own_rules(config, made.columns.names)
    sink = config.sinks[0]
    if isinstance(sink, KeyedSink):
        for column in sink.key:
            if column not in made.columns.names:
                raise ConfigurationError(f"{sink.option('key')}: {column!r} isn't a column of {config.columns_option}.")
    notes: list[str] = []
    if config.transform is None and not isinstance(sink, DeltaAggregateSink):
        made, rows, earlier, notes = _in_both(sink, made, rows, earlier, forms)
    judged: list[dict[str, Any]] = []
    if letters is not None:
        made, judged = told_apart(every, made, letters, config, cut)
    if passes_over_tombstones(config, made.columns.names):
        made = replace(made, frame=made.frame.where(f"NOT {TOMBSTONE}"))
    whole = not unchecked(cut) and not any(part.compacted for part in cut)
    if isinstance(sink, DeltaAggregateSink):
        of_rows, notes = aggregated(made, rows, cut, sink, whole=whole, committed_later=committed_later, late=late)
    elif isinstance(sink, DeltaHistorySink):
        of_rows = versions(
            made, rows, cut, sink, whole=whole, committed_later=committed_later, leave_out=leave_out, earlier=earlier
        )
    elif isinstance(sink, DeltaUpsertSink):
        of_rows = upserted(
            made, rows, cut, sink, whole=whole, committed_later=committed_later, leave_out=leave_out, earlier=earlier
        )
    else:
        of_rows = appended(made, rows, cut, committed_later=committed_later, leave_out=leave_out, earlier=earlier)
    return [*judged, *of_rows], notes


def _in_both(
    sink: object, made: Records, rows: DataFrame, earlier: Earlier, forms: Forms
) -> tuple[Records, DataFrame, Earlier, list[str]]:
    """The columns that records and table both have, and notes on the others.

    Of Avro: a table lacks fields that its schema has got since the last run. A field that older records lack has its
    default in their rows, or null in rows of before the field was there: both are alike here.
    """
    from pyspark.sql.types import StructType

    notes: list[str] = []
    there = {name.lower() for name in rows.columns}
    if forms.value.avro is not None:
        wanted = table_columns(made.columns, sink) if isinstance(sink, KeyedSink) else made.columns
        absent = [part.name for part in wanted if part.name.lower() not in there]
        if absent:
            notes.append(f"The table has no column for these fields, which aren't compared: {', '.join(absent)}.")
        fill = {name: text for name, text in forms.value.avro.defaults.items() if name.lower() in there}
        if fill:
            notes.append(f"A null and the default of its field count as the same in: {', '.join(fill)}.")
            rows = _filled(rows, fill)
            earlier = replace(earlier, rows=_filled(earlier.rows, fill) if earlier.rows is not None else None)
        columns = StructType([part for part in made.columns if part.name not in absent])
        made = replace(made, frame=_filled(made.frame, fill), columns=columns)
    known = {*(name.lower() for name in made.columns.names), *OWN_COLUMNS}
    others = [name for name in rows.columns if name.lower() not in known]
    if others:
        notes.append(f"The records say nothing of these columns of the table: {', '.join(others)}.")
    return made, rows, earlier, notes


def _filled(frame: DataFrame, fill: Mapping[str, str]) -> DataFrame:
    """``fill``: a column -> a JSON object that has as ``v`` what stands there instead of null."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    types = {part.name.lower(): part.dataType for part in frame.schema}
    return frame.withColumns(
        {
            name: F.coalesce(F.col(identifier(name)), F.from_json(F.lit(text), StructType().add("v", kind))["v"])
            for name, text in fill.items()
            if (kind := types[name.lower()])
        }
    )


def _records(
    config: PipelineConfig,
    records: DataFrame,
    rows: DataFrame,
    forms: Forms,
    key: Sequence[str],
    letters: DataFrame | None,
) -> tuple[Records, DataFrame | None]:
    """The decoded records that concern the table, and the letters that do."""
    from pyspark.sql import functions as F

    ruled, table = letters is not None, config.route.value if config.route is not None else None
    if table is None or forms.route is None:
        return decoded(records, forms, key, ruled=ruled), letters
    if forms.route.value is None:
        every, names = decoded(records, forms, forms.route.keys, ruled=ruled), forms.route.names(table)
    else:
        every, names = decoded_for(table, records, forms, key, ruled=ruled), f"{NAMED} <=> {literal(table)}"
    frame = every.frame
    if not key:  # tables beside it take tombstones
        refused = f"IF({TOMBSTONE} AND ({names}), 'tombstone', NULL)"
        frame = frame.withColumn(PROBLEM, F.expr(f"coalesce({PROBLEM}, {refused})"))
    mine, letters = of_table(frame, rows, letters, names)
    return replace(every, frame=mine.drop(NAMED)), letters
