"""Dead letters of records that came too late for their window. Lateness is a function of the records.

A record is late by what its own partition has shown before it, and, where that was idle, by a watermark that the other
partitions made. Which of them were idle, and where the epochs were cut, only the pipeline knew. So a letter is believed
if any of these could have made its record late. ``allowed_lateness`` may have been raised since: a letter that only a
smaller one explains is unconfirmed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from connector.audit.claim import Bounds
from connector.audit.counted import ROW_AT, counted
from connector.audit.records import PLACE, RAW, digest
from connector.audit.rows import placed
from connector.config import Window
from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MICROSECOND = timedelta(microseconds=1)


def founded(window: Window, allowed_lateness: timedelta = timedelta(0)) -> str:
    """SQL: whether a record may have been late for its window."""
    lateness = allowed_lateness // _MICROSECOND
    # A session takes a record until its own time is too long ago.
    ends = "first_time" if window.gap is not None else "window_ends"
    return f"coalesce({ends} + {lateness} <= shown, false)"


def others_latest(latest: dict[str, int]) -> dict[str, int]:
    """The largest event time of all other partitions, of each that has others."""
    ranked = sorted(latest.values(), reverse=True)[:2]
    return {at: ranked[time == ranked[0]] for at, time in latest.items() if len(latest) > 1}


def judged_letters(
    late: DataFrame,
    events: DataFrame,
    in_windows: Callable[[DataFrame], DataFrame],
    raw: DataFrame | None,
    cut: Sequence[Bounds],
    window: Window,
    *,
    alone: bool,
) -> list[dict[str, Any]]:
    """The counts of letters that are doubled, altered, unconfirmed or of no late record, as ``counted`` gives them.

    ``late``: the letters of this sink. ``events``: those of the claim; ``in_windows`` gives each once per window that
    it is in. ``raw``: the coordinates of all records, with a digest of each; None: nobody knows it. ``alone``: whether
    no record of another table is among the letters, or has moved the watermark.
    """
    from pyspark.sql import functions as F

    start = "window_start" if window.gap is None else "CAST(NULL AS TIMESTAMP)"
    digests = F.collect_set(digest("_timestamp")) if raw is not None else F.lit(None).cast("array<string>")
    letters = late.groupBy(*(F.col(name).alias(f"r{name}") for name in PLACE), F.expr(start).alias("r_start")).agg(
        F.count(F.lit(1)).alias("letters"), digests.alias("digests")
    )
    facts = _facts(events, in_windows, window)
    same = " AND ".join(f"e{name} = r{name}" for name in PLACE)
    joined = placed(letters, cut).join(facts, F.expr(f"{same} AND e_start <=> r_start"), "left")
    if raw is not None:
        sent = raw.select(*(F.col(name).alias(f"d{name}") for name in PLACE), F.col(RAW).alias("sent"))
        joined = joined.join(sent, F.expr(" AND ".join(f"d{name} = r{name}" for name in PLACE)), "left")
        altered = "sent IS NOT NULL AND NOT array_contains(digests, sent)"
    else:
        altered = "false"
    unfounded = (
        f"IF(e_offset IS NULL, r_zone = 'checked' OR claim IS NULL, NOT {founded(window)})" if alone else "false"
    )
    known = "e_offset IS NOT NULL"
    believed = f"{known} AND NOT ({unfounded})"
    conditions = {
        "letters_unexpected": unfounded,
        "letters_altered": f"{believed} AND {altered}",
        "letters_unconfirmed": f"{believed} AND NOT {founded(window, window.allowed_lateness)}" if alone else "false",
    }
    counts = {kind: f"CAST(coalesce({condition}, false) AS BIGINT)" for kind, condition in conditions.items()}
    counts["letters_duplicated"] = f"IF({known}, greatest(letters - times, 0L), 0L)"
    found = joined.withColumn("at", F.expr(ROW_AT))
    return counted(found, counts, dict.fromkeys(counts, "at"))


def apart_from_late(events: DataFrame, late: DataFrame, *, alone: bool) -> tuple[DataFrame, DataFrame]:
    """The rows that came in time for a session, and those that nobody can tell whether they did.

    A letter says of its record that a row of it came late: the earliest one did, whichever others did. Another one that
    may have been late, too, is doubtful. ``late`` and ``alone``: as in ``judged_letters``.
    """
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as F

    letters = late.select(*(F.col(name).alias(f"l{name}") for name in PLACE)).distinct()
    same = F.expr(" AND ".join(f"e{name} = l{name}" for name in PLACE))
    earliest = F.min("e_time").over(Over.partitionBy(*(f"e{name}" for name in PLACE)))
    judged = _with_shown(events).withColumn("earliest", earliest).join(letters, same, "left")
    judged = judged.withColumn("noted", F.expr("l_offset IS NOT NULL"))
    may_be = "coalesce(unix_micros(e_time) <= shown, false)" if alone else "true"
    in_time = judged.where(f"NOT noted OR (e_time > earliest AND NOT ({may_be}))")
    doubtful = judged.where(f"noted AND e_time > earliest AND {may_be}")
    return in_time.select(*events.columns), doubtful.select(*events.columns)


def _with_shown(events: DataFrame) -> DataFrame:
    """The events with ``shown``: the largest event time, in microseconds, that may have counted when each came."""
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as F

    at = "concat(e_topic, '-', e_partition)"
    latest = events.groupBy(F.expr(at).alias("at")).agg(F.expr("max(unix_micros(e_time))").alias("latest")).collect()
    others = json.dumps(others_latest({row["at"]: row["latest"] for row in latest}))
    before = Over.partitionBy("e_topic", "e_partition").orderBy("e_offset").rangeBetween(Over.unboundedPreceding, -1)
    shown = events.withColumns(
        {
            "own": F.max(F.expr("unix_micros(e_time)")).over(before),
            "others": F.expr(f"from_json({literal(others)}, 'map<string, bigint>')[{at}]"),
        }
    )
    return shown.withColumn("shown", F.expr("greatest(own, others)"))


def _facts(events: DataFrame, in_windows: Callable[[DataFrame], DataFrame], window: Window) -> DataFrame:
    """Per record and window: first_time, window_ends, shown (in microseconds), and how many ``times`` it is in it."""
    from pyspark.sql import functions as F

    shown = _with_shown(events)
    places = [f"e{name}" for name in PLACE]
    if window.gap is not None:
        each = shown.withColumns({"e_start": F.expr("CAST(NULL AS TIMESTAMP)"), "ends": F.expr("CAST(NULL AS BIGINT)")})
    else:
        each = in_windows(shown).withColumns(
            {"e_start": F.col("e_window_start"), "ends": F.expr("unix_micros(e_window_end)")}
        )
    return each.groupBy(*places, "e_start").agg(
        F.expr("min(unix_micros(e_time))").alias("first_time"),
        F.max("ends").alias("window_ends"),
        F.max("shown").alias("shown"),
        F.count(F.lit(1)).alias("times"),
    )
