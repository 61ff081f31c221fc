"""Decides which windows a record is in, and whether it is late for them.

What a record's own partition has shown before it decides whether it is late. Where the epochs are cut doesn't matter: a
record is late for a window that ended ``allowed_lateness`` or more before the largest event time of the partition's
earlier records. No partition is behind the watermark, so a record for a window that the watermark has closed is always
late. (A partition that was idle and left out may be behind the watermark. For its records, the watermark of the last
epoch decides.)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from connector.config import Window
from connector.decode.event_time import LATE, TIME
from sinks.event_time import FIRST, Clock, time_at
from sinks.offsets import OffsetRange
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

START, END = "window_start", "window_end"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def windowed(records: DataFrame, window: Window, clock: Clock, ranges: Sequence[OffsetRange] = ()) -> DataFrame:
    """Records with ``_time``, one row per window that each is in: ``window_start``, ``window_end`` and ``_late``.

    ``clock`` is the event time before the epoch. ``ranges``: those that the records are of; none: they may be of any
    partition, as in a retry of dead letters. For sessions a record's window is its own, from its time to ``gap``
    later.
    """
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as F

    # Rows of one record must not make each other late, so this is a range of offsets, not of rows.
    before = Over.partitionBy("_topic", "_partition").orderBy("_offset").rangeBetween(Over.unboundedPreceding, -1)
    known = [F.max(TIME).over(before), F.expr(so_far_sql(clock, ranges))]
    shown = records.withColumn("_shown", F.greatest(*known, F.expr(_timestamp(clock.watermark))))
    lateness = f"INTERVAL {_micros(window.allowed_lateness)} MICROSECONDS"
    if window.gap is not None:
        rows = shown.withColumns(
            {START: F.col(TIME), END: F.expr(f"{TIME} + INTERVAL {_micros(window.gap)} MICROSECONDS")}
        )
        # A closed session must not grow by a record that lies before its end.
        late = f"{TIME} + {lateness} <= _shown"
    else:
        size, slide = (_duration(length) for length in (window.size, window.slide or window.size))
        rows = shown.withColumn("_window", F.window(TIME, size, slide))
        rows = rows.withColumns({START: F.col("_window.start"), END: F.col("_window.end")}).drop("_window")
        late = f"{END} + {lateness} <= _shown"
    return rows.withColumn(LATE, F.expr(f"coalesce({late}, false)")).drop("_shown")


def closed_before(window: Window, clock: Clock) -> str:
    """SQL of a timestamp: windows that end at or before it are closed. NULL: none is closed."""
    # A time that no datetime can hold is before all windows.
    if clock.watermark is None or clock.watermark - time_at(FIRST) < window.allowed_lateness:
        return _timestamp(None)
    return _timestamp(clock.watermark - window.allowed_lateness)


def in_sessions(rows: DataFrame, groups: Sequence[str]) -> DataFrame:
    """The rows with the number of their session in ``_session``, counted within each group in the order of time.

    A row belongs to the current session unless that has ended before it. Sessions are half-open, as Spark's are.
    """
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as F

    order = Over.partitionBy(*(F.col(identifier(name)) for name in groups)).orderBy(START)
    until_here = order.rowsBetween(Over.unboundedPreceding, -1)
    begins = F.expr(f"CASE WHEN _before IS NULL OR {START} >= _before THEN 1 ELSE 0 END")
    return (
        rows.withColumn("_before", F.max(END).over(until_here))
        .withColumn("_begins", begins)
        .withColumn("_session", F.sum("_begins").over(order.rowsBetween(Over.unboundedPreceding, 0)))
        .drop("_before", "_begins")
    )


def so_far_sql(clock: Clock, ranges: Sequence[OffsetRange]) -> str:
    """SQL of the largest event time of the row's partition before the epoch. ``ranges``: as in ``windowed``."""
    # The clock knows every partition that was ever read, and each row searches the map.
    partitions = {range_.at for range_ in ranges} or clock.so_far.keys()
    pairs = ", ".join(
        f"{literal(f'{at.topic}-{at.partition}')}, {_timestamp(clock.so_far[at].high)}"
        for at in sorted(clock.so_far.keys() & partitions)
    )
    if not pairs:
        return _timestamp(None)
    return f"try_element_at(map({pairs}), concat(_topic, '-', _partition))"


def _timestamp(time: datetime | None) -> str:
    return "CAST(NULL AS TIMESTAMP)" if time is None else f"timestamp_micros({_micros(time - _EPOCH)})"


def _micros(length: timedelta) -> int:
    return length // timedelta(microseconds=1)


def _duration(length: timedelta | None) -> str:
    return f"{_micros(length or timedelta(0))} microseconds"
