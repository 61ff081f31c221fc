"""Tombstones: deletes that the pipeline must remember, and that no reader of the table should see.

A deleted row can't tell that a late update is older than its delete. So deletes are kept in a small table of their own,
in the folder ``_lakelock/tombstones`` under the table. Delta's readers and VACUUM ignore that folder.

Two tables can't share one commit. So a tombstone is written *before* the commit of its epoch, and counts only once the
table's position has passed its record. A crash between the two leaves tombstones that don't count. The next run reads
their records again, and may find by a mended pipeline file that they delete nothing. So a run first removes the
tombstones that the position hasn't passed (``Tombstones.left_over``). The same after a RESTORE of the table. Otherwise
they would count as soon as the position passes their records once more.

A RESTORE also undoes epochs whose records the position has passed: those after an earlier RESTORE had read them again,
by a file in which they are deletes, or they were dead letters. So a tombstone says which epoch has noted it, and a
RESTORE to an earlier epoch removes it. One of the next number stays, as another run may be about to commit it. So what
a killed run has noted counts, if no run has started since, and the table then goes to a version that has passed its
record.

A RESTORE may be undone by another one. So what is removed is kept aside, in another table beside it, with the number of
the epoch that it was forgotten at. It counts from the epoch that noted it up to that one, and a RESTORE to an epoch
between them brings it back, if that had passed its record (``Tombstones.went_back``). What comes back is a copy, which
counts from the next epoch on: at those between, it was forgotten. The tombstone aside stays, for the next RESTORE.

A dead letter that is tried again is the exception: the position has passed its record, so what it deletes counts at
once, also if the retry is never committed. So a retry first removes the tombstones of the records that it tries
(``Tombstones.forget``), and writes those that it still needs anew. A delete that a killed retry has left counts for the
epochs since, so it comes back with them. The letter is open then, and the next retry removes it again.

A clone of a table has none of its tombstones. A run copies them before its first epoch there, see
``Tombstones.take_over``.

Not every run keeps its deletes, and tombstones expire. ``sinks.delta.kept_deletes`` has what a table tells of that.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import cached_property, partial
from typing import TYPE_CHECKING

from sinks.contract import Epoch, Position
from sinks.delta.conflicts import done_or_left, past_conflicts
from sinks.delta.expiry import expires_before
from sinks.delta.kept_deletes import expired_before, none_expired, remember_deletes, say_expired
from sinks.delta.left_over import LeftOver, append, delete, keep, run
from sinks.delta.one_type import are_nested, as_in, beside, keyed, selected
from sinks.delta.renamed_key import refuse_renamed
from sinks.delta.sql_layout import listed
from sinks.delta.table import CHANGING, COORDINATES, DeltaTable
from sinks.delta.which_tombstones import (
    FORGOTTEN_AT,
    again_sql,
    ahead_sql,
    came_back,
    copies_sql,
    forgetting_sql,
    not_retired_sql,
    noted_until_sql,
    other_copies_sql,
    passed_sql,
    undone_sql,
)
from sinks.offsets import Offsets
from sinks.recreated import is_retired, with_retired_names
from sinks.spark.sql import identifier, literal, renamed_sql
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

FOLDER = "_lakelock/tombstones"
FORGOTTEN = "_lakelock/forgotten_tombstones"
_EXPIRE_EVERY = timedelta(hours=1)
_OWN = ("_sequence", *COORDINATES, "_noted_at", "_noted_by", FORGOTTEN_AT)


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

    def refuse_renamed(self, advice: str | None = None, *, counts: Callable[[], bool] = lambda: True) -> None:
        """Raises SchemaMismatch if they are kept by other columns than the key's. ``advice``: what to do then;
        ``counts``: whether the table holds changes, or has, which they could be about."""
        if self._of.detail() is not None and self._exists(self._at()):
            tables = [self._at(), *([self.aside] if self.aside.exists() else [])]
            refuse_renamed(
                self._of.label, tables, self._key, _OWN, advice, unused=lambda: None if counts() else self._key_types()
            )

    def _key_types(self) -> Mapping[str, str]:
        there = {field.name.lower(): sql_type(field.dataType) for field in self._of.schema}
        return {name: there[name.lower()] for name in self._key}

    def passed_sql(self, position: Offsets | None, compared: StructType | None = None) -> str | None:
        """SQL, as in FROM, of the tombstones of records before a position. May contain a tombstone twice.

        ``position``: next offset per topic-partition; None: all tombstones count. ``compared``: the columns of the rows
        whose keys they are compared with. Returns None if there never was one.
        """
        table = self._at()
        if not self._exists(table):
            return None
        columns = self._columns(compared) if compared is not None else "*"
        if position is None:
            return table.sql if columns == "*" else f"(SELECT {columns} FROM {table.sql})"
        return f"(SELECT {columns} FROM {table.sql} WHERE {passed_sql(position)})"

    def _columns(self, compared: StructType) -> str:
        """What a SELECT names, so that the fields of nested keys are in the order of ``compared``. The table of
        tombstones may have another one: it keeps that of the rows that it was made with."""
        if not are_nested(compared, beside(self._key, compared)):
            return "*"
        there = self._at().schema
        values = as_in(compared, there, _OWN, grows=False)
        return listed(selected(there.names, values)) if values else "*"

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

    def not_retired(self, position: Offsets, names: Mapping[str, str]) -> LeftOver | None:
        """The tombstones with the names of retirements that aren't part of what led to a position. None: there is none.

        ``names``: see ``name_back``.
        """
        if not names or not self._exists(self._at()):
            return None
        where = not_retired_sql(position, names)
        found = self._at().spark.sql(f"SELECT count(*) AS n FROM {self._at().sql} WHERE {where}").collect()
        return LeftOver(self._at(), where, found[0]["n"], self.aside) if found[0]["n"] else None

    def name_back(self, left: LeftOver, names: Mapping[str, str], at: int) -> None:
        """Give ``not_retired`` their topics' names again: ``names``: topic -> its retired name. What had the other one
        is kept aside, for a RESTORE to an epoch after the retirement. ``at``: as in ``LeftOver.delete``. May be called
        again."""
        topic = renamed_sql("_topic", {new: old for old, new in names.items()})
        columns = [f"{topic} AS _topic" if name == "_topic" else identifier(name) for name in left.table.schema.names]
        notes = left.table.spark.sql(f"SELECT {', '.join(columns)} FROM {left.table.sql} WHERE {left.where}")
        missing = self._missing(notes, self._named)
        if not missing.isEmpty():
            self._append(missing)
        left.delete(at)

    def went_back(self, position: Offsets, restored_to: int, at: int) -> None:
        """After a RESTORE: forget what epochs noted that it has undone, and count again what was forgotten later.

        ``position``, ``restored_to``: next offset per topic-partition, and the number of the epoch that the table went
        back to; ``at``: the number of the next epoch. May be called again, until that epoch is committed.

        ====================  ==========================================================================================
        crash                 what is left
        ====================  ==========================================================================================
        before the DELETE     Undone tombstones in both tables, or in one: see ``LeftOver.delete``.
        before the copies     Some that would count are missing. The next run copies them, before its first epoch.
        after the copies      Nothing is left to do. What is there isn't copied again. If the table is restored to
                              another epoch before the next commit, copies of this one are removed first.
        ====================  ==========================================================================================
        """
        if self._of.detail() is None:
            return
        table, by = self._at(), came_back(restored_to, at)
        if self._exists(table) and "_noted_by" in table.schema.names:
            undone = undone_sql(restored_to, at)
            if not table.spark.sql(f"SELECT 1 FROM {table.sql} WHERE {undone}").isEmpty():
                LeftOver(table, undone, 0, self.aside).delete(at)
            others = other_copies_sql(by)
            if not table.spark.sql(f"SELECT 1 FROM {table.sql} WHERE {others}").isEmpty():
                delete(table, others)
        if not self.aside.exists():
            return
        known = "_noted_by" in self.aside.schema.names
        where = again_sql(position, restored_to, known=known)
        again = self._of.spark.sql(f"SELECT * FROM {self.aside.sql} WHERE {where}").drop(FORGOTTEN_AT, "_noted_by")
        again = again.selectExpr("*", f"{literal(by)} AS _noted_by")
        missing = self._missing(again, [*self._named, "_noted_by"])
        if not missing.isEmpty():
            self._append(missing)

    def forget(self, records: str, at: int | None = None) -> None:
        """Delete the tombstones of these records.

        ``records``: SQL of distinct ``_topic``, ``_partition`` and ``_offset``, as in FROM; ``at``: the number of the
        epoch that tries them again; None: a RESTORE has undone that, and what came back with it stays.

        A retry keeps aside what came back, which is of a committed epoch for sure. A crash before the deletion leaves
        it in both tables, as with ``LeftOver.delete``. A crash after it, before the retry's commit, leaves it aside:
        until the letter is tried again, nothing tells of that delete.
        """
        if self._of.detail() is None or not self._exists(self._at()):
            return
        table = self._at()
        known = "_noted_by" in table.schema.names
        if known and at is not None:
            copies = table.spark.sql(copies_sql(table.sql, records, at))
            if not copies.isEmpty():
                keep(copies, self.aside)
        sql = forgetting_sql(table.sql, records, but_copies=known and at is None)
        past_conflicts(partial(run, table, sql))

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
            table.create(notes, CHANGING.with_properties(none_expired()))
        return table

    def _append(self, notes: DataFrame) -> None:
        # Written twice, a tombstone counts once. A nested key is brought into the order that is there by its names.
        table = self._made(notes.schema)
        append(keyed(table, notes, self._key, grows=True), table)

    def _notes(self, deletes: DataFrame, by: str | None = None) -> DataFrame:
        wanted = [*self._key, *(["_sequence"] if "_sequence" in deletes.columns else []), *COORDINATES]
        noted_by = f"CAST({literal(by) if by is not None else 'NULL'} AS STRING) AS _noted_by"
        return deletes.selectExpr(*map(identifier, wanted), "current_timestamp() AS _noted_at", noted_by)

    def take_over(self, of: DeltaTable, position: Position, epoch: int | None) -> None:
        """Copy another table's tombstones that counted at a position, unless they are here already.

        ``epoch``: the number of the epoch that left the position: the other table may have gone on since, or back;
        None: unknown, and all of records before the position are copied.
        """
        theirs = Tombstones(of, self._key)
        theirs.refuse_renamed(
            "Name the clone's column as it was, run the pipeline once, which copies them, and rename it then."
        )
        # The other one may have gone on with a recreated topic since, and has renamed its tombstones then.
        passed = with_retired_names(position.offsets, position.topics)
        for counted in theirs._counted(passed, epoch):
            notes = self._missing(of.spark.sql(counted).drop(FORGOTTEN_AT), self._named)
            if not notes.isEmpty():
                self._append(notes)
        if theirs.expired_before is not None:
            say_expired(self._made(theirs.table.schema), theirs.expired_before)

    def _counted(self, position: Offsets, epoch: int | None) -> Iterator[str]:
        """Queries for the tombstones that counted then: see ``take_over``."""
        there = self.passed_sql(position)
        if there is None:
            return
        if epoch is None:
            yield f"SELECT * FROM {there}"
            return
        known = "_noted_by" in self._at().schema.names
        yield f"SELECT * FROM {there} WHERE {noted_until_sql(epoch) if known else 'true'}"
        if self.aside.exists():
            known = "_noted_by" in self.aside.schema.names
            yield f"SELECT * FROM {self.aside.sql} WHERE {again_sql(position, epoch, known=known)}"

    def _missing(self, notes: DataFrame, names: Sequence[str]) -> DataFrame:
        """Those of the notes that aren't here yet; ``names``: the columns that tell one from another."""
        from pyspark.sql import functions as F

        table = self._at()
        if not self._exists(table) or not {*names} <= {*table.schema.names}:
            return notes
        notes = keyed(table, notes, self._key, grows=True)
        there = [F.col(f"s.{name}").eqNullSafe(F.col(f"t.{name}")) for name in map(identifier, names)]
        return notes.alias("s").join(table.spark.table(table.sql).alias("t"), there, "left_anti")

    @property
    def _named(self) -> Sequence[str]:
        """The columns that tell one tombstone from another."""
        return [*self._key, *COORDINATES[:3]]

    def add_sequence(self, sequence: StructField) -> None:
        """Get the column, if there are tombstones from before the table was ordered by a sequence: of an epoch that
        failed, or of a table whose rows were given one. They have none, and are older than every change. So they no
        longer tell what they have deleted, and the table says that its deletes are kept from now on."""
        table = self._at()
        if not self._exists(table) or "_sequence" in table.schema.names:
            return
        # Before the column: a run that is killed in between does both again.
        remember_deletes(self._of, kept=False)
        remember_deletes(self._of, kept=True)
        table.add_columns([sequence])

    @property
    def expired_before(self) -> datetime | None:
        """Tombstones older than this may have expired. None: there never was one."""
        there = self._of.detail() is not None and self._exists(self._at())
        return expired_before(self._at()) if there else None

    def note_expired(self) -> None:
        """Say in their table which ones may have expired, if nothing does: 0.2 didn't. Call it before the first epoch,
        as letters of records that come later are to be tried again."""
        if self._of.detail() is not None and self._exists(self._at()):
            past_conflicts(partial(say_expired, self._at()))

    def expire(self, before: datetime) -> None:
        """Delete the tombstones written before a time. An older update that arrives afterwards brings its row back.

        The property comes first: a crash between the two leaves tombstones of which it says that they may be gone. If
        another writer's commits come first again and again, the tombstones stay until the next time.
        """
        if not self._exists(self._at()):
            return
        where = f"_noted_at < timestamp_micros({_micros(before)})"
        for table in (self._at(), self.aside):
            if not table.exists() or table.spark.sql(f"SELECT 1 FROM {table.sql} WHERE {where}").isEmpty():
                continue
            sql = f"DELETE FROM {table.sql} WHERE {where}"
            done_or_left(partial(self._expire, table, sql, before), f"expired tombstones of {self._of.label!r}")

    def _expire(self, table: DeltaTable, sql: str, before: datetime) -> None:
        say_expired(self._at(), before)
        run(table, sql)

    def expire_now_and_then(self, retention: timedelta, epoch: Epoch | None) -> None:
        """Delete the tombstones that no record needs which is still to be read before ``epoch``, see
        ``expires_before``. Does nothing if it did so within the last hour."""
        now = datetime.now(timezone.utc)
        if self._expired is None or now - self._expired >= _EXPIRE_EVERY:
            if (before := expires_before(retention, epoch, now)) is not None:
                self.expire(before)
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


def _micros(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)
