"""Audit of an append table: each record's rows, the same values, as often, at the record's coordinates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from connector.audit.claim import Bounds, Held
from connector.audit.counted import RECORD_AT, ROW_AT, counted
from connector.audit.records import PROBLEM, Records, beyond, lacked
from connector.audit.rows import Earlier, found_rows, without_record
from connector.audit.values import comparable_values, where_given, with_defaults
from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE = ("topic", "partition", "offset")
_NOT_COMPARED = ("ahead", "unchecked")
"""The kinds of rows that aren't compared with their record, and whose record makes one row all the same."""


def appended(
    records: Records,
    rows: DataFrame,
    cut: Sequence[Bounds],
    *,
    committed_later: bool,
    leave_out: Sequence[str],
    earlier: Earlier,
    behind: Held | None = None,
) -> list[dict[str, Any]]:
    """Counts per kind and partition of an append table. One record makes one row, or several (``records.several``).

    ``committed_later``: rows beyond the claim are no fault. ``leave_out``: topics whose rows another pipeline wrote.
    ``earlier``: what the table held before the first epoch. ``behind``: what Kafka holds, if the records are also those
    that follow the claim: such a record may have no row yet.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    in_table = found_rows(rows, records.columns, cut, leave_out=leave_out, earlier=earlier, shown=records.shown)
    held = []
    if earlier.any:
        held = counted(
            in_table.where("r_before").withColumn("at", F.expr(ROW_AT)), {"held_before": "1L"}, {"held_before": "at"}
        )
        in_table = in_table.where("NOT r_before")
    sides = _both_sides(records, in_table, cut, committed_later=committed_later, behind=behind)
    if records.defaults:
        of_record = F.max("lacks").over(Window.partitionBy(*_PLACE))
        values = with_defaults(F.col("values"), records.columns, records.defaults, F.col("lacks"))
        sides = sides.withColumn("lacks", of_record).withColumn("values", values)
    numbered = [index for index, name in enumerate(records.columns.names) if name in records.numbered]
    if numbered:
        of_place = Window.partitionBy(*_PLACE)
        has = {index: F.expr(f"records = 1 AND values.v{index} IS NOT NULL") for index in numbered}
        sides = sides.withColumns({f"given{index}": F.max(each).over(of_place) for index, each in has.items()})
        given = {index: F.col(f"given{index}") for index in numbered}
        sides = sides.withColumn("values", where_given(F.col("values"), records.columns, given))
    places = _per_place(sides)
    # What isn't equal on either side: first another value for the record, then a row too many or too few.
    other = "least(records, rows) - right"
    counts = {
        "expected": "IF(later, 0L, records)",
        "found": "IF(unreadable > 0 OR later, 0L, right)",
        "unreadable": "IF(unreadable > 0, right, 0L)",
        "lost": "IF(later, 0L, greatest(records - rows, 0L))",
        "duplicated": duplicated(several=records.several),
        "altered": other,
        **{kind: f"IF(records = 0 AND kind = '{kind}', rows, 0L)" for kind in ("unexpected", "ahead", "unchecked")},
    }
    if not records.several:
        counts |= {kind: f"IF(records = 0 AND kind = '{kind}', 1L, 0L)" for kind in _NOT_COMPARED}
    counts["ahead"] = f"IF(later, IF(unreadable > 0, 0L, right), {counts['ahead']})"
    return [*held, *counted(places, counts, dict.fromkeys(counts, "at"))]


def duplicated(*, several: bool) -> str:
    """SQL: how many rows are too many at the coordinates of a record. Where it may have made ``several``, and isn't
    shown, none is."""
    twice = f"IF(kind IN {_NOT_COMPARED}, rows - 1, 0L)"
    return f"IF(records > 0, greatest(rows - records, 0L), {'0L' if several else twice})"


def invented(cut: Sequence[Bounds], behind: Held | None) -> str:
    """SQL: whether a row lies after the claim where Kafka would show its record. ``behind``: as in ``appended``."""
    if behind is None:
        return "false"
    # Where Kafka's log ends before the claim, it has lost records.
    known = [part for part in cut if not part.compacted and behind.ends.get(part.at, 0) >= part.end]
    shown = {" ".join(map(str, part.at)): max(part.end, behind.beginnings.get(part.at, 0)) for part in known}
    first = f"from_json({literal(json.dumps(shown))}, 'map<string, bigint>')[concat(r_topic, ' ', r_partition)]"
    return f"(NOT r_before AND coalesce(r_offset >= {first}, false))"


def _both_sides(
    records: Records, in_table: DataFrame, cut: Sequence[Bounds], *, committed_later: bool, behind: Held | None
) -> DataFrame:
    """One line per row that a record should make, and one per row of the table.

    Columns: the coordinates, values, lacks (what a record lacks), records and rows (1 on its own side, else 0), later
    (whether the record comes after the claim), kind (what a row without a record counts as), at (where to look for it).
    """
    from pyspark.sql import functions as F

    expected = records.frame.select(
        *(F.col(f"_{name}").alias(f"e_{name}") for name in _PLACE),
        # If a record can't be decoded, nobody knows its row's values: NULL.
        F.when(F.col(PROBLEM).isNull(), comparable_values(records.columns, records.frame)).alias("e_values"),
        lacked(records).alias("lacks"),
    )
    return expected.select(
        *(F.col(f"e_{name}").alias(name) for name in _PLACE),
        F.col("e_values").alias("values"),
        "lacks",
        F.lit(1).alias("records"),
        F.lit(0).alias("rows"),
        F.expr(beyond(cut, "e_topic", "e_partition", "e_offset")).alias("later"),
        F.lit(None).cast("string").alias("kind"),
        F.expr(RECORD_AT).alias("at"),
    ).unionByName(
        in_table.select(
            *(F.col(f"r_{name}").alias(name) for name in _PLACE),
            F.col("r_values").alias("values"),
            F.lit(None).cast("array<string>").alias("lacks"),
            F.lit(0).alias("records"),
            F.lit(1).alias("rows"),
            F.lit(False).alias("later"),
            F.expr(f"IF({invented(cut, behind)}, 'unexpected', {without_record(committed_later)})").alias("kind"),
            F.expr(ROW_AT).alias("at"),
        )
    )


def _per_place(sides: DataFrame) -> DataFrame:
    """One line per coordinates: how many records and rows there are, and how many of them are ``right``."""
    from pyspark.sql import functions as F

    alike = sides.groupBy(*_PLACE, "values").agg(
        F.sum("records").alias("records"),
        F.sum("rows").alias("rows"),
        F.max("later").alias("later"),
        F.max("kind").alias("kind"),
        F.min("at").alias("at"),
    )
    places = alike.groupBy(*_PLACE).agg(
        F.sum("records").alias("records"),
        F.sum("rows").alias("rows"),
        F.sum(F.least("records", "rows")).alias("equal"),
        F.sum(F.when(F.col("values").isNull(), F.col("records")).otherwise(0)).alias("unreadable"),
        F.max("later").alias("later"),
        F.max("kind").alias("kind"),
        F.min("at").alias("at"),
    )
    return places.withColumn("right", F.expr("IF(unreadable > 0, least(records, rows), equal)"))
