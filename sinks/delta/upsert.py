"""One row per key: a Delta MERGE that ignores a change whose order is not higher than the stored one.

The rule itself is told in ``sinks.delta.upsert_rule``. This module runs the MERGE, and keeps the tombstones around it.

A row that was deleted can't tell that a late update is older than its delete. Updates may arrive late if they have a
sequence of their own, or if a delivery replays them. Then deletes are kept in ``Tombstones``, in these steps:

1. Read the tombstones that count so far, and join them to the epoch's changes.
2. Add the epoch's own deletes to the tombstones.
3. Commit the MERGE.

A crash between 2 and 3 leaves tombstones of records that the table's position hasn't passed. With exactly-once
delivery they don't count, and the next run repeats all three steps. In the deliveries with a consumer group they count
at once. This is safe: their offsets are committed after the write, so the records are delivered again, and until then
an update older than the delete is ignored, as it will be afterwards.

By offset, with the position in the table, nothing arrives late except retried dead letters. A pipeline without dead
letters therefore needs no tombstones: what a partition held before a delete was read before the delete.

Until the first delete there is no table of tombstones, and no query looks for deletes except the MERGE itself. The
first delete fails that MERGE, with nothing committed, and the epoch is written again in the three steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from sinks.contract import Committed, Epoch, Position
from sinks.delta.commit import PipelineCommits
from sinks.delta.fence import merge_epoch
from sinks.delta.key_ranges import once_kept, pruning
from sinks.delta.limits import demands, refuse_broken
from sinks.delta.merge import Merge
from sinks.delta.moved import about_moved_keys
from sinks.delta.noted import forgotten_if_fenced, noted_by
from sinks.delta.one_type import alike, as_in, keyed, selected, stored_as_in
from sinks.delta.proof import Proof
from sinks.delta.sql_layout import indented, listed, parentheses
from sinks.delta.table import COORDINATES, DeltaTable
from sinks.delta.tombstones import Tombstones
from sinks.delta.upsert_rule import COLUMNS, DELETED_BY, SOURCE, UpsertRule, deleted_sql, moved_sql, upserting
from sinks.delta.upsert_source import moved_from_sql, newer_deletes_sql, source_sql, tombstone_sql
from sinks.delta.values import digits_sql, value_sql
from sinks.offsets import Offsets
from sinks.spark.row_errors import raise_sql, raised
from sinks.spark.sql import identifier, literal, struct_sql
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_OWN = (COLUMNS, DELETED_BY)
_NET = "lakelock_net"
Gone: TypeAlias = Callable[[], Sequence[str]]
"""The columns that earlier updates of the pipeline have filled, and that its updates don't have any more."""


