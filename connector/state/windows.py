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
from sinks.delta.session_windows import SESSION
from sinks.event_time import FIRST, Clock, time_at
from sinks.offsets import OffsetRange
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

START, END = "window_start", "window_end"
_LATEST, _WINDOW, _BEFORE, _BEGINS = (f"lakelock {name}" for name in ("latest", "window", "before", "begins"))
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def windowed(records: DataFrame, window: Window, clock: Clock, ranges: Sequence[OffsetRange] = ()) -> DataFrame:
    """Records with ``TIME``, one row per window that each is in: ``window_start``, ``window_end`` and ``LATE``.

    ``clock`` is the event time before the epoch. ``ranges``: those that the records are of; none: they may be of any
    partition, as in a retry of dead letters. For sessions a record's window is its own, from its time to ``gap``
    later.
    """
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as F

    # Rows of one record must not make each other late, so this is a range of offsets, not of rows.
    before = Over.partitionBy("_topic", "_partition").orderBy("_offset").rangeBetween(Over.unboundedPreceding, -1)
    known = [F.max(TIME).over(before), F.expr(so_far_sql(clock, ranges))]
    shown = records.withColumn(_LATEST, F.greatest(*known, F.expr(_timestamp(clock.watermark))))
    lateness = f"INTERVAL {_micros(window.allowed_lateness)} MICROSECONDS"
    if window.gap is not None:
        rows = shown.withColumns(
            {START: F.col(TIME), END: F.expr(f"{identifier(TIME)} + INTERVAL {_micros(window.gap)} MICROSECONDS")}
        )
        # A closed session must not grow by a record that lies before its end.
        late = f"{identifier(TIME)} + {lateness} <= {identifier(_LATEST)}"
    else:
        size, slide = (_duration(length) for length in (window.size, window.slide or window.size))
        rows, of = shown.withColumn(_WINDOW, F.window(TIME, size, slide)), F.col(identifier(_WINDOW))
        rows = rows.withColumns({START: of.getField("start"), END: of.getField("end")}).drop(_WINDOW)
        late = f"{END} + {lateness} <= {identifier(_LATEST)}"
    return rows.withColumn(LATE, F.expr(f"coalesce({late}, false)")).drop(_LATEST)


def closed_before(window: Window, clock: Clock) -> str:
    """SQL of a timestamp: windows that end at or before it are closed. NULL: none is closed."""
    # A time that no datetime can hold is before all windows.
    if clock.watermark is None or clock.watermark - time_at(FIRST) < window.allowed_lateness:
        return _timestamp(None)
    return _timestamp(clock.watermark - window.allowed_lateness)


def in_sessions(rows: DataFrame, groups: Sequence[str]) -> DataFrame:
    """The rows with the number of their session in ``SESSION``, counted within each group in the order of time.

    A row belongs to the current session unless that has ended before it. Sessions are half-open, as Spark's are.
    """
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as F

    order = Over.partitionBy(*(F.col(identifier(name)) for name in groups)).orderBy(START)
    until_here = order.rowsBetween(Over.unboundedPreceding, -1)
    before = identifier(_BEFORE)
    begins = F.expr(f"CASE WHEN {before} IS NULL OR {START} >= {before} THEN 1 ELSE 0 END")
    return (
        rows.withColumn(_BEFORE, F.max(END).over(until_here))
        .withColumn(_BEGINS, begins)
        .withColumn(SESSION, F.sum(_BEGINS).over(order.rowsBetween(Over.unboundedPreceding, 0)))
        .drop(_BEFORE, _BEGINS)
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
