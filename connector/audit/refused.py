"""Records that make no row by the pipeline file: those that can't be read, and those that the sink refuses."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from connector.audit.claim import Bounds
from connector.audit.counted import counted
from connector.audit.debezium import OP, passed_over
from connector.audit.records import (
    PLACE,
    PROBLEM,
    PROBLEMS,
    RAW,
    TOMBSTONE,
    Records,
    beyond,
    kind_of,
    truncates,
)
from connector.config import DeltaAggregateSink, DeltaHistorySink, KeyedSink, PipelineConfig
from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_YEAR_1, _YEAR_9999 = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The microseconds since 1970 of the first and the last time that a commit can hold."""


def refused_by_the_sink(every: Records, made: Records, config: PipelineConfig) -> tuple[Records, Records]:
    """Records and rows, with the problems that the sink has. If it refuses one row, the whole record makes none.

    ``every``: all records with their problems. ``made``: the rows of those without one. Raises ConfigurationError.
    """
    from pyspark.sql import functions as F

    refused = _refused(made, config)
    if refused is None:
        return every, made
    if not made.several:
        problem = F.coalesce(F.col(PROBLEM), F.expr(refused))
        every = replace(every, frame=every.frame.withColumn(PROBLEM, problem))
        return every, replace(made, frame=every.frame.where(f"{PROBLEM} IS NULL"))
    of_rows = made.frame.select(*PLACE, F.expr(refused).alias("_refused")).where("_refused IS NOT NULL")
    of_records = of_rows.groupBy(*PLACE).agg(
        F.max("_refused").alias("_refused"), F.collect_set("_refused").alias(PROBLEMS)
    )
    problem = F.coalesce(PROBLEM, "_refused")
    kept = [name for name in (*PLACE, TOMBSTONE, PROBLEM, RAW) if name in every.frame.columns]
    frame = every.frame.select(*kept).join(of_records, list(PLACE), "left")
    return (
        replace(every, frame=frame.withColumn(PROBLEM, problem)),
        replace(made, frame=made.frame.join(of_records, list(PLACE), "left_anti")),
    )


def no_row(sink: KeyedSink, columns: Collection[str]) -> str:
    """SQL: whether a record that deletes no older rows is no row either. A database's truncate never is, also if a step
    has given it a key."""
    no_key = " OR ".join(f"{identifier(column)} IS NULL" for column in sink.key)
    return f"{no_key} OR (NOT {TOMBSTONE} AND coalesce({OP} = 't', false))" if OP in columns else no_key


def _refused(made: Records, config: PipelineConfig) -> str | None:
    """SQL: why the sink can't take a row, null if it can. None: the sink takes every row."""
    sink, whens = config.sinks[0], []
    if isinstance(sink, KeyedSink):
        no_key = no_row(sink, made.columns.names)
        judged = f"NOT {passed_over(config, made.columns.names)} AND "
        whens.append(f"WHEN {judged}NOT {truncates(sink)} AND ({no_key}) THEN 'no_key'")
        if sink.sequence_by is not None:
            at = whole(f"({sink.sequence_by})", kind_of(made, sink, "sequence_by", sink.sequence_by))
            whens.append(f"WHEN {judged}NOT ({at}) THEN 'no_sequence'")
        if isinstance(sink, DeltaHistorySink) and sink.recorded_by is not None:
            at = whole(f"({sink.recorded_by})", kind_of(made, sink, "system_sequence_by", sink.recorded_by))
            whens.append(f"WHEN {judged}NOT ({at}) THEN 'no_sequence'")
    # An event time that was asked for later says nothing of the records before.
    timed = config.on_bad_record == "dead_letter" or isinstance(sink, DeltaAggregateSink)
    if config.clock is not None and timed:
        time = event_time(config, config.clock, made.columns.names)
        whens.append(
            f"WHEN {time} IS NULL OR unix_micros({time}) NOT BETWEEN {_YEAR_1} AND {_YEAR_9999} THEN 'no_time'"
        )
    return f"CASE {' '.join(whens)} END" if whens else None


def event_time(config: PipelineConfig, column: str, columns: Collection[str]) -> str:
    """SQL of a record's event time. One that changes no row but by deleting may lack the column: it has Kafka's time.

    ``columns``: of the rows.
    """
    sink, name = config.sinks[0], identifier(column)
    bare = [TOMBSTONE]
    if isinstance(sink, KeyedSink):
        bare += [truncates(sink), passed_over(config, columns), f"coalesce({sink.apply_as_deletes or 'false'}, false)"]
    return f"CASE WHEN {name} IS NULL AND ({' OR '.join(bare)}) THEN _timestamp ELSE {name} END"


def whole(value: str, kind: DataType) -> str:
    """SQL: whether a value, and all of what is in it, isn't null. ``value``: SQL of it."""
    from pyspark.sql.types import ArrayType, StructType

    there = f"{value} IS NOT NULL"
    if isinstance(kind, ArrayType):
        there += f" AND coalesce(forall({value}, each -> {whole('each', kind.elementType)}), false)"
    if isinstance(kind, StructType):
        parts = (whole(f"{value}.{identifier(part.name)}", part.dataType) for part in kind)
        there = " AND ".join([there, *parts])
    return there


def unreadable(every: DataFrame, cut: Sequence[Bounds]) -> tuple[list[dict[str, Any]], DataFrame | None]:
    """The records of the claim that have a problem: their counts, as ``counted`` gives them, and their coordinates.

    None: there are none.
    """
    from pyspark.sql import functions as F

    bad = every.where(f"{PROBLEM} IS NOT NULL AND NOT {beyond(cut, *PLACE)}")
    at = "struct(true AS claimed, _topic AS topic, _partition AS `partition`, _offset AS offset)"
    counts = counted(bad.select(F.expr(at).alias("at")), {"unreadable": "1L"}, {"unreadable": "at"})
    return counts, bad.select(*PLACE) if counts else None