class DeltaUpsert:
    """The exactly-once upsert. The table's session must be the sink's own.

    Its rows are net changes: the table's columns and ``_deleted_by``, with at most one row per key.
    """

    appends = False

    def __init__(
        self,
        table: DeltaTable,
        commits: PipelineCommits,
        *,
        rule: UpsertRule,
        tombstone_retention: timedelta = timedelta(days=7),
        keep_tombstones: bool = False,
        gone: Gone = tuple,
    ) -> None:
        """``tombstone_retention``: how long a delete is remembered. ``keep_tombstones``: keep them also by offset, as
        retried dead letters need. ``gone``: see ``Gone``."""
        self._table = table
        self._commits = commits
        self._rule = rule
        keep = (rule.sequenced or keep_tombstones) and not rule.soft
        table.keeps_order = keep or rule.sequenced
        self._merges = Merges(table, rule, keep=keep, retention=tombstone_retention, gone=gone)

    @property
    def tombstones(self) -> Tombstones | None:
        """The deletes that are kept beside the table; None: none are."""
        return self._merges.tombstones

    def position(self) -> Position | None:
        """Where the pipeline stands in this table; None: no epoch was committed to it."""
        return self._commits.position()

    def rehearse(self, rows: DataFrame, epoch: Epoch) -> None:
        """Fail if the write would fail because of its rows: a broken constraint, or KeyMoved. Writes nothing."""
        rows = self._merges.keyed(rows)
        limits, stored = demands(self._table, rows.columns), self._merges.stored(rows, epoch.passed)
        moved = []
        if stored is not None:
            moved.append(moved_from_sql(self._rule, SOURCE, rows.columns, stored))
        if not limits:
            moved.append(moved_sql(self._table.sql, self._rule, rows.columns))
        with about_moved_keys(self._table.label):
            rows.createOrReplaceTempView(SOURCE)
            for query in moved:
                if query is not None:
                    self._table.spark.sql(query).collect()
            if limits:
                refuse_broken(self._merges.merged(rows, epoch.passed), limits, self._rule.key)

    def write(self, epoch: Epoch, rows: DataFrame, *, within: str = "") -> Committed:
        """Commit the epoch with its rows merged. Raises KeyMoved, and what ``sinks.delta.proof.Proof`` raises.

        ``within``: SQL that is true of every row ``t`` of the table that shares a key with the rows; empty: unknown.
        """
        rows = self._merges.keyed(rows)
        prunes = pruning(self._table, self._rule.key, rows, within)
        with about_moved_keys(self._table.label), prunes as (changes, near):
            stored = self._merges.stored(changes, epoch.passed)
            if stored is None:
                with up_to_a_delete():
                    return self._commit(epoch, *self._merges.without_deletes(changes, near))
            with once_kept(changes, near) as again:
                return self._with_deletes(epoch, again, stored, near)

    def _with_deletes(self, epoch: Epoch, changes: DataFrame, stored: str | None, within: str) -> Committed:
        """Add the epoch's deletes to the tombstones, and commit it with those stored before.

        ``changes`` are read several times. ``stored``, ``within``: as in ``Merges``. See ``sinks.delta.noted``.
        """
        assert self.tombstones is not None
        with forgotten_if_fenced(self.tombstones, self._commits, epoch):
            deletes = self._merges.deletes(changes, stored)
            if deletes.added:
                self._commits.already(epoch)  # raises Fenced
                self._merges.note(changes, epoch)
            return self._commit(epoch, *self._merges.beside(changes, stored, deletes, within))

    def _commit(self, epoch: Epoch, source: DataFrame, merge: Merge) -> Committed:
        proof = Proof(self._commits, epoch)
        while proof.wanted():
            with proof:
                merge_epoch(self._table, epoch, source, SOURCE, merge.command(self._table, SOURCE))
        return proof.committed

    def merged_sql(self, rows: str, keys: str, at: Position | None, *, hint: str) -> str:
        """See ``sinks.delta.merge_on_read.Merging``."""
        return self._merges.merged_sql(rows, keys, at, hint=hint)

    def not_merged_sql(self, changes: str) -> str:
        """See ``sinks.delta.merge_on_read.Merging``. Those in the table are ignored one by one, by their order."""
        return changes

    def make_ready_for_views(self, changes: str) -> None:
        """See ``sinks.delta.merge_on_read.Merging``: the table of tombstones, which the first delete would make."""
        self._merges.make_tombstones(changes)


@dataclass(frozen=True)
class Deletes:
    """The deletes that an epoch brings, and the newest truncate that is known."""

    added: int
    """Deletes and truncates of the epoch."""
    truncates: bool
    """Whether the epoch itself has a truncate."""
    newest_truncate: str | None
    """SQL of the newest truncate's ``_deleted_by``, of the epoch or stored before; None: there is none."""


@contextmanager
def up_to_a_delete() -> Iterator[None]:
    """For a write of what ``Merges.without_deletes`` gives: at a delete it fails, nothing is committed, and the block
    just ends."""
    try:
        yield
    except Exception as error:
        cause = raised(error)
        if cause is None or cause["kind"] != "first_delete":
            raise


