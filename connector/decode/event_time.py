"""The event time of an epoch's records, found before its commit, so that it can be in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from connector.decode.records import told
from sinks.contract import Epoch
from sinks.event_time import Seen
from sinks.offsets import TopicPartition
from sinks.spark.cached import kept
from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIME = "_time"
"""The column with a record's event time, never null."""
LATE = "_late"
"""Boolean, in windowed rows only: the record came after its window was closed."""


@dataclass(frozen=True)
class Timing:
    """Which column has the event time, and when a partition is set aside."""

    column: str
    idle_after: timedelta


def timed(records: DataFrame, column: str) -> DataFrame:
    """With ``_time``. A null there fails the query: when the record happened can't be told. A tombstone has no columns,
    and happened when Kafka says."""
    from pyspark.sql import functions as F

    name = identifier(column)
    null_time = raise_sql("null_time", column=literal(column), topic="_topic", partition="_partition", offset="_offset")
    tombstone = f"WHEN {name} IS NULL AND _tombstone THEN _timestamp " if "_tombstone" in records.columns else ""
    return records.withColumn(TIME, F.expr(f"CASE {tombstone}WHEN {name} IS NULL THEN {null_time} ELSE {name} END"))


def problem_with_time(records: DataFrame, column: str) -> str:
    """SQL of ``_problem``: when the record happened can't be told; null where it can."""
    tombstone = "AND NOT _tombstone " if "_tombstone" in records.columns else ""
    no_time = told("no_time", f"has no event time, its {column} is null")
    return f"CASE WHEN {identifier(column)} IS NULL {tombstone}THEN {no_time} END"


@contextmanager
def clocked(rows: DataFrame, epoch: Epoch, idle_after: timedelta) -> Iterator[tuple[DataFrame, Epoch]]:
    """The rows, kept for the query that writes them, and the epoch with its clock. One small Spark job of its own."""
    with kept(rows) as once:
        yield once, _stamped(once, epoch, idle_after)


def _stamped(rows: DataFrame, epoch: Epoch, idle_after: timedelta) -> Epoch:
    from pyspark.sql import functions as F

    late = f"count_if({LATE})" if LATE in rows.columns else "0L"
    found = rows.groupBy("_topic", "_partition").agg(
        F.expr(f"unix_micros(min({TIME}))").alias("low"),
        F.expr(f"unix_micros(max({TIME}))").alias("high"),
        F.expr("unix_micros(max(_timestamp))").alias("newest"),
        F.expr(late).alias("late"),
    )
    partitions = found.collect()
    seen = {
        TopicPartition(row["_topic"], row["_partition"]): Seen(*(_time(row[name]) for name in Seen._fields))
        for row in partitions
    }
    clock = epoch.clock.advanced(
        seen, backlog=epoch.backlog, idle_after=idle_after, late=sum(row["late"] for row in partitions)
    )
    return replace(epoch, clock=clock)


def _time(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=micros)
