"""Rows that a table held before the pipeline's first epoch, and holds no more.

An append never removes a row. A keyed table loses one only if a record says something of its key. Commits of others may
have removed rows, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from connector.audit.claim import Bounds
from connector.audit.counted import counted
from connector.audit.foreign import Foreign
from connector.audit.records import PLACE, Records, changes, table_columns
from connector.audit.rows import Earlier, placed
from connector.audit.values import comparable_values
from connector.config import DeltaUpsertSink, KeyedSink
from sinks.plurals import plural
from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_GONE = "gone_before"
_AT = "struct(false AS claimed, r_topic AS topic, r_partition AS `partition`, r_offset AS offset)"


def gone_before(
    records: Records,
    rows: DataFrame,
    before: DataFrame | None,
    cut: Sequence[Bounds],
    sink: object,
    *,
    whole: bool,
    leave_out: Sequence[str],
) -> list[dict[str, Any]]:
    """The counts of rows of ``before`` that ``rows`` lacks, as ``counted`` gives them. Both have the same columns;
    None: there were none.

    ``whole``: Kafka shows every record of the claim, and each can be read. If not, a row of a keyed table that is gone
    is unchecked: a record that isn't shown may have deleted it. ``leave_out``: topics whose rows are of other
    pipelines.
    """
    from pyspark.sql import functions as F

    if before is None:
        return []
    keyed = sink if isinstance(sink, KeyedSink) else None
    columns = table_columns(records.columns, keyed) if keyed else records.columns
    key = keyed.key if keyed else ()
    sequenced = keyed is not None and keyed.sequence_by is not None and isinstance(keyed, DeltaUpsertSink)
    same = [f"r{name}" for name in PLACE] + (["r_sequence"] if sequenced else [])

    def shaped(frame: DataFrame) -> DataFrame:
        shaped = frame.select(
            *(F.col(name).alias(f"r{name}") for name in PLACE),
            comparable_values(columns, frame).alias("r_values"),
            *(F.col(identifier(name)).alias(f"r_k{index}") for index, name in enumerate(key)),
            *([F.col("_sequence").alias("r_sequence")] if sequenced else []),
        )
        mine = shaped.where(~F.coalesce(F.col("r_topic").isin(*leave_out), F.lit(False))) if leave_out else shaped
        return placed(mine, cut).select(*shaped.columns, "r_zone")

    # What has the coordinates of a record is compared with it.
    then, now = (shaped(frame).where("r_zone = 'nowhere'") for frame in (before, rows))
    keys = [f"r_k{index}" for index in range(len(key))]
    both = then.withColumn("one", F.lit(1)).unionByName(now.withColumn("one", F.lit(-1)))
    gone = both.groupBy(*same, "r_values", *keys).agg(F.sum("one").alias("times")).where("times > 0")
    kind = _GONE
    if keyed:
        said = changes(records, keyed, cut)
        if sequenced:  # a history leaves rows alone that it hasn't made
            gone = _unless_truncated(gone, said)
        written = shaped(rows).where("r_zone <> 'nowhere'")
        of_rows = written.select(*(F.col(name).alias(f"e_k{index}") for index, name in enumerate(keys)))
        concerned = said.select(*of_rows.columns).unionByName(of_rows).distinct()
        of_key = F.expr(" AND ".join(f"e_k{index} = r_k{index}" for index in range(len(key))))
        gone = gone.join(concerned, of_key, "left_anti")
        kind = _GONE if whole else "unchecked"
    shown = F.to_json(F.struct(*(F.col(name).alias(of) for name, of in zip(keys, key, strict=True)))) if key else None
    return counted(gone.withColumn("at", F.expr(_AT)), {kind: "times"}, {kind: "at"}, shown)


def _unless_truncated(gone: DataFrame, changes: DataFrame) -> DataFrame:
    """The rows that no truncate has removed: it leaves those that are newer alone."""
    from pyspark.sql import functions as F

    newest = changes.where("e_change = 'truncate'").selectExpr("max(e_order) AS truncated")
    order = "struct(r_sequence AS e_sequence, r_topic AS e_topic, r_partition AS e_partition, r_offset AS e_offset)"
    return gone.crossJoin(F.broadcast(newest)).where(f"({order} <= truncated) IS NOT TRUE").drop("truncated")


def unless_others(
    counts: Sequence[dict[str, Any]], foreign: Sequence[Foreign]
) -> tuple[list[dict[str, Any]], Sequence[str]]:
    """The counts, and a note. What commits of others may have removed is no fault. ``foreign``: those after the
    pipeline's first epoch. Each explains as many rows as it says that it has removed or changed."""
    gone = sum(each["count"] for each in counts if each["kind"] == _GONE)
    taken = [gone if each.rows is None else each.rows for each in foreign]
    left = excused = min(gone, sum(taken))
    if not excused:
        return list(counts), ()
    found = []
    for each in counts:
        if each["kind"] == _GONE:
            by_others = min(left, each["count"])
            left -= by_others
            each = {**each, "count": each["count"] - by_others}
        found.append(each)
    rows = plural(excused, "row that the table held", "rows that the table held")
    return [each for each in found if each["kind"] != _GONE or each["count"]], [
        f"{rows} before the pipeline's first epoch {'is' if excused == 1 else 'are'} gone or changed. A commit of "
        "somebody else's may have done that."
    ]


def not_compared(earlier: Earlier, held: int, *, alone: bool) -> list[str]:
    """Why nobody can compare the table with what it held before the pipeline's first epoch, as a sentence, if so.

    ``held``: how many rows may be from then. ``alone``: whether no other pipeline has written to the table: what it
    held may be the rows of that one.
    """
    if earlier.known:
        return []
    if held:
        return [
            f"{plural(held, 'row has', 'rows have')} no coordinates, or those of a topic that isn't in the claim. Rows "
            "may be from before the pipeline's first epoch, or another pipeline's, but the table's versions of then "
            "can't be read any more, so nothing shows that they are unchanged."
        ]
    if not earlier.of_others or not alone:
        return []
    return [
        "The table held rows before the pipeline's first epoch. Its version of then can't be read any more, so nothing "
        "shows that none of them is missing."
    ]
