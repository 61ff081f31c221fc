"""Deletes that have to be remembered, and that no reader of the table should see: in a small table of their own.

A row that is gone can't say that a late update is older than its delete. So deletes are kept beside the table, in the
folder ``_lakelock/tombstones`` under it, which Delta's readers and VACUUM pass over.

Two tables can't share one commit, so a tombstone is only a *note on a record*: it is written before the commit of its
epoch, and counts from then on that the table's position has passed its record. A crash in between leaves notes that
don't count; the next run reads their records again, and writes them a second time, which changes nothing. A RESTORE
of the table takes back what a note counts for in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from sinks.delta.append import evolution
from sinks.delta.table import COORDINATES, DeltaTable
from sinks.offsets import Offsets
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLDER = "_lakelock/tombstones"
_EXPIRE_EVERY = timedelta(hours=1)


class Tombstones:
    """Rows: the key's columns, ``_sequence`` where the table has one, the coordinates of the record that deleted, and
    ``_noted_at``. A truncate has nulls for a key."""

    def __init__(self, table: DeltaTable, key: Sequence[str]) -> None:
        self._of = table
        self._key = key
        self._table: DeltaTable | None = None
        self._any = False
        self._expired: datetime | None = None

    @property
    def table(self) -> DeltaTable:
        """Where they are kept, or would be."""
        return self._at()

    def passed_sql(self, position: Offsets | None) -> str | None:
        """What comes after FROM for those that count at this position; all where it is None. May hold one twice. None:
        there never was any."""
        table = self._at()
        if not self._exists(table):
            return None
        if position is None:
            return table.sql
        passed = [
            f"_topic = {literal(at.topic)} AND _partition = {at.partition} AND _offset < {offset}"
            for at, offset in position.items()
        ]
        return f"(SELECT * FROM {table.sql} WHERE {' OR '.join(f'({each})' for each in passed) or 'false'})"

    def add(self, deletes: DataFrame) -> None:
        """``deletes`` may have more columns. Before the commit of their epoch."""
        table = self._at()
        wanted = [*self._key, *(["_sequence"] if "_sequence" in deletes.columns else []), *COORDINATES]
        notes = deletes.selectExpr(*(identifier(name) for name in wanted), "current_timestamp() AS _noted_at")
        if not self._exists(table):
            table.create(notes.schema)
        table.allow_widening(notes.schema)
        notes.writeTo(table.sql).options(**evolution(table)).append()

    def expire(self, before: datetime) -> None:
        """Forget older notes: an update that comes later than that may bring its row back."""
        table = self._at()
        if self._exists(table):
            table.spark.sql(f"DELETE FROM {table.sql} WHERE _noted_at < timestamp_micros({_micros(before)})").collect()

    def expire_now_and_then(self, retention: timedelta) -> None:
        """Forget notes older than ``retention``, at most once an hour."""
        now = datetime.now(timezone.utc)
        if self._expired is None or now - self._expired >= _EXPIRE_EVERY:
            self.expire(now - retention)
            self._expired = now

    def _exists(self, table: DeltaTable) -> bool:
        """Asked until it is there: another member of the consumer group may make it."""
        self._any = self._any or table.exists()
        return self._any

    def _at(self) -> DeltaTable:
        if self._table is None:
            detail = self._of.detail()
            if detail is None:
                raise ValueError(f"{self._of.label!r} has to be made first")
            # As the table's own columns get wider, so do these.
            path = f"{detail.location.rstrip('/')}/{FOLDER}"
            self._table = DeltaTable(self._of.spark, path=path, on_new_column="add")
        return self._table


def _micros(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)