class Merges:
    """Plans the MERGE of an epoch, and keeps the tombstones before it. The rows it gets are ``keyed``."""

    def __init__(
        self, table: DeltaTable, rule: UpsertRule, *, keep: bool, retention: timedelta, gone: Gone = tuple
    ) -> None:
        """``keep``: whether deletes are kept as tombstones; ``retention``: for how long; ``gone``: see ``Gone``."""
        self._table, self._gone = table, gone
        self._rule = rule
        self.tombstones = Tombstones(table, rule.key) if keep else None
        self._retention = retention

    def keyed(self, rows: DataFrame) -> DataFrame:
        """The rows, with their key as the table has it: see ``sinks.delta.one_type.keyed``."""
        return keyed(self._table, rows, self._rule.key)

    def stored(self, rows: DataFrame, passed: Offsets | None) -> str | None:
        """SQL of the tombstones that count for an epoch's rows, as in FROM; None: there never was one.

        ``passed``: only tombstones of records before these offsets count; None: all count.
        """
        if self.tombstones is None or DELETED_BY not in rows.columns:
            return None
        return self.tombstones.passed_sql(passed, rows.schema)

    def without_deletes(self, rows: DataFrame, within: str = "") -> tuple[DataFrame, Merge]:
        """The source and the MERGE of an epoch for which no tombstone is stored. ``within``: see ``Merge.within``.

        If the epoch has the first delete, the write fails: see ``up_to_a_delete``. Then the epoch has to be written
        with deletes.
        """
        if self.tombstones is not None and DELETED_BY in rows.columns:
            rows = self._up_to_a_delete(rows)
        return self._source(rows, None, None), self._merge(rows, within=within)

    def merged_sql(self, net: str, keys: str, at: Position | None, *, hint: str) -> str:
        """A query for the rows of the table after ``net`` is merged; see ``sinks.delta.merge_on_read.Merging``."""
        rows = self._table.spark.sql(f"SELECT * FROM {net}")
        columns, stored, there = rows.columns, None, self._table.schema
        if values := as_in(there, rows.schema, _OWN, grows=False):
            net = parentheses(f"SELECT {listed(selected(columns, values))} FROM {net}")
            # Those of the changes have the types of the net changes', and are compared with the table's, too.
            keys = parentheses(f"SELECT {listed(selected(self._rule.key, values))} FROM {keys}")
        if self.tombstones is not None and DELETED_BY in columns:
            stored = self.tombstones.passed_sql(at.offsets if at else None, there)
        source = parentheses(source_sql(self._rule, net, columns, stored, None))
        target = self._table.sql_at(at.version if at else None)
        merge = upserting(self._rule, columns, gone=self._emptied(columns))
        # A dead letter that was retried may be older than the row that the table has.
        replaces = self._rule.replaces and self.tombstones is None
        query = merge.query(
            target, source, keys, there.names, replaces=replaces, hint=hint, detail=self._table.detail()
        )
        return query if stored is None or at is not None else self._tombstones_first(stored, query)

    def _tombstones_first(self, stored: str, query: str) -> str:
        """The query, so that Spark fixes the version of the tombstones before that of the change log.

        A newer tombstone would hide a row whose delete, and what came after it, the log hasn't got yet. The first part
        has no rows, and reads no file.
        """
        none = listed(
            f"CAST(NULL AS {sql_type(field.dataType)}) AS {identifier(field.name)}" for field in self._table.schema
        )
        return f"SELECT\n{indented(none)}\nFROM {stored}\nWHERE _noted_at IS NULL\nUNION ALL\n{query}"

    def merged(self, rows: DataFrame, passed: Offsets) -> DataFrame:
        """The table's rows with a key of ``rows``, as they would be after the write. Leaves out what a truncate does
        to other keys. ``passed``: as in ``stored``."""
        self._alike(rows, grows=False).createOrReplaceTempView(_NET)
        stored = self.tombstones.passed_sql(passed, rows.schema) if self.tombstones is not None else None
        source = parentheses(source_sql(self._rule, _NET, rows.columns, stored, None))
        new, gone = self._table.lacks(rows.columns), self._emptied(rows.columns)
        merge = upserting(self._rule, rows.columns, new=new, gone=gone)
        names = self._table.schema.names
        return self._table.spark.sql(
            merge.query(self._table.sql, source, _NET, names, untouched=False, detail=self._table.detail())
        )

    def _merge(self, rows: DataFrame, truncate: str | None = None, within: str = "") -> Merge:
        new = self._table.lacks(rows.columns)
        stored = stored_as_in(self._table.schema, rows.schema, _OWN) if new is not None else {}
        gone = self._emptied(rows.columns)
        return upserting(self._rule, rows.columns, truncate, new=new, within=within, stored=stored, gone=gone)

    def _emptied(self, columns: Sequence[str]) -> Mapping[str, str]:
        """Column of the table that earlier updates have filled, and these lack -> SQL of its value in a row that one of
        these replaces, as in a row that is inserted: a row is one record's. ``columns``: of the net changes.

        Where every column keeps its value until an update has another one, so does this. What Delta generates follows
        from the others.
        """
        own, gone = (*self._rule.key, *COORDINATES, "_sequence", *_OWN), {name.lower() for name in self._gone()}
        gone -= {name.lower() for name in columns}
        if not gone or (self._rule.ignore_nulls and {*columns} <= {*own, *self._rule.ignore_nulls}):
            return {}
        detail, there = self._table.detail(), self._table.schema.names
        made = {name.lower() for name in (*detail.generated, *detail.identities)} if detail is not None else set[str]()
        defaults = {name.lower(): sql for name, sql in detail.defaults.items()} if detail is not None else {}
        left = [name for name in there if name.lower() in gone and name.lower() not in made]
        return {name: defaults.get(name.lower(), "NULL") for name in left}

    def _alike(self, rows: DataFrame, *, grows: bool) -> DataFrame:
        """The rows with nested columns as the table has them, see ``as_in``."""
        return alike(self._table, rows, _OWN, grows=grows)

    def _up_to_a_delete(self, rows: DataFrame) -> DataFrame:
        """The rows; a query on them fails at the first delete."""
        row = struct_sql({name: identifier(name) for name in rows.columns})
        # The check wraps the whole row: of one that is filtered out, the optimizer doesn't compute a single column.
        checked = f"CASE WHEN {DELETED_BY} IS NOT NULL THEN {raise_sql('first_delete')} ELSE {row} END AS checked"
        return rows.selectExpr(checked).select("checked.*")

    def deletes(self, rows: DataFrame, stored: str | None) -> Deletes:
        """The deletes of an epoch's rows. ``stored``: as above. Runs one Spark job."""
        is_truncate = f"{identifier(self._rule.key[0])} IS NULL"  # no other change has a NULL in its key
        marks = rows.selectExpr(f"{DELETED_BY} AS mark", f"{is_truncate} AS truncates", "true AS added")
        if stored is not None:
            mark = tombstone_sql(self._rule)
            before = f"SELECT {mark} AS mark, true AS truncates, false AS added FROM {stored} WHERE {is_truncate}"
            marks = marks.unionByName(self._table.spark.sql(before))
        return _deletes(marks, rows.schema[DELETED_BY].dataType)

    def note(self, rows: DataFrame, epoch: Epoch | None = None) -> None:
        """Add the deletes of an epoch's rows to the tombstones. ``epoch``: None if a consumer group has the offsets."""
        assert self.tombstones is not None
        self.tombstones.expire_now_and_then(self._retention, epoch)
        self.tombstones.add(self._deletes_of(rows), noted_by(epoch) if epoch is not None else None)

    def beside(
        self, rows: DataFrame, stored: str | None, deletes: Deletes, within: str = ""
    ) -> tuple[DataFrame, Merge]:
        """The source and the MERGE of an epoch whose own deletes are noted. ``stored``, ``within``: as above."""
        truncate = deletes.newest_truncate
        # Rows that the epoch doesn't touch were compared with the earlier truncates in their own epochs.
        order = f"({deleted_sql(truncate, sequenced=True)})" if truncate is not None and deletes.truncates else None
        return self._source(rows, stored, truncate), self._merge(rows, order, within)

    def overtaken(self, rows: DataFrame, seen: int | None) -> DataFrame:
        """The rows whose key has a newer delete now than at a version of the tombstones. None: there were none."""
        from pyspark.sql import functions as F

        assert self.tombstones is not None
        table = self.tombstones.table
        then = table.sql_at(seen) if seen is not None else None
        newer = self._table.spark.sql(newer_deletes_sql(self._rule, table.sql, then))
        if values := as_in(rows.schema, newer.schema, (), grows=False):
            newer = newer.selectExpr(*selected(newer.columns, values))
        same = [F.col(f"r.{name}") == F.col(f"n.{name}") for name in map(identifier, self._rule.key)]
        return rows.alias("r").join(newer.alias("n"), same, "left_semi")

    def _deletes_of(self, rows: DataFrame) -> DataFrame:
        """The deletes of net changes, as tombstones have them."""
        key = [identifier(name) for name in self._rule.key]
        sequence = [f"{DELETED_BY}.sequence AS _sequence"] if self._rule.sequenced else []
        places = [f"{DELETED_BY}.{identifier(name[1:])} AS {name}" for name in COORDINATES]
        return rows.where(f"{DELETED_BY} IS NOT NULL").selectExpr(*key, *sequence, *places)

    def make_tombstones(self, net: str) -> None:
        """Make the table of tombstones, if the rule keeps some; ``net``: SQL of net changes, as in FROM."""
        rows = self._table.spark.sql(f"SELECT * FROM {net}")
        if self.tombstones is not None and DELETED_BY in rows.columns:
            self.tombstones.make(self._deletes_of(self.keyed(rows)))

    def _source(self, rows: DataFrame, stored: str | None, truncate: str | None) -> DataFrame:
        """The source of the MERGE; ``stored``: SQL of tombstones, as in FROM; ``truncate``: SQL of the newest one."""
        rows = self._alike(rows, grows=self._table.evolves)
        if stored is None and truncate is None and not self._rule.parts:
            return rows
        rows.createOrReplaceTempView(_NET)
        return self._table.spark.sql(source_sql(self._rule, _NET, rows.columns, stored, truncate))


