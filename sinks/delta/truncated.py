"""Truncates in a history: each ends all versions that are current at its sequence.

A truncate has no key, so it is an event of every key, and the weakest one: a key that has an event of its own at that
sequence isn't concerned. So rows that are sent whole again and again, under the number of their snapshot, end where a
snapshot no longer has them, if a truncate of the same number ends that snapshot.

What a truncate has ended keeps nothing of it. The row's end alone tells: no version of the key starts there, and
``_state`` has no delete. Truncates are kept as the tombstones are, as a late version may have to end at one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sinks.delta.table import DeltaTable
from sinks.delta.version_columns import END, START, VersionColumns, struct_of
from sinks.spark.cached import uncached
from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

TRUNCATE = "_truncate"
"""A column of events, if there may be truncates: whether one is."""


def split(events: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    """The events that have a key, and the truncates; None: there can't be any."""
    if TRUNCATE not in events.columns:
        return events, None
    return events.where(f"NOT {TRUNCATE}").drop(TRUNCATE), events.where(TRUNCATE)


def deleting(events: DataFrame, key: Sequence[str]) -> DataFrame:
    """The deletes and the truncates among the events, as tombstones have them: a truncate has no key."""
    if TRUNCATE not in events.columns:
        return events.where("_delete")
    names = {name: f"CASE WHEN NOT {TRUNCATE} THEN {identifier(name)} END AS {identifier(name)}" for name in key}
    columns = (names.get(name, identifier(name)) for name in events.columns)
    return events.where(f"_delete OR {TRUNCATE}").selectExpr(*columns)


def known(truncates: DataFrame | None, tombstones: DataFrame | None, key: str) -> DataFrame | None:
    """The sequences (``at``) of all truncates that are known, and whether the epoch brings one of them (``incoming``).

    ``truncates``: of the epoch; ``tombstones``: those that count; ``key``: a column of the table's key. None: there
    are none.
    """
    found = None
    if truncates is not None:
        found = truncates.selectExpr("_sequence AS at", "true AS incoming")
    if tombstones is not None and "_sequence" in tombstones.columns:
        before = tombstones.where(f"{identifier(key)} IS NULL").selectExpr("_sequence AS at", "false AS incoming")
        found = before if found is None else found.unionByName(before)
    return None if found is None else found.groupBy("at").agg({"incoming": "max"}).toDF("at", "incoming")


def touched_by(truncates: DataFrame, table: DeltaTable, key: VersionColumns) -> DataFrame:
    """The keys (``key``) whose versions an epoch's truncates may end, and the ``first`` of these truncates."""
    from pyspark.sql import functions as F

    versions = uncached(table.spark, table.sql).where("_offset IS NOT NULL")
    versions = versions.selectExpr(f"{struct_of(key.key)} AS key", START, END)
    at = truncates.selectExpr("_sequence AS at").distinct()
    current = F.expr(f"{START} < at AND ({END} IS NULL OR at < {END})")
    return versions.join(F.broadcast(at), current).selectExpr("key", "at AS first")


def points(truncates: DataFrame, touched: DataFrame, columns: VersionColumns, events: StructType) -> DataFrame:
    """What the truncates are to the keys, as points of ``sinks.delta.history``.

    ``truncates``: as ``known`` gives them; ``touched``: each ``key`` with its ``first`` event; ``events``: their
    schema.
    """
    from pyspark.sql import functions as F

    return touched.join(F.broadcast(truncates), F.expr("at >= first")).selectExpr(
        "key", f"{columns.truncate('at', events)} AS event", "true AS deletes", "incoming"
    )
