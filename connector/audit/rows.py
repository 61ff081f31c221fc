"""The rows that the table holds, in comparable form, and where in the claim their coordinates lie."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.audit.claim import Bounds
from connector.audit.in_both import as_in
from connector.audit.records import PLACE
from connector.audit.values import comparable_values
from sinks.errors import SchemaMismatch
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_BOUNDS = (
    "array<struct<topic: string, `partition`: int, since: bigint, begin: bigint, stop: bigint, `end`: bigint, "
    "compacted: boolean, missed: bigint, to_end: boolean, lost: array<struct<start: bigint, `end`: bigint>>>>"
)


@dataclass(frozen=True)
class Earlier:
    """What the table held before the pipeline's first epoch."""

    rows: DataFrame | None = None
    """The rows, with the columns that the table has now. None: there were none, or nobody can read them any more."""
    known: bool = True
    """Whether the rows can be read. If not, every row may be one of them that has no coordinates, or those of a topic
    that isn't in the claim."""
    of_others: bool = False
    """Whether there were rows for sure, and none of the pipeline. A clone begins with the pipeline's own."""

    @property
    def any(self) -> bool:
        """Whether the table held, or may have held, rows."""
        return self.rows is not None or not self.known


NOTHING = Earlier()
_COORDINATES = {"_topic": "string", "_partition": "int", "_offset": "bigint", "_timestamp": "timestamp"}


def check_columns(rows: DataFrame, wanted: Mapping[str, str | None]) -> None:
    """Raises SchemaMismatch unless ``rows`` has all ``wanted`` columns with these types. None: any type."""
    there = {field.name.lower(): field.dataType.simpleString().lower() for field in rows.schema}
    faults = [
        f"column {name} is {there[name.lower()]} in the table, {kind} in the pipeline"
        if name.lower() in there
        else f"the table has no column {name}"
        for name, kind in wanted.items()
        if name.lower() not in there or (kind is not None and there[name.lower()] != kind.lower())
    ]
    refuse_to_compare(faults)


def refuse_to_compare(faults: Sequence[str]) -> None:
    """Raises SchemaMismatch if there are ``faults``."""
    if faults:
        raise SchemaMismatch(
            "The table can't be compared with the topic: " + "; ".join(faults) + ".",
            hint="Verify with the value.schema and the options that the table was written with.",
        )


def found_rows(
    rows: DataFrame,
    columns: StructType,
    cut: Sequence[Bounds],
    *,
    key: Sequence[str] = (),
    more: Mapping[str, tuple[str, str]] | None = None,
    leave_out: Sequence[str] = (),
    earlier: Earlier = NOTHING,
    unread: DataFrame | None = None,
    shown: DataFrame | None = None,
) -> DataFrame:
    """The rows as r_*: the coordinates, comparable values, the key, and where in the claim the coordinates lie.
    ``r_before``: whether the table held the row as it is before the pipeline's first epoch.

    ``more``: new name -> (column of the table, its type), for further columns. ``leave_out``: topics whose rows are
    another pipeline's. ``unread``: the coordinates of records that can't be read: r_zone of their rows is unreadable.
    ``shown``: as in ``placed``. Raises SchemaMismatch.
    """
    from pyspark.sql import functions as F

    check_columns(rows, {**dict.fromkeys(columns.names), **dict((more or {}).values()), **_COORDINATES})

    def column(name: str) -> Column:
        return F.col(identifier(name))

    def shaped(rows: DataFrame) -> DataFrame:
        shape = as_in(columns, rows)
        return rows.select(
            *(F.col(name).alias(f"r{name}") for name in PLACE),
            comparable_values(columns, rows).alias("r_values"),
            *(shape(name).alias(f"r_k{index}") for index, name in enumerate(key)),
            *(column(name).alias(ours) for ours, (name, _) in (more or {}).items()),
        )

    mine = shaped(rows)
    if leave_out:
        mine = mine.where(~F.coalesce(F.col("r_topic").isin(*leave_out), F.lit(False)))
    before = shaped(earlier.rows) if earlier.rows is not None else None
    none_of_the_claim = None if earlier.known else _of_no_topic({part.at.topic for part in cut})
    marked = _marked(placed(mine, cut, shown), before, none_of_the_claim)
    if unread is None:
        return marked
    places = unread.selectExpr(*(f"{name} AS u{name}" for name in PLACE), "true AS unread")
    same = F.expr(" AND ".join(f"r{name} = u{name}" for name in PLACE))
    zone = F.expr("IF(unread AND r_zone = 'checked', 'unreadable', r_zone)")
    return marked.join(places, same, "left").withColumn("r_zone", zone).drop("unread", *(f"u{name}" for name in PLACE))


def _of_no_topic(topics: Collection[str]) -> str:
    """SQL: whether a row has no coordinates, or those of none of these topics."""
    nowhere = "(r_topic IS NULL AND r_partition IS NULL AND r_offset IS NULL)"
    others = f"r_topic NOT IN ({', '.join(map(literal, sorted(topics)))})" if topics else "r_topic IS NOT NULL"
    return f"({nowhere} OR coalesce({others}, false))"


