"""Compares every version of a key, from the update that started it to the next different one, or to a delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connector.audit.claim import Bounds
from connector.audit.counted import one_each
from connector.audit.in_both import as_in
from connector.audit.records import Records, changes, sequence_type, table_columns
from connector.audit.rows import Earlier, deleted_unseen, found_rows, without_record
from connector.audit.values import Default, alike, with_defaults
from connector.config import DeltaHistorySink
from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_PLACE = ("topic", "partition", "offset")


@dataclass(frozen=True)
class Versions:
    """The versions that the records make."""

    expected: DataFrame
    """As ``versions_of`` gives them."""
    later: DataFrame
    """The changes after the claim, as ``changes`` gives them."""
    times: Mapping[str, tuple[str, str]]
    """From when to when a version holds: name -> (column of the table, its type). ``expected`` has e_ before a name."""
    identity: Sequence[str] = _PLACE
    """What tells the versions of a key apart, without the e_."""
    with_later: DataFrame | None = None
    """As ``expected``, with the changes after the claim. None: no row may have them."""


def versions(records: Records, rows: DataFrame, cut: Sequence[Bounds], sink: DeltaHistorySink) -> Versions:
    """Those of a delta_history table. A version is identified by its key and the record that started it, and by when it
    begins if a record may make several rows."""
    sequence, columns = sequence_type(records, sink), table_columns(records.columns, sink)
    events = changes(records, sink, cut)
    if records.defaults:
        events = with_started(events, rows, sink, columns)
    expected = versions_of(
        events, columns, sink, partial=records.partial, several=records.several, defaults=records.defaults
    )
    times = {"start": ("__START_AT", sequence), "end": ("__END_AT", sequence)}
    return Versions(expected, events.where("e_later"), times, [*_PLACE, *(["start"] if records.several else [])])


def versioned(
    versions: Versions,
    records: Records,
    rows: DataFrame,
    cut: Sequence[Bounds],
    sink: DeltaHistorySink,
    *,
    whole: bool,
    committed_later: bool,
    leave_out: Sequence[str],
    earlier: Earlier,
    unread: DataFrame | None,
) -> list[dict[str, Any]]:
    """The counts for a table of ``versions``.

    Unless Kafka shows the ``whole`` claim, and each of its records can be read, a version that is missing or isn't as
    expected may be due to another record, and counts as doubtful. ``committed_later``, ``leave_out`` and ``earlier``:
    as in ``compare``. ``unread``: the coordinates of records that can't be read.
    """
    from pyspark.sql import functions as F

    columns, times, identity = table_columns(records.columns, sink), versions.times, versions.identity
    more = {f"r_{name}": column for name, column in times.items()}
    stored = found_rows(
        rows, columns, cut, key=sink.key, more=more, leave_out=leave_out, earlier=earlier, unread=unread,
        shown=records.shown,
    )  # fmt: skip
    keys = [f"k{index}" for index in range(len(sink.key))]
    same = F.expr(" AND ".join(f"e_{name} = r_{name}" for name in (*keys, *identity)))
    agree = F.expr(" AND ".join(f"e_{name} <=> r_{name}" for name in times))
    agree &= alike("e_values", "r_values", columns, records.defaults, "e_lacks")
    stored = _with_later(stored, versions, keys, same, agree)
    doubtful = "CASE WHEN r_as_later THEN 'ahead' WHEN e_later THEN 'doubtful' ELSE 'altered' END"
    doubtful = doubtful if whole else "'doubtful'"
    without, no_record = "unexpected" if whole else "doubtful", without_record(committed_later)
    may_have_ended = f"r_end IS NULL AND {deleted_unseen()}"
    kind = (
        "CASE WHEN r_zone IS NULL THEN NULL "
        # With a record that comes after the claim, one of the claim may start a version that it didn't start before.
        "WHEN e_offset IS NULL AND r_zone = 'checked' AND r_later THEN IF(r_as_later, 'ahead', 'doubtful') "
        f"WHEN e_offset IS NULL AND r_zone = 'checked' AND NOT r_compacted THEN '{without}' "
        f"WHEN e_offset IS NULL AND {may_have_ended} THEN 'doubtful' "
        f"WHEN e_offset IS NULL THEN {no_record} "
        "WHEN agree THEN 'right' "
        f"ELSE {doubtful} END"
    )
    joined = versions.expected.join(stored, same, "full").withColumn("agree", agree)
    joined = joined.withColumns(
        {
            "kind": F.expr(kind),
            "wanted": F.expr("e_offset IS NOT NULL"),
            "sure": F.expr(f"{'true' if whole else 'false'} AND NOT coalesce(e_later, false)"),
            **{f"g{index}": F.expr(f"coalesce(e_{name}, r_{name})") for index, name in enumerate(keys)},
            **{f"place_{name}": F.expr(f"coalesce(e_{name}, r_{name})") for name in identity},
        }
    )
    return one_each(joined, sink.key, within=[f"place_{name}" for name in identity])


def _with_later(stored: DataFrame, versions: Versions, keys: Sequence[str], same: Column, agree: Column) -> DataFrame:
    """The rows with ``r_later``: whether a change of their key, or a truncate, comes after the claim, and
    ``r_as_later``: whether they are right with all these changes.

    ``same``: whether a row is of a version; ``agree``: whether both hold the same.
    """
    from pyspark.sql import functions as F

    if versions.with_later is None:
        return stored.withColumns({"r_later": F.lit(False), "r_as_later": F.lit(False)})
    later = versions.later
    of_keys = later.where("e_change <> 'truncate'").selectExpr(*(f"e_{name} AS l_{name}" for name in keys)).distinct()
    of_key = F.expr(" AND ".join(f"r_{name} = l_{name}" for name in keys))
    truncated = later.selectExpr("coalesce(bool_or(e_change = 'truncate'), false) AS of_all")
    found = stored.join(of_keys.withColumn("of_key", F.lit(True)), of_key, "left").crossJoin(F.broadcast(truncated))
    found = found.select(*stored.columns, F.expr("of_all OR of_key IS NOT NULL AS r_later"))
    both = found.join(versions.with_later, same, "left")
    return both.select(*found.columns, F.coalesce(agree, F.lit(False)).alias("r_as_later"))


def with_started(
    events: DataFrame, rows: DataFrame, sink: DeltaHistorySink, columns: StructType, recorded: str | None = None
) -> DataFrame:
    """The events with ``e_started``: whether the table has a version of the key that begins with the event.
    ``columns``: as records have them; ``recorded``: SQL of the time at which it has to be on record."""
    from pyspark.sql import functions as F

    keys = [f"k{index}" for index in range(len(sink.key))]
    shape = as_in(columns, rows)
    span = "__START_AT AS start" + (", __SYSTEM_START_AT AS since, __SYSTEM_END_AT AS until" if recorded else "")
    begun = rows.groupBy(
        *(shape(name).alias(f"s_{key}") for name, key in zip(sink.key, keys, strict=True)),
        *(F.col(f"_{name}").alias(f"s_{name}") for name in _PLACE),
    ).agg(F.expr(f"collect_set(struct({span})) AS spans"))
    of_it = F.expr(" AND ".join(f"e_{name} = s_{name}" for name in (*keys, *_PLACE)))
    then = f" AND each.since <= {recorded} AND (each.until IS NULL OR each.until > {recorded})" if recorded else ""
    started = F.expr(f"coalesce(exists(spans, each -> each.start <=> e_sequence{then}), false)")
    own = [f"s_{name}" for name in (*keys, *_PLACE)]
    return events.join(begun, of_it, "left").withColumn("e_started", started).drop(*own, "spans")


def versions_of(
    events: DataFrame,
    columns: StructType,
    sink: DeltaHistorySink,
    *,
    partial: bool,
    several: bool,
    defaults: Mapping[str, Default],
) -> DataFrame:
    """One row per version: e_k*, the coordinates of its start, e_start, e_end, e_values, e_lacks (of the last record),
    e_lacked (of any of its records), and e_later: whether its key has records after the claim.

    Versions are numbered by counting their starts. A delete belongs to the version that it ends. ``partial``: events
    may lack values; ``several``: as in ``_single``. ``defaults``: of fields that some of them lack; then they say what
    is ``e_started``.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys = [f"e_k{index}" for index in range(len(sink.key))]
    of_key = Window.partitionBy(*keys)
    in_order = of_key.orderBy("e_order")
    single = _single(events, sink, keys, several=several)
    if partial:
        single = _with_absent_values(single, columns, keys)
    starts = F.expr("e_change = 'update'") & (F.expr("cut_before IS NOT NULL") | _differs(columns, sink, defaults))
    numbered = (
        single.withColumn("previous", F.lag(F.struct("e_change", "e_values", "e_lacks")).over(in_order))
        .withColumn("starts", starts)
        .withColumn(
            "number", F.count(F.when(F.col("starts"), 1)).over(in_order.rowsBetween(Window.unboundedPreceding, 0))
        )
    )
    per_version = (
        numbered.where("number > 0")
        .groupBy(*keys, "number")
        .agg(
            F.expr("min_by(struct(e_order, e_values.timestamp AS timestamp), IF(starts, e_order, NULL))").alias(
                "first"
            ),
            F.expr("max_by(e_values, IF(e_change = 'update', e_order, NULL))").alias("last"),
            F.expr("max_by(e_lacks, IF(e_change = 'update', e_order, NULL))").alias("e_lacks"),
            F.expr("coalesce(max(cut), min(IF(e_change = 'delete', e_order, NULL)).e_sequence)").alias("deleted_at"),
            F.max("e_later_too").alias("e_later"),
            F.expr("flatten(collect_set(IF(e_change = 'update', e_lacks, NULL)))").alias("e_lacked"),
        )
        .withColumn("next", F.lead("first.e_order.e_sequence").over(of_key.orderBy("number")))
    )
    values = ", ".join(f"last.v{index} AS v{index}" for index in range(len(columns)))
    return per_version.select(
        *keys,
        *(f"first.e_order.e_{name}" for name in _PLACE),
        F.expr("first.e_order.e_sequence").alias("e_start"),
        F.expr("coalesce(deleted_at, next)").alias("e_end"),
        F.expr(f"struct({values}, first.timestamp AS timestamp)").alias("e_values"),
        "e_later",
        "e_lacks",
        "e_lacked",
    ).where(" AND ".join(f"{key} IS NOT NULL" for key in keys))


