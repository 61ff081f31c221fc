"""Finds the event time of an epoch's records before its commit, so that the commit can contain it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from connector.decode.records import TOMBSTONE, told
from sinks.contract import Epoch
from sinks.event_time import FIRST, LAST, Seen, time_at
from sinks.offsets import TopicPartition
from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIME = "lakelock time"
"""The column with a record's event time. Never null. Columns on the way have names that no column of the user's has."""
LATE = "lakelock late"
"""A boolean column of windowed rows: whether the record arrived after its window was closed."""
IN_RANGE = "in the years 1 to 9999 (UTC)"
_OUT_OF_RANGE = f"{{0}} NOT BETWEEN timestamp_micros({FIRST}) AND timestamp_micros({LAST})"
"""Of SQL of a time. Spark has times that no commit can hold, as of a producer whose milliseconds are microseconds."""


@dataclass(frozen=True)
class Timing:
    """The column with the event time, and the time after which a partition is idle."""

    column: str
    idle_after: timedelta


def timed(records: DataFrame, column: str, deletes: str = "false") -> DataFrame:
    """``records`` with ``TIME``, the event time. One that is null or out of range fails the query.

    ``deletes``: as in ``Derivation``.
    """
    from pyspark.sql import functions as F

    time = time_of(records.columns, column, deletes)
    at = {"column": literal(column), "topic": "_topic", "partition": "_partition", "offset": "_offset"}
    null, far = raise_sql("null_time", **at), raise_sql("null_time", **at, far="'true'")
    return records.withColumn(
        TIME,
        F.expr(f"CASE WHEN {time} IS NULL THEN {null} WHEN {_OUT_OF_RANGE.format(time)} THEN {far} ELSE {time} END"),
    )


def problem_with_time(records: DataFrame, column: str, deletes: str = "false") -> str:
    """SQL of ``_problem``: that the record has no event time. Null for a good record. ``deletes``: as in ``timed``."""
    time = time_of(records.columns, column, deletes)
    null = told("no_time", f"has no event time, its {column} is null")
    far = told("no_time", f"has an event time out of range, its {column} isn't {IN_RANGE}")
    return f"CASE WHEN {time} IS NULL THEN {null} WHEN {_OUT_OF_RANGE.format(time)} THEN {far} END"


def time_of(columns: Collection[str], column: str, deletes: str) -> str:
    """SQL of the event time. What deletes a row may have its key alone: then Kafka's timestamp is its event time."""
    name, without = identifier(column), [deletes] if deletes != "false" else []
    without += [TOMBSTONE] if TOMBSTONE in columns else []
    return f"CASE WHEN {name} IS NULL AND ({' OR '.join(without)}) THEN _timestamp ELSE {name} END" if without else name


def clocked(rows: DataFrame, others: Sequence[DataFrame], epoch: Epoch, timing: Timing) -> Epoch:
    """The epoch with its clock. Runs one small Spark job.

    ``others``: the rows of other sinks, if they may be of other records. Their times count as those of ``rows`` do,
    unless these are in windows: what is late for a window depends on the times of its own sink alone.
    """
    from pyspark.sql import functions as F

    windows = LATE in rows.columns
    every = _times(rows, "true", identifier(LATE) if windows else "false")
    for other in others:
        every = every.unionAll(_times(other, "false" if windows else "true", "false"))
    found = every.groupBy("_topic", "_partition", "mine").agg(
        F.expr("unix_micros(min(at))").alias("low"),
        F.expr("unix_micros(max(at))").alias("high"),
        F.expr("unix_micros(max(_timestamp))").alias("newest"),
        F.expr("count_if(late)").alias("late"),
    )
    partitions = found.collect()
    seen = {
        TopicPartition(row["_topic"], row["_partition"]): Seen(*(time_at(row[name]) for name in Seen._fields))
        for row in partitions
        if row["mine"]
    }
    apart = max((time_at(row["high"]) for row in partitions if not row["mine"]), default=None)
    read = epoch.expected.partitions_read if epoch.expected is not None else frozenset()
    clock = epoch.clock.of_column(timing.column, read).advanced(
        seen, backlog=epoch.backlog, idle_after=timing.idle_after, late=sum(row["late"] for row in partitions)
    )
    return replace(epoch, clock=clock.beside(apart) if apart is not None else clock)


def _times(rows: DataFrame, mine: str, late: str) -> DataFrame:
    return rows.selectExpr(
        "_topic", "_partition", "_timestamp", f"{identifier(TIME)} AS at", f"{mine} AS mine", f"{late} AS late"
    )
