"""Finds the event time of an epoch's records before its commit, so that the commit can contain it."""

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
"""The column with a record's event time. Never null."""
LATE = "_late"
"""A boolean column of windowed rows: whether the record arrived after its window was closed."""


@dataclass(frozen=True)
class Timing:
    """The column with the event time, and the time after which a partition is idle."""

    column: str
    idle_after: timedelta


def timed(records: DataFrame, column: str) -> DataFrame:
    """``records`` with ``_time``, the event time. A null event time fails the query.

    A tombstone has no columns, so Kafka's timestamp is its event time.
    """
    from pyspark.sql import functions as F

    name = identifier(column)
    null_time = raise_sql("null_time", column=literal(column), topic="_topic", partition="_partition", offset="_offset")
    tombstone = f"WHEN {name} IS NULL AND _tombstone THEN _timestamp " if "_tombstone" in records.columns else ""
    return records.withColumn(TIME, F.expr(f"CASE {tombstone}WHEN {name} IS NULL THEN {null_time} ELSE {name} END"))


def problem_with_time(records: DataFrame, column: str) -> str:
    """SQL of ``_problem``: that the record has no event time. Null for a good record."""
    tombstone = "AND NOT _tombstone " if "_tombstone" in records.columns else ""
    no_time = told("no_time", f"has no event time, its {column} is null")
    return f"CASE WHEN {identifier(column)} IS NULL {tombstone}THEN {no_time} END"


@contextmanager
def clocked(rows: DataFrame, epoch: Epoch, idle_after: timedelta) -> Iterator[tuple[DataFrame, Epoch]]:
    """The rows, cached for the query that writes them, and the epoch with its clock. Runs one small Spark job."""
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