def _marked(rows: DataFrame, before: DataFrame | None, unknown: str | None) -> DataFrame:
    """The rows with ``r_before``. Of equal rows, as many are from ``before`` as there were then. ``unknown``: SQL of
    the rows that may be, where nobody can read those of then."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if before is None:
        return rows.withColumn("r_before", F.expr(unknown or "false"))
    same = F.struct("r_topic", "r_partition", "r_offset", "r_values")
    counts = before.groupBy(same.alias("earlier")).agg(F.count(F.lit(1)).alias("times"))
    # A row with coordinates of the claim is compared with its record.
    nowhere = F.col("r_zone") == "nowhere"
    compared = rows.withColumn("own", F.when(nowhere, same)).join(counts, F.expr("own <=> earlier"), "left")
    number = F.row_number().over(Window.partitionBy("own").orderBy("own"))
    found = compared.where(nowhere).withColumn("r_before", F.coalesce(number <= F.col("times"), F.lit(False)))
    return (
        compared.where(~nowhere).withColumn("r_before", F.lit(False)).unionByName(found).drop("own", "earlier", "times")
    )


def placed(rows: DataFrame, cut: Sequence[Bounds], shown: DataFrame | None = None) -> DataFrame:
    """``rows`` with three more columns: ``claim`` (that of their partition), r_zone and r_compacted.

    ``rows`` needs r_topic, r_partition and r_offset. r_zone says where in the claim a row lies: nowhere, ahead, lost,
    unchecked or checked. r_compacted: whether compaction may have removed the row's record. ``shown``: the coordinates
    of all records that Kafka shows, which it hasn't removed.
    """
    from pyspark.sql import functions as F

    text = json.dumps(
        [
            {
                "topic": part.at.topic, "partition": part.at.partition, "since": part.since, "begin": part.begin,
                "stop": part.stop, "end": part.end, "compacted": part.compacted, "missed": part.missed,
                "to_end": part.to_end,
                "lost": [{"start": gap.start, "end": gap.end} for gap in part.lost],
            }
            for part in cut
        ]
    )  # fmt: skip
    limits = rows.sparkSession.range(1).select(F.inline(F.from_json(F.lit(text), _BOUNDS)))
    limits = limits.select(F.struct(*limits.columns).alias("claim"))
    joined = rows.join(F.broadcast(limits), F.expr("r_topic = claim.topic AND r_partition = claim.`partition`"), "left")
    zone = F.expr(
        "CASE WHEN claim IS NULL OR r_offset IS NULL THEN 'nowhere' "
        "WHEN r_offset >= claim.`end` THEN 'ahead' "
        "WHEN r_offset < claim.since THEN 'nowhere' "
        "WHEN exists(claim.lost, gap -> r_offset >= gap.start AND r_offset < gap.`end`) THEN 'lost' "
        "WHEN r_offset < claim.begin OR r_offset >= claim.stop THEN 'unchecked' ELSE 'checked' END"
    )
    compacted = "coalesce(claim.compacted, false)"
    if shown is None or not any(part.compacted for part in cut):
        return joined.withColumns({"r_zone": zone, "r_compacted": F.expr(compacted)})
    there = shown.select(*(F.col(name).alias(f"s{name}") for name in PLACE))
    same = F.expr(" AND ".join([compacted, *(f"r{name} = s{name}" for name in PLACE)]))
    asked = joined.join(there, same, "left")
    gone = F.expr(f"{compacted} AND s_offset IS NULL")
    return asked.withColumns({"r_zone": zone, "r_compacted": gone}).drop(*there.columns)


def without_record(committed_later: bool) -> str:
    """SQL: the kind of a row for which Kafka shows no record. It depends on where its coordinates lie, and on whether
    the table held it before the pipeline's first epoch."""
    ahead, gone = ("ahead", "unchecked") if committed_later else ("unexpected", "unexpected")
    return (
        "CASE WHEN r_before THEN 'held_before' WHEN r_zone = 'nowhere' THEN 'unexpected' "
        "WHEN r_zone = 'unreadable' THEN 'unreadable' "
        f"WHEN r_zone = 'ahead' THEN '{ahead}' "
        f"WHEN r_zone = 'lost' THEN '{gone}' WHEN r_zone = 'unchecked' OR r_compacted THEN 'unchecked' "
        "ELSE 'unexpected' END"
    )


def deleted_unseen(*, all_of_key: bool = False) -> str:
    """SQL: whether a row, of whose key Kafka shows nothing, may have been deleted by a record that is gone as well.

    That is so if compaction has removed the row's record, and the pipeline read later ones too late. ``all_of_key``: or
    if the last record of its key would be there, had it not been a delete.
    """
    last = "(claim.to_end AND r_zone = 'checked')" if all_of_key else "false"
    in_claim = "r_compacted AND NOT r_before AND r_zone IN ('checked', 'unchecked')"
    return f"({in_claim} AND (r_offset < claim.missed OR {last}))"
