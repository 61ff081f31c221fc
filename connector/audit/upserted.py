"""Compares the latest update of every key that no later delete or truncate has removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from connector.audit.claim import Bounds
from connector.audit.counted import one_each
from connector.audit.records import Records, changes, sequence_type, table_columns
from connector.audit.rows import Earlier, deleted_unseen, found_rows, without_record
from connector.audit.values import alike
from connector.config import BytesFormat, DeltaUpsertSink, PipelineConfig, StringFormat
from sinks.errors import SchemaMismatch
from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def upserted(
    records: Records,
    rows: DataFrame,
    cut: Sequence[Bounds],
    sink: DeltaUpsertSink,
    *,
    whole: bool,
    committed_later: bool,
    leave_out: Sequence[str],
    earlier: Earlier,
    unread: DataFrame | None,
    by_kafkas_key: bool = False,
    all_of_key: bool = False,
) -> list[dict[str, Any]]:
    """The counts for a delta_upsert table.

    ``whole``: Kafka shows every record of the claim, and each can be read. If not, rows of missing records count as
    unchecked, and what missing records may have changed or removed as doubtful. Without a sequence, or with one that
    begins with the offset, a key with records in several partitions counts as moved. ``committed_later``,
    ``leave_out`` and ``earlier``: as in ``compare``. ``unread``: the coordinates of records that can't be read.
    ``by_kafkas_key``, ``all_of_key``: see there. Raises SchemaMismatch, ConfigurationError.
    """
    from pyspark.sql import functions as F

    columns = table_columns(records.columns, sink)
    soft, ordered = sink.deletes == "soft", sink.sequence_by is not None
    if not soft and "_deleted_by" in (name.lower() for name in rows.columns):
        raise SchemaMismatch(
            "The table was written with deletes: soft, and the pipeline says deletes: hard.",
            hint="Verify with the options that the table was written with.",
        )
    more = {"r_marked": ("_deleted", "boolean")} if soft else {}
    if ordered:
        more["r_sequence"] = ("_sequence", sequence_type(records, sink))
    stored = found_rows(
        rows, columns, cut, key=sink.key, more=more, leave_out=leave_out, earlier=earlier, unread=unread,
        shown=records.shown,
    )  # fmt: skip
    if not soft:
        stored = stored.withColumn("r_marked", F.lit(False))
    events = changes(records, sink, cut)
    truncated = _truncated(events) if sink.apply_as_truncates else None
    expected = _expected(events, truncated, records, columns, sink)
    keys = {f"g{index}": F.expr(f"coalesce(e_k{index}, r_k{index})") for index in range(len(sink.key))}
    sure = whole or (unread is None and shows_every_later(cut, ordered=ordered, by_kafkas_key=by_kafkas_key))
    merged, known = sink.ignore_null_updates is not False or records.partial, whole and not earlier.any
    kind = kind_sql(
        columns, sink, whole=known, sure=sure, later=committed_later, merged=merged, truncates=truncated is not None,
        all_of_key=all_of_key and unread is None,
    )  # fmt: skip
    joined = _side_by_side(expected, stored, truncated, columns, records, sink)
    joined = joined.withColumns(
        {
            "kind": F.expr(kind),
            "wanted": F.expr("e_state <> 'absent'"),
            "sure": F.expr(f"{'true' if sure else 'false'} AND NOT coalesce(e_deleted_later, false)"),
            **keys,
        }
    )
    return one_each(joined, sink.key)


def by_kafkas_key(config: PipelineConfig) -> bool:
    """Whether all changes of a row have one Kafka key: the sink's key is ``_key``, as Kafka has it.

    A key column of the value doesn't count, also where all records in sight agree with it: compaction may have taken
    the one that didn't.
    """
    sink = config.sinks[0]
    as_it_is = all(isinstance(flow.key, StringFormat | BytesFormat) and not flow.reshaped for flow in config.by_flow)
    return as_it_is and isinstance(sink, DeltaUpsertSink) and [*sink.key] == ["_key"]


def all_of_key(config: PipelineConfig) -> bool:
    """Whether each record of a row's Kafka key is a change of that row: none is set aside, or another table's."""
    return by_kafkas_key(config) and config.on_bad_record == "fail" and config.route is None


def shows_every_later(cut: Sequence[Bounds], *, ordered: bool, by_kafkas_key: bool) -> bool:
    """Whether Kafka shows every later change of a row whose latest update in sight is there.

    In the order of offsets, missing earlier records can't change the result. In that of a sequence they can. Compaction
    takes later ones, too, but of one Kafka key it takes none without all before it. Where Kafka's log ends before the
    claim does, it has lost the last ones.
    """
    to_the_end = all(part.stop == part.end for part in cut)
    return to_the_end and not ordered and (by_kafkas_key or not any(part.compacted for part in cut))


def kind_sql(
    columns: StructType,
    sink: DeltaUpsertSink,
    *,
    whole: bool,
    sure: bool,
    later: bool,
    merged: bool,
    truncates: bool = False,
    all_of_key: bool = False,
) -> str:
    """SQL of the kind of a row.

    ``whole``: everything that may have made a row is known. ``sure``: no unknown record can have deleted it. ``later``:
    rows beyond the claim are no fault. ``merged``: a row may have values of several records. ``truncates``: the claim
    may have some, the last of which is ``e_truncated``. A row that the table held before the first epoch is older than
    every change. ``all_of_key``: compaction leaves the last record of a row's key, unless that is a delete.
    """
    no_key = " OR ".join(f"r_k{index} IS NULL" for index in range(len(sink.key)))
    nulls = (f"r_values.v{index} IS NULL" for index, name in enumerate(columns.names) if name not in sink.key)
    blank = " AND ".join(["r_marked", *nulls])
    removed = "r_zone = 'unchecked' OR r_compacted"
    if sink.sequence_by is not None:
        order = "struct(r_sequence AS e_sequence, r_topic AS e_topic, r_partition AS e_partition, r_offset AS e_offset)"
        elsewhere, older, newer = "false", f"{order} < e_order", f"{order} > e_order"
        after = f"r_zone = 'unchecked' OR (r_compacted AND {order} > e_gone)"
        # A truncate is about all rows, also those of whose key Kafka shows nothing. Of two orders, null is the lower.
        emptied = f"(r_before OR r_zone = 'unchecked') AND e_state IS NULL AND {order} <= e_truncated"
    else:
        # Offsets of two partitions can't be compared.
        elsewhere = "e_topic <> r_topic OR e_partition <> r_partition"
        older, newer = "r_offset < e_offset", "r_offset > e_offset"
        after, emptied = "r_compacted AND r_offset > e_gone.e_offset", "false"
    # The update that came after the delete may be one that Kafka no longer holds.
    gone = f"IF({after}, 'unchecked', 'resurrected')"
    other = "altered" if whole or not merged else "doubtful"
    deleted = "altered" if sure else "doubtful"
    compared = "'checked', 'unchecked'" + (", 'ahead'" if later else "")
    return (
        f"CASE WHEN r_zone IS NULL THEN IF(e_moved, 'moved', NULL) "
        f"WHEN {emptied if truncates else 'false'} THEN 'resurrected' "
        f"WHEN {no_key} THEN IF(r_before, 'held_before', 'unexpected') "
        # Only deletes: the row has the values of an update that is gone, or none.
        f"WHEN e_state = 'blank' AND r_marked "
        f"THEN IF(r_before OR ({blank}), 'right', IF({removed}, 'unchecked', 'altered')) "
        f"WHEN r_before AND e_state IS NOT NULL THEN IF(e_state = 'alive', 'stale', {gone}) "
        f"WHEN e_moved AND r_zone IN ({compared}) THEN 'moved' "
        f"WHEN e_state IS NULL AND NOT r_marked AND {deleted_unseen(all_of_key=all_of_key)} THEN 'doubtful' "
        f"WHEN r_zone IN ('nowhere', 'ahead', 'unreadable') OR e_state IS NULL THEN {without_record(later)} "
        f"WHEN {elsewhere} THEN 'unexpected' "
        f"WHEN e_state = 'absent' OR (e_state IN ('blank', 'marked') AND NOT coalesce(r_marked, false)) THEN {gone} "
        f"WHEN {older} THEN 'stale' "
        f"WHEN {newer} THEN IF({removed}, 'unchecked', 'unexpected') "
        f"WHEN NOT r_marked <=> (e_state = 'marked') THEN "
        f"CASE WHEN NOT e_deleted_later THEN '{deleted}' WHEN alike THEN 'ahead' ELSE '{other}' END "
        f"WHEN alike THEN 'right' ELSE '{other}' END"
    )


def _side_by_side(
    expected: DataFrame,
    stored: DataFrame,
    truncated: DataFrame | None,
    columns: StructType,
    records: Records,
    sink: DeltaUpsertSink,
) -> DataFrame:
    """What is expected and what is there, by key, whether both are ``alike``, and ``e_truncated`` if there may be."""
    from pyspark.sql import functions as F

    same = F.expr(" AND ".join(f"e_k{index} = r_k{index}" for index in range(len(sink.key))))
    found = alike("e_values", "r_values", columns, records.defaults, "e_lacks", records.numbered)
    joined = expected.join(stored, same, "full").withColumn("alike", found)
    if truncated is None:
        return joined
    return joined.crossJoin(F.broadcast(truncated.selectExpr("truncated AS e_truncated")))


def _truncated(events: DataFrame) -> DataFrame:
    """One row: the order of the claim's last truncate, or null, and whether there is one after the claim."""
    return events.where("e_change = 'truncate'").selectExpr(
        "max(IF(e_later, NULL, e_order)) AS truncated", "coalesce(max(e_later), false) AS truncated_later"
    )


