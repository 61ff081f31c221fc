"""The weaker deliveries' writes: plain Delta commits that keep no offsets, know no epoch and prove nothing.

What is promised is the delivery's business: written again, an append adds its rows again. Only a guarded upsert
(``idempotent``) ignores what it holds already, by the offsets in its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sinks.contract import Committed, Epoch, Position
from sinks.delta.commit import past_conflicts
from sinks.delta.table import DeltaTable
from sinks.delta.upsert import SOURCE, about_moved_keys, merge_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class PlainAppend:
    def __init__(self, table: DeltaTable) -> None:
        self._table = table

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        past_conflicts(rows.writeTo(self._table.sql).append)
        return _committed(epoch, None)


class PlainUpsert:
    """``guarded``: an update whose offset is <= the stored one is ignored. Else the last writer wins."""

    def __init__(self, table: DeltaTable, *, key: Sequence[str], guarded: bool) -> None:
        self._table, self._key, self._guarded = table, key, guarded

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        merge = merge_sql(self._table.sql, self._key, rows.columns, guarded=self._guarded)
        rows.createOrReplaceTempView(SOURCE)
        with about_moved_keys(self._table.label):
            counts = past_conflicts(lambda: self._table.spark.sql(merge).first())
        return _committed(epoch, counts["num_affected_rows"] if counts else 0)


def _committed(epoch: Epoch, rows: int | None) -> Committed:
    return Committed(Position(epoch.number, epoch.offsets, owner=epoch.owner, delivery=epoch.delivery), rows)