def _single(events: DataFrame, sink: DeltaHistorySink, keys: Sequence[str], *, several: bool) -> DataFrame:
    """Of the events of one sequence the last, as a version is at least one sequence long. With e_later_too: whether
    the key has records after the claim; ``cut``: the sequence of the truncate that ends what an update has made, unless
    the key's next event comes before it or with it; and the ``cut_before`` of the event before.

    ``several``: a record may make several events, of which the one whose JSON sorts last counts.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    of_key = Window.partitionBy(*keys)
    in_order = of_key.orderBy("e_order")
    events, truncated_later = _with_next_truncate(events, sink)
    events = events.withColumn("e_later_too", F.max("e_later").over(of_key) | truncated_later)
    rank = F.expr("struct(e_order, e_json, e_change = 'delete')" if several else "e_order")
    last_of_equals = F.max(rank).over(Window.partitionBy(*keys, "e_sequence"))
    single = events.where("NOT e_later").withColumn("last_of_equals", last_of_equals)
    single = single.where(F.col("last_of_equals") == rank)
    cut = "CASE WHEN e_change = 'update' AND (e_next IS NULL OR truncate < e_next) THEN truncate END"
    cuts = single.withColumn("e_next", F.lead("e_sequence").over(in_order)).withColumn("cut", F.expr(cut))
    return cuts.withColumn("cut_before", F.lag("cut").over(in_order))


def _with_next_truncate(events: DataFrame, sink: DeltaHistorySink) -> tuple[DataFrame, Column]:
    """The events of keys, each with ``truncate``: the sequence of the first truncate after it, or null. And whether
    there is a truncate after the claim."""
    from pyspark.sql import functions as F

    if sink.apply_as_truncates in (None, "false"):
        return events.withColumn("truncate", F.expr("IF(true, NULL, e_sequence)")), F.lit(False)
    truncates = events.where("e_change = 'truncate'").selectExpr(
        "array_sort(collect_set(IF(e_later, NULL, e_sequence))) AS truncates",
        "coalesce(bool_or(e_later), false) AS truncated_later",
    )
    of_keys = events.where("e_change <> 'truncate'").crossJoin(F.broadcast(truncates))
    after = F.expr("get(filter(truncates, at -> at > e_sequence), 0)")
    return of_keys.withColumn("truncate", after).drop("truncates"), F.col("truncated_later")


def _differs(columns: StructType, sink: DeltaHistorySink, defaults: Mapping[str, Default]) -> Column:
    """Whether an update has other tracked values than what came before it.

    In a field that a record lacks, its row may have null or the default. Where only this tells whether the two are the
    same, both are right, and the table says which it is.
    """
    from pyspark.sql import functions as F

    if sink.track_history_column_list is not None:
        tracked = [name for name in columns.names if name in sink.track_history_column_list]
    else:
        tracked = [name for name in columns.names if name not in (sink.track_history_except_column_list or ())]

    def watched(change: str, values: Column) -> Column:
        # With the kind of change, so that every update after a delete starts a version.
        its = (values[f"v{index}"].alias(f"v{index}") for index, name in enumerate(columns.names) if name in tracked)
        return F.struct(F.col(change).alias("change"), *its)

    def same(now: Column, then: Column) -> Column:
        return watched("e_change", now).eqNullSafe(watched("previous.e_change", then))

    now, then = F.col("e_values"), F.col("previous.e_values")
    of_tracked = [each for path, each in defaults.items() if path.partition(".")[0] in tracked]
    if not of_tracked:
        return ~same(now, then)
    paths = {each.path for default in of_tracked for each in (default, *default.others)}
    none = F.expr("CAST(array() AS ARRAY<STRING>)")
    lacks = F.array_union(*(F.coalesce(F.col(each), none) for each in ("e_lacks", "previous.e_lacks")))
    may_be = same(*(with_defaults(each, columns, defaults, lacks) for each in (now, then)))
    unsure = may_be & F.arrays_overlap(lacks, F.array(*map(F.lit, sorted(paths))))
    return F.when(unsure, F.col("e_started")).otherwise(~same(now, then))


def _with_absent_values(events: DataFrame, columns: StructType, keys: Sequence[str]) -> DataFrame:
    """The events, where a column that one lacks has the value of the last update before it, up to a delete or a
    truncate."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    before = Window.partitionBy(*keys).orderBy("e_order").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    alike = Window.partitionBy(*keys, "deletes").orderBy("e_order")
    alike = alike.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    afresh = F.expr("CASE WHEN e_change = 'delete' OR cut_before IS NOT NULL THEN 1 END")
    counted = events.withColumn("deletes", F.count(afresh).over(before))
    latest = []
    for index, name in enumerate(columns.names):
        there = f"e_change = 'update' AND NOT array_contains(e_absent, lower({literal(name)}))"
        box = F.expr(f"IF({there}, struct(e_values.v{index} AS v), NULL)")
        latest.append(F.last(box, ignorenulls=True).over(alike)["v"].alias(f"v{index}"))
    return counted.withColumn("e_values", F.struct(*latest, F.col("e_values.timestamp").alias("timestamp")))
