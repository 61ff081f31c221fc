"""Tombstones: deletes that the pipeline must remember, and that no reader of the table should see.

A deleted row can't tell that a late update is older than its delete. So deletes are kept in a small table of their own,
in the folder ``_lakelock/tombstones`` under the table. Delta's readers and VACUUM ignore that folder.

Two tables can't share one commit. So a tombstone is written *before* the commit of its epoch, and counts only once the
table's position has passed its record. A crash between the two leaves tombstones that don't count. The next run reads
their records again, and may find by a mended pipeline file that they delete nothing. So a run first removes the
tombstones that the position hasn't passed (``Tombstones.left_over``). The same after a RESTORE of the table. Otherwise
they would count as soon as the position passes their records once more.

A RESTORE may be undone by another one. So what is removed is kept aside, in another table beside it, with the number of
the epoch that it was forgotten at. A RESTORE to an earlier epoch, which had passed its record, brings it back
(``Tombstones.bring_back``): at that epoch it wasn't forgotten yet.

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
from functools import cached_property, partial
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
FORGOTTEN = "_lakelock/forgotten_tombstones"
_AT = "_forgotten_at"
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
    aside: DeltaTable
    """Where they are kept. It may not exist yet."""

    def delete(self, at: int | None) -> None:
        """Delete them, and keep them aside. An epoch that was planned before may still be committed, and would then
        lack its tombstones. So fence it first.

        ``at``: the number of the last epoch, which a RESTORE may undo; None: there is none yet, and nothing is kept. A
        crash between the two leaves them in both tables. The next run does both steps again: what is aside twice counts
        once.
        """
        if at is not None:
            sql = f"SELECT *, {int(at)}L AS {_AT} FROM {self.table.sql} WHERE {self.where}"
            rows = self.table.spark.sql(sql)
            if not self.aside.exists():
                self.aside.create(rows.schema, CHANGING)
            _append(rows, self.aside)
        _delete(self.table, self.where)


def forgotten(table: DeltaTable) -> None:
    """Say in the table that deletes are kept from now on only, if it says that they were kept before."""
    if deletes_since(table) is not None:
        remember_deletes(table, kept=False)
        remember_deletes(table, kept=True)


class Tombstones:
    """The tombstones of one table.

    Columns: those of the key (NULL for a truncate), ``_sequence`` if the table is ordered by one, the coordinates of
    the record that deletes, ``_noted_at``, when the tombstone was written, and ``_noted_by``, the run and the epoch
    that did so (NULL: written before there was this column, or by a delivery that nothing fences).
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
        return f"(SELECT * FROM {table.sql} WHERE {_passed(position)})"

    def left_over(self, position: Offsets, topics: Container[str]) -> LeftOver | None:
        """The tombstones of records that are still to be read. None: there is none.

        ``position``: next offset per topic-partition; ``topics``: those that the pipeline reads. A partition that the
        position doesn't name is read from its beginning.
        """
        table = self._at()
        if not self._exists(table):
            return None
        where = ahead_sql(position)
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
        where = f"_topic IN ({names}) AND {noted} AND ({where})"
        return LeftOver(table, where, sum(row["n"] for row in stale), self.aside)

    def bring_back(self, position: Offsets, restored_to: int) -> None:
        """After a RESTORE: count again what was forgotten only after the epoch that the table went back to.

        ``position``, ``restored_to``: next offset per topic-partition, and the number of that epoch. May be called
        again. A crash on the way leaves tombstones in both tables: brought back twice, one counts once.
        """
        if self._of.detail() is None or not self.aside.exists():
            return
        where = again_sql(position, restored_to)
        again = self._of.spark.sql(f"SELECT * FROM {self.aside.sql} WHERE {where}").drop(_AT)
        if not again.isEmpty():
            self._append(again)
            _delete(self.aside, where)

    def forget(self, records: str) -> None:
        """Delete the tombstones of these records.

        ``records``: SQL of distinct ``_topic``, ``_partition`` and ``_offset``, as in FROM.
        """
        if self._of.detail() is None or not self._exists(self._at()):
            return
        past_conflicts(partial(_run, self._at(), forgetting_sql(self._at().sql, records)))

    def add(self, deletes: DataFrame, by: str | None = None) -> None:
        """Write a tombstone for each of these rows. Call it before the commit of their epoch.

        ``deletes``: the columns named above, except ``_noted_at`` and ``_noted_by``; other columns are ignored. ``by``:
        see ``forget_noted``.
        """
        self._append(self._notes(deletes, by))

    def forget_noted(self, by: str) -> None:
        """Delete what was added ``by`` an epoch that isn't committed, and never will be."""
        table = self._at()
        if self._exists(table) and "_noted_by" in table.schema.names:
            sql = f"DELETE FROM {table.sql} WHERE _noted_by = {literal(by)}"
            past_conflicts(lambda: table.spark.sql(sql).collect())

    def make(self, deletes: DataFrame) -> None:
        """Make the table of tombstones if it is missing; ``deletes``: with the columns as in ``add``."""
        self._made(self._notes(deletes).schema)

    def _made(self, notes: StructType) -> DeltaTable:
        table = self._at()
        if not self._exists(table):
            table.create(notes, CHANGING)
        return table

    def _append(self, notes: DataFrame) -> None:
        # Written twice, a tombstone counts once.
        _append(notes, self._made(notes.schema))

    def _notes(self, deletes: DataFrame, by: str | None = None) -> DataFrame:
        wanted = [*self._key, *(["_sequence"] if "_sequence" in deletes.columns else []), *COORDINATES]
        noted_by = f"CAST({literal(by) if by is not None else 'NULL'} AS STRING) AS _noted_by"
        return deletes.selectExpr(*map(identifier, wanted), "current_timestamp() AS _noted_at", noted_by)

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
        there = [self._at()] if self._exists(self._at()) else []
        there += [self.aside] if self.aside.exists() else []
        for table in there:
            sql = f"DELETE FROM {table.sql} WHERE _noted_at < timestamp_micros({_micros(before)})"
            done_or_left(partial(_run, table, sql), f"expired tombstones of {self._of.label!r}")

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
            self._table = self._beside(FOLDER)
        return self._table

    @cached_property
    def aside(self) -> DeltaTable:
        """The table of what was forgotten, which may not exist yet."""
        return self._beside(FORGOTTEN)

    def _beside(self, folder: str) -> DeltaTable:
        detail = self._of.detail()
        if detail is None:
            raise ValueError(f"{self._of.label!r} has to be made first")
        # These columns widen together with the table's columns.
        return DeltaTable(self._of.spark, path=f"{detail.location.rstrip('/')}/{folder}", on_new_column="add")


