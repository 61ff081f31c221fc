"""Dead letters: records that the table doesn't take, kept whole, with the reason.

A letter is written before the commit of its epoch. A crash between the two leaves the letter without the commit. The
next run reads the same record again and finds its letter: a record has one open letter per reason, sink and window.

A letter is open while its ``_retried_epoch`` is NULL. It counts once the table's position has passed its record. A
letter at or after the position belongs to an epoch that was never committed, or that was undone; its record is still to
be read. A letter is closed when its record was written after all. Closed letters stay in the table as a history.

A clone of a table, or a replay, has the pipeline's name, and may share this table of letters. Its position says nothing
of the letters of the other table. So a letter names the table that it is of, and only that table's pipeline closes it:
a record that both tables don't take has a letter of each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from sinks.contract import Epoch
from sinks.delta.conflicts import past_conflicts
from sinks.delta.layout import NO_LAYOUT, Layout
from sinks.delta.letters_sql import (
    ADDED,
    COLUMNS,
    IDENTITY,
    RECORD,
    RETRIES,
    SOURCE,
    WINDOW,
    adding_sql,
    is_of,
    keeping_sql,
)
from sinks.delta.refusals import about_refused_rows
from sinks.delta.table import CHANGING, COORDINATES, DeltaTable
from sinks.delta.which_letters import AHEAD, RETRIED, ahead, has_mark, of_taken_in, passed, time, within
from sinks.offsets import OffsetRange, Offsets
from sinks.spark.sql import literal, renamed_sql
from sinks.spark.types import no_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ATTEMPTS = 100
"""At a write, which ends after some minutes at the latest. Each conflict means that another pipeline has written its
letters. Many may share the table, and all of them get on: so the conflicts pass."""


class DeadLetters:
    """The dead letters of one pipeline, in a table that several pipelines may share."""

    def __init__(
        self, table: DeltaTable, *, pipeline: str, layout: Layout = NO_LAYOUT, of: Callable[[], Sequence[str]] = list
    ) -> None:
        """``layout``: what the table gets when it is made. ``of``: gives each ``_table`` of the pipeline's letters.
        The first is that of new ones. None: it isn't known which table this is."""
        self.table = table
        self._layout = layout.with_properties(CHANGING.properties)
        self._of_pipeline = f"pipeline = {literal(pipeline)}"
        self._pipeline = pipeline
        self._of = of
        self._ready = False

    def exists(self) -> bool:
        """Whether the table of dead letters exists."""
        return self.table.exists()

    def add(self, letters: DataFrame, epoch: Epoch) -> None:
        """Write the letters of an epoch, before its commit. A letter that is open already isn't written again.

        ``letters``: columns ``sink``, ``reason``, ``detail``, ``key``, ``value``, ``headers``, the coordinates, and for
        a late record ``window_start`` and ``window_end``.
        """
        self.make_ready()
        own = self._of()
        # The number of a consumer group's batch counts within its run, and says nothing beside the table's epochs.
        number = epoch.number if epoch.delivery == "transactional" else 0
        rows = identified(letters).selectExpr(
            f"{literal(self._pipeline)} AS pipeline", "sink", f"{int(number)}L AS epoch", "reason", "detail",
            "key", "value", "headers", *WINDOW, *COORDINATES, "current_timestamp() AS _noted_at",
            *(f"CAST(NULL AS {kind}) AS {name}" for name, kind in RETRIES.items()),
            f"{literal(own[0])} AS _table" if own else "CAST(NULL AS STRING) AS _table",
        )  # fmt: skip
        rows.createOrReplaceTempView(SOURCE)
        self._run(adding_sql(self.table.sql, own))

    def begin(self, retry: str, position: Offsets, *, noted_since: datetime | None = None) -> int:
        """Mark open letters for a retry. Returns how many were marked.

        ``retry``: id of the retrying run; ``position``: only letters of records before these offsets are marked;
        ``noted_since``: only letters written at or after this time are marked; None: any time. Letters of another table
        are left alone, see ``of_others``.
        """
        self.make_ready()
        since = f" AND _noted_at >= {time(noted_since)}" if noted_since else ""
        where = f"_retried_epoch IS NULL AND {passed(position)}{since}{self._own(shared=True)}"
        return self._update({"_retry": literal(retry)}, where)

    def of_others(self, position: Offsets) -> int:
        """Number of open letters of records before ``position`` that another table of this pipeline has set aside."""
        self.make_ready()
        if not self._of():
            return 0
        return self._count(f"_retried_epoch IS NULL AND {passed(position)} AND NOT {is_of(self._of())}")

    def older(self, position: Offsets, before: datetime) -> int:
        """Number of open letters of records before ``position`` that were written before a time."""
        self.make_ready()
        is_open = f"_retried_epoch IS NULL AND {passed(position)}{self._own(shared=True)}"
        return self._count(f"{is_open} AND _noted_at < {time(before)}")

    def _count(self, where: str) -> int:
        sql = f"SELECT count(*) AS n FROM {self.table.sql} WHERE {self._of_pipeline} AND {where}"
        row = self.table.spark.sql(sql).first()
        return row["n"] if row else 0

    def _own(self, *, shared: bool) -> str:
        """SQL, to add to a condition, that is true of this table's letters, and with ``shared`` of those that another
        table has set aside too. Empty if it isn't known which table this is."""
        if not self._of():
            return ""
        return f" AND {is_of(self._of(), shared=shared)}"

    def own_sql(self, *, only_open: bool = False) -> str:
        """SQL that is true of the letters, or of the open ones, of this pipeline and table.

        For a table of letters as it is: an earlier version may have written it, which didn't have all columns.
        """
        there = self.table.schema.names
        is_open = " AND _retried_epoch IS NULL" if only_open and "_retried_epoch" in there else ""
        return f"{self._of_pipeline}{is_open}{self._own(shared=True) if '_table' in there else ''}"

    def until_sql(self, epoch: Epoch) -> str:
        """SQL that is true of the letters up to this epoch.

        Earlier versions wrote the number of a consumer group's batch for that of an epoch. So a letter that is older
        than the position that the epoch goes on from is one of them, whatever its number.
        """
        of_epoch = f"epoch <= {int(epoch.number)}"
        at = epoch.expected.committed_at if epoch.expected is not None else None
        return of_epoch if at is None else f"({of_epoch} OR _noted_at <= {time(at)})"

    @property
    def version(self) -> int:
        """The newest version of the table."""
        return self.table.history(1)[0].version

    def records(self, retry: str, version: int | None = None) -> DataFrame:
        """The records of the marked letters, with the columns of Kafka's source; each record once.

        They are those of this ``version`` of the table, by default of the present one, also if the table changes before
        they are used.
        """
        version = self.version if version is None else version
        return self.table.spark.sql(
            "SELECT key, value, _topic AS topic, _partition AS partition, _offset AS offset, _timestamp AS timestamp, "
            f"headers FROM {self.table.sql} VERSION AS OF {version} "
            f"WHERE {self._of_pipeline} AND _retry = {literal(retry)}"
        ).dropDuplicates(["topic", "partition", "offset"])

    def marked_sql(self, retry: str) -> str:
        """SQL of the coordinates of the marked letters' records, each once, as in FROM."""
        return self._records(f"_retry = {literal(retry)}")

    def _records(self, where: str) -> str:
        return f"(SELECT DISTINCT {', '.join(RECORD)} FROM {self.table.sql} WHERE {self._of_pipeline} AND {where})"

    def keep(self, letters: DataFrame, retry: str) -> None:
        """Leave the marked letters of these records open, with the reasons why the retry failed."""
        identified(letters).createOrReplaceTempView(SOURCE)
        self._run(keeping_sql(self.table.sql, self._pipeline, retry, self._of()))

    def close(self, retry: str, epoch: int) -> int:
        """Close the letters that are still marked: ``epoch`` has written their records. Returns how many there are."""
        through = {"_retried_epoch": f"{int(epoch)}L", "_retried_at": "current_timestamp()"}
        return self._update(through, f"_retry = {literal(retry)} AND _retried_epoch IS NULL")

    def closed(self, retry: str) -> int:
        """The number of letters that a retry has closed."""
        return self._count(f"_retry = {literal(retry)} AND _retried_epoch IS NOT NULL")

    def mark_ahead(self, run: str, position: Offsets) -> int:
        """Mark the open letters of records at or after ``position``. Returns how many there are.

        ``run``: id of the run that is about to read the records.
        """
        if not self._of():
            return 0
        self.make_ready()
        # Of a letter without a table, as earlier versions wrote it, nobody knows whose it is.
        where = f"_retried_epoch IS NULL AND _table IS NOT NULL AND {ahead(position)}{self._own(shared=False)}"
        return self._update({"_retry": literal(f"{AHEAD}{run}")}, where) if self._count(where) else 0

    def marked_ahead(self, run: str, position: Offsets) -> int:
        """The number of letters of records at or after ``position`` that still have the mark of this run."""
        return self._count(f"{has_mark(run)} AND {ahead(position)}")

    def close_ahead(self, run: str, position: Offsets, epoch: int, *, unread: Sequence[OffsetRange]) -> int:
        """Close the letters of records before ``position`` that still have the mark: ``epoch`` has written the records,
        which it would else have set aside again. Returns how many there are. ``unread``: ranges of records that no
        epoch has read."""
        self.make_ready()
        where = f"{has_mark(run)} AND {passed(position)} AND NOT {within(unread)}"
        closed = {"_retry": "NULL", "_retried_epoch": f"{int(epoch)}L", "_retried_at": "current_timestamp()"}
        return self._update(closed, where) if self._count(where) else 0

    def take_back(
        self,
        offsets: Offsets | None,
        restored_to: int,
        highest: int,
        *,
        taken_in: Collection[str] = (),
        forget: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Undo, after a RESTORE of the table, what later epochs did to letters. May be called again.

        ``offsets``, ``restored_to``: the restored position and the number of its epoch; None: the offsets are a
        consumer group's, which no RESTORE takes back, so no record is read again; ``highest``: the highest epoch number
        that is taken; ``taken_in``: topics that the undone epochs had taken in as recreated ones; ``forget``:
        removes what is kept of the deletes of these records, see ``sinks.delta.tombstones``.

        Letters that epochs after ``restored_to`` closed are opened again, and retries that are at work lose their
        marks. If one commits its rows after all, the next retry finds them there. Open letters of records at or after
        the offsets are closed: their epochs will never be committed, and their records are read again. So are those of
        ``taken_in``, whatever their offset: they are of the recreated topic, and the offsets are the old topic's.
        Nobody reads a deleted topic again, so a letter that has its name (``sinks.recreated``) is never closed.
        """
        if not self.exists():
            return
        self.make_ready()
        taken = of_taken_in(taken_in, restored_to)
        closed = f"(_retried_epoch > {int(restored_to)} AND _retried_epoch <= {int(highest) + 1})"
        marked = f"_retried_epoch IS NULL AND NOT startswith(_retry, {literal(AHEAD)})"
        tried = f"({closed} OR coalesce({marked}, false))"
        before = passed(offsets) if offsets is not None else "true"
        undone = f"{tried} AND {before} AND NOT {taken}{self._own(shared=True)}"
        self._reopen(undone, forget)
        if offsets is None:
            return
        again = {"_retry": "NULL", "_retried_epoch": f"{int(highest) + 1}L", "_retried_at": "current_timestamp()"}
        # A partition that the offsets don't name is read again from offset 0.
        where = f"epoch <= {int(highest)} AND ({taken} OR ({ahead(offsets)})){self._own(shared=False)}"
        self._update(again, f"_retried_epoch IS NULL AND {where}")

    def oldest_retry(self) -> int | None:
        """The lowest epoch with which a retry has closed a letter of this table. None: there is no such letter."""
        self.make_ready()
        where = f"{self._of_pipeline} AND {RETRIED}{self._own(shared=True)}"
        row = self.table.spark.sql(f"SELECT min(_retried_epoch) AS n FROM {self.table.sql} WHERE {where}").first()
        return row["n"] if row else None

    def reopen(
        self,
        offsets: Offsets | None,
        restored_to: int,
        highest: int,
        *,
        taken_in: Collection[str] = (),
        forget: Callable[[str], None] = lambda _: None,
    ) -> int:
        """Open again what retries have closed that a RESTORE has undone, also if other epochs were committed since.
        Returns how many there are. The arguments are those of ``take_back``, as of that RESTORE."""
        closed = f"{RETRIED} AND _retried_epoch > {int(restored_to)} AND _retried_epoch <= {int(highest)}"
        before = passed(offsets) if offsets is not None else "true"  # other records are read again
        taken = of_taken_in(taken_in, restored_to)
        return self._reopen(f"{closed} AND {before} AND NOT {taken}{self._own(shared=True)}", forget)

    def _reopen(self, where: str, forget: Callable[[str], None]) -> int:
        if not self._count(where):
            return 0
        forget(self._records(where))  # first: a letter that is open again isn't found once more
        # Without its mark: a retry that is paused between its commit, which is undone, and ``close`` would close it.
        return self._update({"_retry": "NULL", "_retried_epoch": "NULL", "_retried_at": "NULL"}, where)

    def not_retired(self, position: Offsets, names: Mapping[str, str]) -> bool:
        """Whether letters have the names of retirements that aren't part of what led to a position.

        ``names``: topic -> its retired name.
        """
        self.make_ready()
        return bool(names) and bool(self._of()) and self._count(self._not_retired(position, names)) > 0

    def name_back(self, position: Offsets, names: Mapping[str, str]) -> None:
        """Give them their topics' names again. May be called again."""
        topic = renamed_sql("_topic", {new: old for old, new in names.items()})
        self._update({"_topic": topic}, self._not_retired(position, names))

    def _not_retired(self, position: Offsets, names: Mapping[str, str]) -> str:
        named = f"_topic IN ({', '.join(map(literal, names.values()))}) AND NOT {passed(position)}"
        # One without a table may be that of a clone, or of what this was cloned from, where the topic has retired.
        return f"{named} AND _table IS NOT NULL{self._own(shared=False)}"

    def take_along(self, former: str) -> None:
        """Give the letters of the table that had the id ``former`` the id that it has now. May be called again."""
        self.make_ready()
        own = self._of()
        if own and own[0] != former:
            self._update({"_table": literal(own[0])}, f"_table = {literal(former)}")

    def _update(self, values: dict[str, str], where: str) -> int:
        sets = ", ".join(f"{name} = {value}" for name, value in values.items())
        sql = f"UPDATE {self.table.sql} SET {sets} WHERE {self._of_pipeline} AND {where}"
        return self._run(sql)

    def _run(self, sql: str) -> int:
        """Run a statement, and return the number of rows that it changed."""
        with about_refused_rows(self.table.label):
            counts = past_conflicts(lambda: self.table.spark.sql(sql).first(), _ATTEMPTS)
        return int(counts[0]) if counts else 0

    def make_ready(self) -> None:
        """Create the table if it doesn't exist, and add the columns that earlier versions of Lakelock didn't write.

        Every method that writes does so first.
        """
        if self._ready:
            return
        if not self.exists():
            self.table.create(no_rows(self.table.spark, COLUMNS).schema, self._layout)
        if not set(ADDED) <= set(self.table.schema.names):
            self.table.add_columns(no_rows(self.table.spark, ADDED).schema.fields)
        self._ready = True


def identified(letters: DataFrame) -> DataFrame:
    """The letters with the window's columns (NULL if there is no window), and each letter once.

    A transform may make several rows from one record, and so several equal letters.
    """
    missing = [name for name in WINDOW if name not in letters.columns]
    rows = letters.selectExpr("*", *(f"CAST(NULL AS TIMESTAMP) AS {name}" for name in missing))
    return rows.dropDuplicates([*IDENTITY])
