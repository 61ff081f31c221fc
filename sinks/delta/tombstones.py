"""Tombstones: deletes that the pipeline must remember, and that no reader of the table should see.

A deleted row can't tell that a late update is older than its delete. So deletes are kept in a small table of their own,
in the folder ``_lakelock/tombstones`` under the table. Delta's readers and VACUUM ignore that folder.

Two tables can't share one commit. So a tombstone is written *before* the commit of its epoch, and counts only once the
table's position has passed its record. A crash between the two leaves tombstones that don't count. The next run reads
their records again, and may find by a mended pipeline file that they delete nothing. So a run first removes the
tombstones that the position hasn't passed (``Tombstones.left_over``). The same after a RESTORE of the table. Otherwise
they would count as soon as the position passes their records once more.

A dead letter that is tried again is the exception: the position has passed its record, so what it deletes counts at
once, also if the retry is never committed, or is taken back. So a retry first removes the tombstones of the records
that it tries (``Tombstones.forget``), and writes those that it still needs anew.

A clone of a table has none of its tombstones. A run copies them before its first epoch there, see
``Tombstones.take_over``.

Not every run keeps its deletes. So a property of the table tells since when none was forgotten. A run that keeps them
sets the property, and a run that doesn't removes it, both before their first epoch. A RESTORE of the table takes the
property back as well.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from sinks.delta.append import evolution
from sinks.delta.conflicts import done_or_left, past_conflicts
from sinks.delta.sql_layout import any_of
from sinks.delta.table import CHANGING, COORDINATES, DeltaTable
from sinks.offsets import Offsets, TopicPartition
from sinks.recreated import is_retired
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

FOLDER = "_lakelock/tombstones"
_EXPIRE_EVERY = timedelta(hours=1)
_SINCE = "lakelock.deletes_since"


def remembering() -> dict[str, str]:
    """Properties of a new table whose deletes are kept from now on."""
    return {_SINCE: datetime.now(timezone.utc).isoformat()}


def deletes_since(table: DeltaTable) -> datetime | None:
    """The time since which every delete in the table was kept. None: the last run kept none."""
    detail = table.detail()
    since = detail.properties.get(_SINCE) if detail is not None else None
    return datetime.fromisoformat(since) if since is not None else None


def remember_deletes(table: DeltaTable, *, kept: bool) -> None:
    """Say in the table, before the first epoch of a run, whether the run keeps its deletes."""
    if kept == (deletes_since(table) is not None):
        return
    said = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in remembering().items())
    change = f"SET TBLPROPERTIES ({said})" if kept else f"UNSET TBLPROPERTIES IF EXISTS ({literal(_SINCE)})"
    table.spark.sql(f"ALTER TABLE {table.sql} {change}").collect()
    table.forget()


@dataclass(frozen=True)
class LeftOver:
    """Tombstones that no committed epoch has written, as they were when somebody looked."""

    table: DeltaTable
    where: str
    """SQL that is true of them."""
    number: int

    def delete(self) -> None:
        """Delete them. An epoch that was planned before may still be committed, and would then lack its tombstones. So
        fence it first."""
        past_conflicts(lambda: self.table.spark.sql(f"DELETE FROM {self.table.sql} WHERE {self.where}").collect())


def forgotten(table: DeltaTable) -> None:
    """Say in the table that deletes are kept from now on only, if it says that they were kept before."""
    if deletes_since(table) is not None:
        remember_deletes(table, kept=False)
        remember_deletes(table, kept=True)


class Tombstones:
    """The tombstones of one table.

    Columns: those of the key (NULL for a truncate), ``_sequence`` if the table is ordered by one, the coordinates of
    the record that deletes, and ``_noted_at``, when the tombstone was written.
    """

    def __init__(self, table: DeltaTable, key: Sequence[str]) -> None:
        """``table``: the table whose deletes are kept; ``key``: its key columns."""
        self._of = table
        self._key = key
        self._table: DeltaTable | None = None
        self._any = False
        self._expired: datetime | None = None

    @property
    def table(self) -> DeltaTable:
        """The table of tombstones, which may not exist yet. Raises ValueError if the table itself doesn't exist."""
        return self._at()

    def passed_sql(self, position: Offsets | None) -> str | None:
        """SQL, as in FROM, of the tombstones of records before a position. May contain a tombstone twice.

        ``position``: next offset per topic-partition; None: all tombstones count. Returns None if there never was one.
        """
        table = self._at()
        if not self._exists(table):
            return None
        if position is None:
            return table.sql
        passed = any_of(f"({_of(at)} AND _offset < {offset})" for at, offset in position.items())
        return f"(SELECT * FROM {table.sql} WHERE {passed or 'false'})"

    def left_over(self, position: Offsets, topics: Container[str]) -> LeftOver | None:
        """The tombstones of records that are still to be read. None: there is none.

        ``position``: next offset per topic-partition; ``topics``: those that the pipeline reads. A partition that the
        position doesn't name is read from its beginning.
        """
        table = self._at()
        if not self._exists(table):
            return None
        # Not as NOT (... < ...): so Delta skips the files of earlier records.
        ahead = [f"({_of(at)} AND _offset >= {offset})" for at, offset in position.items()]
        unnamed = [f"NOT ({_of(at)})" for at in position]
        where = any_of([*ahead, f"({' AND '.join(unnamed) or 'true'})"])
        found = table.spark.sql(
            f"SELECT _topic, count(*) AS n, max(unix_micros(_noted_at)) AS noted FROM {table.sql} "
            f"WHERE {where} GROUP BY _topic"
        ).collect()
        stale = [row for row in found if row["_topic"] in topics and not is_retired(row["_topic"])]
        if not stale:
            return None
        # Another run may add its own from now on.
        noted = f"_noted_at <= timestamp_micros({max(row['noted'] for row in stale)})"
        names = ", ".join(literal(row["_topic"]) for row in stale)
        return LeftOver(table, f"_topic IN ({names}) AND {noted} AND ({where})", sum(row["n"] for row in stale))

    def forget(self, records: str) -> None:
        """Delete the tombstones of these records.

        ``records``: SQL of distinct ``_topic``, ``_partition`` and ``_offset``, as in FROM.
        """
        if self._of.detail() is None or not self._exists(self._at()):
            return
        sql = forgetting_sql(self._at().sql, records)
        past_conflicts(lambda: self._at().spark.sql(sql).collect())

    def add(self, deletes: DataFrame) -> None:
        """Write a tombstone for each of these rows. Call it before the commit of their epoch.

        ``deletes``: the columns named above, except ``_noted_at``; other columns are ignored.
        """
        self._append(self._notes(deletes))

    def make(self, deletes: DataFrame) -> None:
        """Make the table of tombstones if it is missing; ``deletes``: with the columns as in ``add``."""
        self._made(self._notes(deletes).schema)

    def _made(self, notes: StructType) -> DeltaTable:
        table = self._at()
        if not self._exists(table):
            table.create(notes, CHANGING)
        return table

    def _append(self, notes: DataFrame) -> None:
        table = self._made(notes.schema)
        table.allow_widening(notes.schema)
        # Written twice, a tombstone counts once.
        past_conflicts(notes.writeTo(table.sql).options(**evolution(table)).append)

    def _notes(self, deletes: DataFrame) -> DataFrame:
        wanted = [*self._key, *(["_sequence"] if "_sequence" in deletes.columns else []), *COORDINATES]
        return deletes.selectExpr(*(identifier(name) for name in wanted), "current_timestamp() AS _noted_at")

    def take_over(self, of: DeltaTable, position: Offsets) -> None:
        """Copy another table's tombstones of records before a position, unless they are here already."""
        from pyspark.sql import functions as F

        found = Tombstones(of, self._key).passed_sql(position)
        if found is None:
            return
        table, notes = self._at(), of.spark.sql(f"SELECT * FROM {found}").alias("s")
        if self._exists(table):
            there = [F.col(f"s.{name}").eqNullSafe(F.col(f"t.{name}")) for name in map(identifier, self._named)]
            notes = notes.join(table.spark.table(table.sql).alias("t"), there, "left_anti")
        if not notes.isEmpty():
            self._append(notes)

    @property
    def _named(self) -> Sequence[str]:
        """The columns that tell one tombstone from another."""
        return [*self._key, *COORDINATES[:3]]

    def add_sequence(self, sequence: StructField) -> None:
        """Before the table's first epoch, if it is to be ordered by a sequence now: get the column, if there are
        tombstones of an epoch that failed. They have no sequence, and are older than every change."""
        table = self._at()
        if self._exists(table):
            table.add_columns([sequence])

    def expire(self, before: datetime) -> None:
        """Delete the tombstones written before a time. An older update that arrives afterwards brings its row back.

        If another writer's commits come first again and again, the tombstones stay until the next time.
        """
        table = self._at()
        if self._exists(table):
            sql = f"DELETE FROM {table.sql} WHERE _noted_at < timestamp_micros({_micros(before)})"
            done_or_left(lambda: table.spark.sql(sql).collect(), f"expired tombstones of {self._of.label!r}")

    def expire_now_and_then(self, retention: timedelta) -> None:
        """Delete the tombstones older than ``retention``. Does nothing if it did so within the last hour."""
        now = datetime.now(timezone.utc)
        if self._expired is None or now - self._expired >= _EXPIRE_EVERY:
            self.expire(now - retention)
            self._expired = now

    def _exists(self, table: DeltaTable) -> bool:
        """Looks until the table exists: another member of the consumer group may create it."""
        self._any = self._any or table.exists()
        return self._any

    def _at(self) -> DeltaTable:
        if self._table is None:
            detail = self._of.detail()
            if detail is None:
                raise ValueError(f"{self._of.label!r} has to be made first")
            # These columns widen together with the table's columns.
            path = f"{detail.location.rstrip('/')}/{FOLDER}"
            self._table = DeltaTable(self._of.spark, path=path, on_new_column="add")
        return self._table


def forgetting_sql(target: str, records: str) -> str:
    """The statement of ``Tombstones.forget``; ``target``: SQL of the table of tombstones. A MERGE, because Delta's
    DELETE takes no subquery."""
    same = " AND ".join(f"t.{name} = s.{name}" for name in COORDINATES[:3])
    return f"MERGE INTO {target} AS t\nUSING {records} AS s\nON {same}\nWHEN MATCHED\n  THEN DELETE"


def _of(at: TopicPartition) -> str:
    """SQL that is true of a record of this partition."""
    return f"_topic = {literal(at.topic)} AND _partition = {at.partition}"


def _micros(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)