def _deletes(marks: DataFrame, kind: DataType) -> Deletes:
    """``marks``: a row per change of the epoch and per stored truncate, with ``mark`` (its ``_deleted_by``, of type
    ``kind``; NULL for an update), ``truncates`` and ``added`` (whether the epoch brings it). Runs one Spark job."""
    from pyspark.sql.types import StructType

    fields = {field.name: field.dataType for field in kind} if isinstance(kind, StructType) else {}
    counts = (
        marks.selectExpr("*", "CASE WHEN truncates THEN mark END AS truncate")
        .selectExpr(
            "count_if(added AND mark IS NOT NULL) AS added",
            "coalesce(bool_or(added AND truncate IS NOT NULL), false) AS truncates",
            "max(truncate) AS highest",
        )
        .selectExpr(
            "added",
            "truncates",
            *(f"{digits_sql(f'highest.{identifier(name)}', of)} AS {identifier(name)}" for name, of in fields.items()),
        )
        .first()
    )
    if counts is None or counts["offset"] is None:
        return Deletes(counts["added"] if counts else 0, False, None)
    values = (f"{literal(name)}, {value_sql(counts[name], of)}" for name, of in fields.items())
    return Deletes(counts["added"], counts["truncates"], f"named_struct({', '.join(values)})")
