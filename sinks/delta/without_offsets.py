"""The weaker deliveries' writes: plain Delta commits that keep no offsets, know no epoch and prove nothing.

What is promised is the delivery's business: written again, an append adds its rows again. Only a guarded upsert
(``idempotent``) ignores what it holds already, by the offsets in its rows and in its tombstones.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sinks.contract import Committed, Epoch
from sinks.delta.append import evolution
from sinks.delta.commit import without_position
from sinks.delta.conflicts import past_conflicts
from sinks.delta.merge import Merge
from sinks.delta.moved import about_moved_keys
from sinks.delta.table import DeltaTable
from sinks.delta.upsert import Merges
from sinks.delta.upsert_rule import SOURCE, UpsertRule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class PlainAppend:
    def __init__(self, table: DeltaTable) -> None:
        self._table = table

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        writer = rows.writeTo(self._table.sql)
        for name, value in evolution(self._table).items():
            writer = writer.option(name, value)
        past_conflicts(writer.append)
        return without_position(epoch, None)


class PlainUpsert:
    """With ``rule.guarded`` a change at or below the stored order is ignored. Else the last writer wins."""

    def __init__(
        self,
        table: DeltaTable,
        *,
        rule: UpsertRule,
        tombstone_retention: timedelta = timedelta(days=7),
    ) -> None:
        self._table = table
        self._merges = Merges(table, rule, keep=rule.guarded and not rule.soft, retention=tombstone_retention)

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        def commit(source: DataFrame, merge: Merge) -> int:
            source.createOrReplaceTempView(SOURCE)
            sql = merge.statement(self._table.sql, SOURCE)
            counts = past_conflicts(lambda: self._table.spark.sql(sql).first())
            return counts["num_affected_rows"] if counts else 0

        with about_moved_keys(self._table.label):
            # Nobody but the group knows how far the table is: all tombstones count.
            affected = self._merges.run(rows, None, commit)
        return without_position(epoch, affected)
