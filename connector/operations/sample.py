"""Decodes a few records as a run would, and writes nothing: what `check` and `preview` show of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from connector.config import OTHER, PipelineConfig
from connector.config.sensitive import HIDDEN, is_sensitive
from connector.decode.flows import with_raw
from connector.decode.own_columns import OwnColumns
from connector.decode.records import PROBLEM, RAW, ROUTE, TOMBSTONE
from connector.engine.assembly import Assembly
from connector.engine.epoch import Reading, these
from connector.engine.output import Output
from connector.operations.checked import Fault, Sample
from connector.source.records import polled
from sinks.delta.table import COORDINATES
from sinks.offsets import OffsetRange
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Taken = TypeVar("Taken")
_Take: TypeAlias = Callable[[Output, "DataFrame", Sequence[OwnColumns]], Taken]
"""Gets the good rows for a sink, and the columns of their own that records of a route have."""

_ROWS = 3
_GROUPS = 20


def sampled(assembly: Assembly, records: Sequence[Any], ranges: Sequence[OffsetRange]) -> Sample:
    """Decode kafka-python's records of these ranges. The pipeline of ``assembly`` has to set bad records aside.

    Raises what the schema registry raises.
    """

    def take(_: Output, rows: DataFrame, own: Sequence[OwnColumns]) -> list[str]:
        shown = row_json(rows, own, assembly.config)
        return [row["shown"] for row in rows.selectExpr(f"{shown} AS shown").limit(_ROWS).collect()]

    sample, shown = judged(assembly, records, ranges, take)
    return replace(sample, rows=next(filter(None, shown.values()), []))


def judged(
    assembly: Assembly,
    records: Sequence[Any],
    ranges: Sequence[OffsetRange],
    take: _Take[Taken],
) -> tuple[Sample, dict[str, Taken]]:
    """The same without rows, and what ``take`` makes of the good rows, by the name of their sink."""
    if not records:
        return Sample(), {}
    frame = polled(assembly.spark, records)
    reading = replace(assembly.reading({output.label: output for output in assembly.outputs}), read=these(frame))
    faults, tables, taken = reading.until_learned(ranges, lambda: _judged(reading, frame, take))
    if assembly.routes is None:
        return Sample(Counter(record.topic for record in records), faults, (), tables), taken
    if assembly.routes.differ(tables):  # nobody knew which tables have to be asked for their rules
        faults, tables, taken = reading.until_learned(ranges, lambda: _judged(reading, frame, take))
    routes = assembly.routes
    assert assembly.config.route is not None
    decided = assembly.log.read().decided if assembly.log is not None else None
    there = {*tables, *(decided.prepared if decided is not None else ())}
    misnamed = assembly.config.route.misnamed(tables, there)
    passed_over = reading.until_learned(ranges, lambda: routes.passed_over.look(frame, there))
    warnings = [*assembly.routes.unmatched(frame, tables), *misnamed.values(), *passed_over]
    return Sample(Counter(record.topic for record in records), faults, (), tables, warnings), taken


def _judged(
    reading: Reading, records: DataFrame, take: _Take[Taken]
) -> tuple[list[Fault], dict[str, int], dict[str, Taken]]:
    faults: list[Fault] = []
    tables: dict[str, int] = {}
    taken: dict[str, Taken] = {}
    for number, (name, output) in enumerate(reading.outputs.items()):
        decoder = with_raw(output.decode.decode)
        decoded = decoder(records)
        if not number:  # decoding gives the same for all sinks
            faults += _grouped(decoder.explained(decoded.where(f"{PROBLEM} IS NOT NULL")))
        rows = reading.marked(name, output.decode.shape(decoded))
        if PROBLEM in rows.columns:
            faults += _grouped(rows.where(f"{PROBLEM} IS NOT NULL"))
            rows = rows.where(f"{PROBLEM} IS NULL")
        taken[name] = take(output, rows, decoder.own)
        if ROUTE in rows.columns:
            named = rows.groupBy(ROUTE).count().orderBy("count", ascending=False).limit(_GROUPS).collect()
            tables = {OTHER if row[ROUTE] is None else row[ROUTE]: row["count"] for row in named}
    return sorted(faults, key=lambda fault: -fault.count), tables, taken


def own_names(rows: DataFrame, own: Sequence[OwnColumns]) -> list[str]:
    """The columns of rows that are a table's, not Lakelock's on the way to it."""
    of_own = (name for each in own for name in (each.column, each.problem, each.deletes))
    others = {PROBLEM, RAW, TOMBSTONE, ROUTE, *of_own}
    return [name for name in rows.columns if name not in others]


def row_json(rows: DataFrame, own: Sequence[OwnColumns], config: PipelineConfig) -> str:
    """SQL of a row as JSON, with the columns that its table gets, without sensitive values."""
    hidden = literal(HIDDEN)
    shown = {name: hidden if is_sensitive(config, name) else identifier(name) for name in own_names(rows, own)}
    columns = ", ".join(f"{sql} AS {identifier(name)}" for name, sql in shown.items())
    of_own = {each.mine: hidden if config.sensitive else f"to_json({each.column})" for each in own}
    whens = " ".join(f"WHEN {mine} THEN {sql}" for mine, sql in of_own.items())
    row = f"to_json(struct({columns}))"
    return f"CASE {whens} ELSE {row} END" if whens else row


def _grouped(bad: DataFrame) -> list[Fault]:
    from pyspark.sql import functions as F

    first = f"min(struct({', '.join(COORDINATES[:3])})) AS first"
    grouped = bad.groupBy(f"{PROBLEM}.detail").agg(F.expr("count(1) AS number"), F.expr(first))
    return [Fault(row["detail"], row["number"], *row["first"]) for row in grouped.limit(_GROUPS).collect()]
