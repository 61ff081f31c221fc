"""The values of a history's events that didn't have them: those of the newest earlier event of the key that did.

An event after a delete gets nothing from before it. A late event can change what later events got. So ``_state`` keeps
the names of the columns that an event lacks (``unsent``), beside the values that it got.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sinks.delta.version_columns import VersionColumns
from sinks.spark.sql import identifier, literal, struct_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MICROSECONDS = "yyyy-MM-dd HH:mm:ss.SSSSSS"


def filled(points: DataFrame, columns: VersionColumns) -> DataFrame:
    """The points of keys, each with its values.

    ``points``: ``key``, ``at``, ``point``, and ``incoming``: whether an event of the epoch is at this place. Points
    before the first such place of their key keep the values that they are stored with. Points that aren't read lie
    before them all.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    until_now = (Window.unboundedPreceding, Window.currentRow)
    in_order = Window.partitionBy("key").orderBy("at")
    since_a_delete = Window.partitionBy("key", "life").orderBy("at").rowsBetween(*until_now)
    values = {
        **{name: f"point.tracked.{identifier(name)}" for name in columns.tracked},
        **{name: f"point.event.values.{identifier(name)}" for name in columns.untracked},
    }
    found = {name: f"found {index}" for index, name in enumerate(values)}

    def has_value(name: str) -> str:
        sent = f"NOT coalesce(array_contains(point.event.unsent, {literal(name)}), false)"
        return f"NOT point.deletes AND ({sent} OR at < first_incoming)"

    def struct_of(names: tuple[str, ...]) -> str:
        return struct_sql({name: f"{identifier(found[name])}.value" for name in names} or {"none": "0"})

    numbered = points.withColumns(
        {
            "life": F.sum(F.expr("CAST(point.deletes AS INT)")).over(in_order.rowsBetween(*until_now)),
            "first_incoming": F.min(F.expr("CASE WHEN incoming THEN at END")).over(Window.partitionBy("key")),
        }
    )
    known = numbered.withColumns(
        {
            found[name]: F.last(
                F.expr(f"CASE WHEN {has_value(name)} THEN struct({value} AS value) END"), ignorenulls=True
            ).over(since_a_delete)
            for name, value in values.items()
        }
    )
    event = F.col("point.event")
    if columns.untracked:
        got = F.when(~F.col("point.deletes"), F.expr(struct_of(tuple(columns.untracked))))
        event = event.withField("values", got)
    point = F.struct(
        event.alias("event"),
        F.col("point.deletes").alias("deletes"),
        F.expr(struct_of(tuple(columns.tracked))).alias("tracked"),
    )
    return known.withColumn("point", point).drop("life", "first_incoming", *found.values())


def fingerprint_fields(columns: VersionColumns) -> Mapping[str, str]:
    """SQL of what identifies a version beside its events: their values, which may change while they don't."""
    fields = {"tracked": "tracked"}
    if columns.untracked:
        formats = f"map('timestampFormat', '{_MICROSECONDS}XXX', 'timestampNTZFormat', '{_MICROSECONDS}')"
        # As JSON, since maps can't be compared.
        fields["values"] = f"to_json(named_struct('values', transform(events, e -> e.values)), {formats})"
    return fields
