"""What the events of keys make of them: versions, by the rules of ``sinks.delta.history``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.delta.unsent_values import filled
from sinks.delta.version_columns import VersionColumns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def versions_of(points: DataFrame, partial: VersionColumns | None) -> DataFrame:
    """One row per version: its ``events`` in order, ``tracked``, [``start``, ``end``), ``ended_by``, and ``rows``, the
    table's present rows that start at one of its events. ``points``: one row per event; ``partial``: the columns of
    events that may lack values."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    in_order = Window.partitionBy("key").orderBy("at")
    # Behind `stored`: of a record that is read again, the row that counted the first time goes on counting.
    tie = ", tie" if "tie" in points.columns else ""
    single = (
        points.withColumn("at", F.col("event.at"))
        .groupBy("key", "at")
        .agg(
            F.expr(
                "max_by(struct(event, deletes, tracked), "
                f"struct(event.topic, event.partition, event.offset, coalesce(stored, false){tie}))"
            ).alias("point"),
            F.first("before", ignorenulls=True).alias("before"),
            F.expr("coalesce(bool_or(incoming), false)").alias("incoming"),
        )
    )
    walked = (
        (single if partial is None else filled(single, partial))
        .withColumn("last", F.lag("point").over(in_order))
        .withColumn(
            "starts",
            F.expr("NOT point.deletes AND (last IS NULL OR last.deletes OR NOT (point.tracked <=> last.tracked))").cast(
                "int"
            ),
        )
        .withColumn("number", F.sum("starts").over(in_order.rowsBetween(Window.unboundedPreceding, 0)))
        .selectExpr("key", "number", "at", "before", "point.*")
    )
    return (
        walked.groupBy("key", "number")
        .agg(
            F.expr("collect_list(event) FILTER (WHERE NOT deletes)").alias("events"),
            F.expr("min_by(tracked, at) FILTER (WHERE NOT deletes)").alias("tracked"),
            F.expr("min_by(event, at) FILTER (WHERE deletes)").alias("ended_by"),
            F.expr("collect_list(struct(at, before)) FILTER (WHERE before IS NOT NULL)").alias("rows"),
        )
        .withColumn(
            "events",
            F.expr("array_sort(events, (l, r) -> CASE WHEN l.at < r.at THEN -1 WHEN l.at > r.at THEN 1 ELSE 0 END)"),
        )
        # Deletes before any update form a version without events, which has no start.
        .withColumn("start", F.expr("get(events, 0).at"))
        .withColumn("next", F.lead("start").over(Window.partitionBy("key").orderBy("number")))
        .withColumn("end", F.expr("coalesce(ended_by.at, next)"))
        # A truncate isn't the key's own.
        .withColumn("ended_by", F.expr("CASE WHEN ended_by.topic IS NOT NULL THEN ended_by END"))
    )