def _expected(
    events: DataFrame, truncated: DataFrame | None, records: Records, columns: StructType, sink: DeltaUpsertSink
) -> DataFrame:
    """Per key: coordinates, order and values of its latest update, and e_state:

    * alive: the row is there.
    * absent: the row isn't there.
    * marked, blank: the row is there as deleted, with the values of the latest update or without any.

    And e_gone: the order of what has last deleted the key; e_moved: whether nobody can tell which change is the latest,
    as they are ordered by offset and lie in several partitions. Where all of them are deletes, it doesn't matter.
    """
    from pyspark.sql import functions as F

    keys = [f"e_k{index}" for index in range(len(sink.key))]
    if truncated is not None:
        events = events.where("e_change <> 'truncate'").crossJoin(F.broadcast(truncated))
    else:
        events = events.withColumns({"truncated": F.expr("IF(true, NULL, e_order)"), "truncated_later": F.lit(False)})
    merged: list[str] = []
    # Several rows of one record have the same order. Of them, the one whose JSON sorts last counts.
    order = "struct(e_order, e_json)" if records.several else "e_order"
    if sink.ignore_null_updates is not False or records.partial:
        events, merged = _since_the_last_delete(events, columns, sink, keys, order, partial=records.partial)
    updated = f"CASE WHEN e_change = 'update' AND NOT e_later THEN {order} END"
    place = "CASE WHEN NOT e_later THEN struct(e_topic, e_partition) END"
    moved = f"min({place}) <> max({place})" if sink.by_offset else "false"
    per_key = events.groupBy(*keys).agg(
        F.expr(f"max_by(struct(e_order, e_values, e_lacks), {updated})").alias("latest"),
        F.expr("max(CASE WHEN e_change = 'delete' AND NOT e_later THEN e_order END)").alias("deleted"),
        F.expr("max(truncated)").alias("truncated"),
        F.expr("max(truncated_later OR (e_later AND e_change = 'delete'))").alias("e_deleted_later"),
        F.expr(f"{moved} AS moved"),
        *(F.expr(value) for value in merged),
        *([F.expr("flatten(collect_set(e_lacks)) AS lacks")] if merged else []),
    )
    parts = (
        f"{f'w{index}' if f'w{index}' in per_key.columns else f'latest.e_values.v{index}'} AS v{index}"
        for index in range(len(columns))
    )
    alive = (
        "latest IS NOT NULL AND (latest.e_order > deleted) IS NOT FALSE AND (latest.e_order > truncated) IS NOT FALSE"
    )
    gone = "IF(latest IS NULL, 'blank', 'marked')" if sink.deletes == "soft" else "'absent'"
    known = per_key.where("latest IS NOT NULL OR deleted IS NOT NULL")
    placed = known.select(
        *keys,
        F.expr(f"struct({', '.join(parts)}, latest.e_values.timestamp AS timestamp)").alias("e_values"),
        F.expr(f"IF({alive}, 'alive', {gone})").alias("e_state"),
        "e_deleted_later",
        F.expr("moved AND latest IS NOT NULL AS e_moved"),
        F.expr("coalesce(latest.e_order, deleted)").alias("e_order"),
        F.expr("greatest(deleted, truncated)").alias("e_gone"),
        F.expr(f"{'lacks' if merged else 'latest.e_lacks'} AS e_lacks"),
    )
    return placed.where(" AND ".join(f"{key} IS NOT NULL" for key in keys)).select("*", "e_order.*")


def _since_the_last_delete(
    events: DataFrame, columns: StructType, sink: DeltaUpsertSink, keys: Sequence[str], order: str, *, partial: bool
) -> tuple[DataFrame, list[str]]:
    """SQL of each column w* that keeps its latest value that isn't null, or with ``partial`` the latest that was sent.

    Only values since the last delete or truncate count. ``order``: SQL of the order of a row.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    deleted = F.expr("CASE WHEN e_change = 'delete' AND NOT e_later THEN e_order END")
    afresh = F.greatest(F.max(deleted).over(Window.partitionBy(*keys)), "truncated")
    counts = "e_change = 'update' AND NOT e_later AND (e_order > afresh) IS NOT FALSE"
    patched = columns.names if sink.ignore_null_updates is True else sink.ignore_null_updates or ()
    merged = []
    for index, name in enumerate(columns.names):
        if name in patched:
            has_value = f"e_values.v{index} IS NOT NULL"
        elif partial and name not in sink.key:
            has_value = f"NOT array_contains(e_absent, lower({literal(name)}))"
        else:
            continue
        merged.append(f"max_by(e_values.v{index}, CASE WHEN {counts} AND {has_value} THEN {order} END) AS w{index}")
    return events.withColumn("afresh", afresh), merged
