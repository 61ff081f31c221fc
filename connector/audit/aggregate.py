"""One row per group, or group and window: the aggregates of all its records, by Spark's own functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from connector.audit.claim import Bounds
from connector.audit.counted import one_each
from connector.audit.functions import Recomputed, recomputed
from connector.audit.in_both import in_the_order_of
from connector.audit.late import apart_from_late, judged_letters
from connector.audit.records import PLACE, PROBLEM, RAW, Records, beyond
from connector.audit.rows import check_columns
from connector.config import COORDINATES, DeltaAggregateSink, Window
from sinks.plurals import plural
from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PLACE = ("topic", "partition", "offset")
_MICROSECOND = timedelta(microseconds=1)
_WINDOWS = {"window_start": "timestamp", "window_end": "timestamp", "window_closed": "boolean"}
_CLOSED = (
    "A window that is closed before any record had reached its end counts as altered. allowed_lateness isn't counted, "
    "as it may have been smaller then. One that is closed too late doesn't show."
)
_NOT_CLOSED = "Column window_closed isn't compared: the records of other tables close windows of this one, too."


def aggregated(
    records: Records,
    rows: DataFrame,
    cut: Sequence[Bounds],
    sink: DeltaAggregateSink,
    *,
    whole: bool,
    committed_later: bool,
    late: DataFrame | None,
    every: Records,
    alone: bool,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Counts, and notes on what isn't compared. Groups have no coordinates.

    A group is the sum of all its records: unless Kafka shows the ``whole`` claim, and each of its records can be read,
    every group is unchecked. ``late``: the dead letters, whose records aren't in their windows; ``every``:
    all records, maybe with their digests. ``alone``: whether no other table's records have moved the
    watermark.
    """
    from pyspark.sql import functions as F

    parts, notes = _parts(sink, records)
    in_table = _table_groups(records, rows, sink, parts)
    names = [*sink.group_by, *(["window_start"] if sink.window else [])]
    keys = [*(f"k{index}" for index in range(len(sink.group_by))), *(["window_start"] if sink.window else [])]
    if not whole:
        return one_each(_unchecked(in_table, keys), names, coordinates=False), notes

    events = _events(records, sink, parts, cut)
    of_letters: list[dict[str, Any]] = []
    if late is not None and sink.window is not None:
        of_letters, told = _of_letters(late, events, every, cut, sink, alone=alone)
        notes.append(told)
    sessions = sink.window is not None and sink.window.gap is not None and records.several

    def made(of: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        """The groups, and what nobody knows whether it came late."""
        if late is None or not sessions:
            return _expected_groups(_windowed(of, sink, late), sink, parts, keys), None
        in_time, doubtful = apart_from_late(of, late, alone=alone)
        return _expected_groups(_windowed(in_time, sink, None), sink, parts, keys), doubtful

    if sink.window is not None:
        # No watermark is above the largest event time, whatever the epochs and the idle partitions were.
        in_table = in_table.crossJoin(F.broadcast(events.agg(F.expr("max(unix_micros(e_time)) AS latest"))))
        notes.append(_CLOSED if alone else _NOT_CLOSED)
    expected, doubtful = made(events.where("NOT e_later"))
    right = _right(sink, parts, alone=alone)
    same = F.expr(" AND ".join(f"e_{name} <=> r_{name}" for name in keys))
    joined = expected.join(in_table, same, "full").withColumns(
        {f"g{index}": F.expr(f"IF(e_there, e_{name}, r_{name})") for index, name in enumerate(keys)}
    )
    width = len(sink.group_by)
    if committed_later:
        ahead = made(events)[0].join(in_table, same).where(right)
        either = _with_later(joined, events, ahead, keys, width)
    else:
        either = joined.withColumns({"later": F.lit(False), "as_later": F.lit(False)})
    either = _judged(_with_doubt(either, doubtful, sink, width), right)
    return [*of_letters, *one_each(either, names, coordinates=False)], notes


def _of_letters(
    late: DataFrame, events: DataFrame, every: Records, cut: Sequence[Bounds], sink: DeltaAggregateSink, *, alone: bool
) -> tuple[list[dict[str, Any]], str]:
    """The counts of the dead letters of late records, and how many there are."""
    from pyspark.sql import functions as F

    topics = sorted({part.at.topic for part in cut})
    claimed = late.where(F.col("_topic").isin(*topics) & ~F.expr(beyond(cut, "_topic", "_partition", "_offset")))
    number = claimed.count()
    one = "dead letter isn't expected in its window: this record"
    many = "dead letters aren't expected in their windows: these records"
    told = f"{plural(number, one, many)} came late."
    if not number or sink.window is None:
        return [], told
    windows = partial(_windowed, sink=sink, late=None)
    raw = every.frame.select(*PLACE, RAW) if RAW in every.frame.columns else None
    return judged_letters(claimed, events.where("NOT e_later"), windows, raw, cut, sink.window, alone=alone), told


def _table_groups(
    records: Records, rows: DataFrame, sink: DeltaAggregateSink, parts: Mapping[str, Recomputed]
) -> DataFrame:
    """r_*: the groups and aggregates that the table holds. Raises SchemaMismatch if it lacks one of the columns."""
    from pyspark.sql import functions as F

    types = {field.name: field.dataType.simpleString() for field in records.columns}
    windows = _WINDOWS if sink.window else {}
    wanted = {**{name: types.get(name) for name in sink.group_by}, **windows, **dict.fromkeys(parts)}
    rows = in_the_order_of(records.columns, rows, sink.group_by)
    check_columns(rows, wanted)
    return rows.select(
        *(F.col(identifier(name)).alias(f"r_k{index}") for index, name in enumerate(sink.group_by)),
        *(F.col(name).alias(f"r_{name}") for name in windows),
        *(F.col(identifier(name)).alias(f"r_{part.name}") for name, part in parts.items()),
        F.lit(True).alias("r_there"),
    )


def _expected_groups(
    events: DataFrame, sink: DeltaAggregateSink, parts: Mapping[str, Recomputed], keys: Sequence[str]
) -> DataFrame:
    """e_*: the groups that the records make, recomputed with Spark's own functions."""
    from pyspark.sql import functions as F

    return events.groupBy(*(f"e_{name}" for name in keys)).agg(
        *([F.max("e_window_end").alias("e_window_end")] if sink.window else []),
        *(column.alias(name) for part in parts.values() for name, column in part.aggregates.items()),
        F.lit(True).alias("e_there"),
    )


def _unchecked(in_table: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Every group of the table, none of which can be compared."""
    from pyspark.sql import functions as F

    return in_table.withColumns(
        {
            "kind": F.lit("unchecked"),
            "wanted": F.lit(False),
            "sure": F.lit(False),
            **{f"g{index}": F.col(f"r_{name}") for index, name in enumerate(keys)},
        }
    )


def rightly_closed() -> str:
    """SQL: whether the records may have closed a window that the table calls closed.

    ``allowed_lateness`` may be raised at any time, and a window that was closed stays so. Nothing remembers how small
    the option has been.
    """
    may_be = "coalesce(unix_micros(r_window_end) <= latest, false)"
    return f"coalesce(NOT r_window_closed OR (r_window_closed AND {may_be}), false)"


def _right(sink: DeltaAggregateSink, parts: Mapping[str, Recomputed], *, alone: bool) -> str:
    """SQL: whether a group of the table is what the records make."""
    same = ["e_window_end <=> r_window_end"] if sink.window else []
    same += [rightly_closed()] if sink.window and alone else []
    return " AND ".join(["e_there", *same, *(part.equal for part in parts.values())])


def _judged(either: DataFrame, right: str) -> DataFrame:
    """``kind``: what each group counts as; ``wanted``: whether it is expected; ``sure``: whether no later record
    can have changed it."""
    from pyspark.sql import functions as F

    kind = (
        f"CASE WHEN r_there IS NULL THEN NULL WHEN {right} THEN 'right' WHEN as_later THEN 'ahead' "
        "WHEN later OR in_doubt THEN 'doubtful' WHEN e_there THEN 'altered' ELSE 'unexpected' END"
    )
    return either.withColumns(
        {"kind": F.expr(kind), "wanted": F.expr("e_there IS NOT NULL"), "sure": F.expr("NOT later AND NOT in_doubt")}
    )


def _with_later(joined: DataFrame, events: DataFrame, ahead: DataFrame, keys: Sequence[str], width: int) -> DataFrame:
    """``later``: whether there are records of the group after the claim, which the table may hold already; and
    ``as_later``: whether it is among those that are right with all of them, which ``ahead`` has."""
    from pyspark.sql import functions as F

    later = events.where("e_later").select(
        *(F.col(f"e_k{index}").alias(f"later_k{index}") for index in range(width)), F.lit(True).alias("found_later")
    )
    same = F.expr(" AND ".join(["true", *(f"later_k{index} <=> g{index}" for index in range(width))]))
    joined = joined.join(later.distinct(), same, "left").withColumn("later", F.expr("found_later IS NOT NULL"))
    with_all = ahead.select(
        *(F.col(f"r_{name}").alias(f"ahead_{name}") for name in keys), F.lit(True).alias("found_ahead")
    )
    same = F.expr(" AND ".join(["true", *(f"ahead_{name} <=> g{index}" for index, name in enumerate(keys))]))
    found = joined.join(with_all.distinct(), same, "left")
    return found.withColumn("as_later", F.expr("later AND found_ahead IS NOT NULL"))


def _with_doubt(either: DataFrame, doubtful: DataFrame | None, sink: DeltaAggregateSink, width: int) -> DataFrame:
    """``in_doubt``: whether one of the ``doubtful`` rows may be in the session, or may have joined it to others."""
    from pyspark.sql import functions as F

    if doubtful is None or sink.window is None or sink.window.gap is None:
        return either.withColumn("in_doubt", F.lit(False))
    keys = [f"e_k{index}" for index in range(width)]
    times = doubtful.groupBy(*keys).agg(F.collect_set(F.expr("unix_micros(e_time)")).alias("doubts"))
    times = times.select(*(F.col(key).alias(f"d{key}") for key in keys), "doubts")
    same = F.expr(" AND ".join(["true", *(f"de_k{index} <=> g{index}" for index in range(width))]))
    starts, ends = (f"unix_micros(coalesce(e_{name}, r_{name}))" for name in ("window_start", "window_end"))
    near = f"{starts} < time + {sink.window.gap // _MICROSECOND} AND {ends} > time"
    return either.join(times, same, "left").withColumn(
        "in_doubt", F.expr(f"coalesce(exists(doubts, time -> {near}), false)")
    )


def _parts(sink: DeltaAggregateSink, records: Records) -> tuple[dict[str, Recomputed], list[str]]:
    """The aggregates that can be computed a second time, by column, and notes on those that can't."""
    own = {name.lower() for name in sink.states}
    parts: dict[str, Recomputed] = {}
    notes = []
    for index, (name, text) in enumerate(sink.aggregates.items()):
        option = sink.option("aggregates", name)
        part = recomputed(text, f"a{index}", option=option, own=own, records=records.frame, several=records.several)
        if part is None:
            notes.append(f"Column {name} isn't compared: {text} is computed by code of your own (states).")
        else:
            parts[name] = part
    return parts, notes


def _events(
    records: Records, sink: DeltaAggregateSink, parts: Mapping[str, Recomputed], cut: Sequence[Bounds]
) -> DataFrame:
    """e_k*: the group, e_time, the coordinates, the arguments of the aggregates, and e_later: after the claim."""
    from pyspark.sql import functions as F

    time = [F.col(identifier(sink.window.time)).cast("timestamp").alias("e_time")] if sink.window else []
    events = records.frame.where(f"{PROBLEM} IS NULL").select(
        *(F.col(identifier(name)).alias(f"e_k{index}") for index, name in enumerate(sink.group_by)),
        *(F.col(name).alias(f"e{name}") for name in COORDINATES),
        *time,
        *(F.expr(sql).alias(name) for part in parts.values() for name, sql in part.arguments.items()),
        F.expr(beyond(cut, "_topic", "_partition", "_offset")).alias("e_later"),
    )
    return events.where("e_time IS NOT NULL") if sink.window else events


def _windowed(events: DataFrame, sink: DeltaAggregateSink, late: DataFrame | None) -> DataFrame:
    """Each record once per window that it belongs to, without those that came too late for it."""
    from pyspark.sql import functions as F

    window = sink.window
    if window is None:
        return events
    if window.size is not None:
        length, step = (f"{span // _MICROSECOND} microseconds" for span in (window.size, window.slide or window.size))
        in_window = events.withColumn("w", F.window("e_time", length, step)).selectExpr(
            "*", "w.start AS e_window_start", "w.end AS e_window_end"
        )
        return _in_time(in_window, late, "(l_start IS NULL OR l_start = e_window_start)")
    return _sessions(_in_time(events, late, "true"), sink, window)


def _in_time(events: DataFrame, late: DataFrame | None, of_window: str) -> DataFrame:
    from pyspark.sql import functions as F

    if late is None:
        return events
    letters = late.select(
        *(F.col(f"_{name}").alias(f"l_{name}") for name in _PLACE), F.col("window_start").alias("l_start")
    )
    same = " AND ".join(f"e_{name} = l_{name}" for name in _PLACE)
    return events.join(letters, F.expr(f"{same} AND {of_window}"), "left_anti")


def _sessions(events: DataFrame, sink: DeltaAggregateSink, window: Window) -> DataFrame:
    """A record begins a session when the one before it is at least the gap away."""
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as F

    gap = (window.gap or timedelta(0)) // _MICROSECOND
    group: list[Column] = [F.col(f"e_k{index}") for index in range(len(sink.group_by))] or [F.lit(0)]
    in_time = Over.partitionBy(*group).orderBy("e_time")
    begins = f"coalesce(unix_micros(e_time) - unix_micros(previous) >= {gap}, true)"
    numbered = (
        events.withColumn("previous", F.lag("e_time").over(in_time))
        .withColumn("begins", F.expr(begins))
        .withColumn(
            "session", F.count(F.when(F.col("begins"), 1)).over(in_time.rowsBetween(Over.unboundedPreceding, 0))
        )
    )
    of_session = Over.partitionBy(*group, "session")
    return numbered.withColumns(
        {"e_window_start": F.min("e_time").over(of_session), "latest": F.max("e_time").over(of_session)}
    ).withColumn("e_window_end", F.expr(f"timestamp_micros(unix_micros(latest) + {gap})"))