def forgetting_sql(target: str, records: str) -> str:
    """The statement of ``Tombstones.forget``; ``target``: SQL of the table of tombstones. A MERGE, because Delta's
    DELETE takes no subquery."""
    same = " AND ".join(f"t.{name} = s.{name}" for name in COORDINATES[:3])
    return f"MERGE INTO {target} AS t\nUSING {records} AS s\nON {same}\nWHEN MATCHED\n  THEN DELETE"


def ahead_sql(position: Offsets) -> str:
    """SQL that is true of a tombstone of a record that is still to be read: see ``Tombstones.left_over``."""
    # Not as NOT (... < ...): so Delta skips the files of earlier records.
    ahead = [f"({_of(at)} AND _offset >= {offset})" for at, offset in position.items()]
    unnamed = [f"NOT ({_of(at)})" for at in position]
    return any_of([*ahead, f"({' AND '.join(unnamed) or 'true'})"])


def again_sql(position: Offsets, restored_to: int) -> str:
    """SQL that is true of a tombstone aside that counts again: see ``Tombstones.bring_back``."""
    return f"{_AT} > {int(restored_to)} AND ({_passed(position)})"


def _passed(position: Offsets) -> str:
    """SQL that is true of a tombstone of a record before these offsets."""
    return any_of(f"({_of(at)} AND _offset < {offset})" for at, offset in position.items()) or "false"


def _append(notes: DataFrame, table: DeltaTable) -> None:
    table.allow_widening(notes.schema)
    past_conflicts(notes.writeTo(table.sql).options(**evolution(table)).append)


def _delete(table: DeltaTable, where: str) -> None:
    past_conflicts(partial(_run, table, f"DELETE FROM {table.sql} WHERE {where}"))


def _run(table: DeltaTable, sql: str) -> None:
    table.spark.sql(sql).collect()


def _of(at: TopicPartition) -> str:
    """SQL that is true of a record of this partition."""
    return f"_topic = {literal(at.topic)} AND _partition = {at.partition}"


def _micros(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)
