"""One row per key: a Delta MERGE in which a change whose order is <= the stored one is ignored. See ``merge``.

A row that was deleted can't tell that a late update is older than its delete. Where updates may come late, because they
have a sequence of their own or because a delivery replays them, deletes are therefore kept in ``Tombstones``:

1. those that count so far are read, and joined to the epoch's changes;
2. those of the epoch are added;
3. the MERGE is committed.

A crash between 2 and 3 leaves tombstones whose records the table's position hasn't passed. Exactly once, they don't
count, and the next run does all three again. In the deliveries with a consumer group they count at once: the records
are delivered again too, for their offsets are committed after the write, and until then an update older than the delete
is ignored, as it will be later. In the order of offsets and with the position in the table nothing comes late but dead
letters: without those there are no tombstones, for what a partition held before a delete has been read before it.

Until the first delete there is no table of tombstones, and nothing looks for deletes but the MERGE itself: the first
one stops it, with nothing committed, and the epoch is written again in the steps above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from sinks.contract import Committed, Epoch, Position
from sinks.delta.commit import PipelineCommits, merge_epoch
from sinks.delta.limits import demands, refuse_broken
from sinks.delta.merge import Merge
from sinks.delta.moved import about_moved_keys
from sinks.delta.table import COORDINATES, DeltaTable
from sinks.delta.tombstones import Tombstones
from sinks.delta.upsert_rule import COLUMNS, DELETED_BY, SOURCE, UpsertRule, deleted_sql, moved_sql, upserting
from sinks.delta.values import digits_sql, value_sql
from sinks.offsets import Offsets
from sinks.spark.cached import kept
from sinks.spark.row_errors import raise_sql, raised
from sinks.spark.sql import identifier, literal, struct_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

Result = TypeVar("Result")
_NET = "lakelock_net"


class DeltaUpsert:
    """Rows need the table's columns and at most one row per key. The table's session must be the sink's own."""

    appends = False

    def __init__(
        self,
        table: DeltaTable,
        commits: PipelineCommits,
        *,
        rule: UpsertRule,
        tombstone_retention: timedelta = timedelta(days=7),
        keep_tombstones: bool = False,
    ) -> None:
        """``keep_tombstones``: in the order of offsets, too. Dead letters may come late."""
        self._table = table
        self._commits = commits
        self._rule = rule
        keep = (rule.sequenced or keep_tombstones) and not rule.soft
        self._merges = Merges(table, rule, keep=keep, retention=tombstone_retention)

    def position(self) -> Position | None:
        return self._commits.position()

    def rehearse(self, rows: DataFrame, epoch: Epoch) -> None:
        limits = demands(self._table)
        if limits:
            with about_moved_keys(self._table.label):
                refuse_broken(self._merges.merged(rows, epoch.passed), limits, self._rule.key)
            return
        moved = moved_sql(self._table.sql, self._rule, rows.columns)
        if moved is not None:
            rows.createOrReplaceTempView(SOURCE)
            with about_moved_keys(self._table.label):
                self._table.spark.sql(moved).collect()

    def write(self, epoch: Epoch, rows: DataFrame, *, within: str = "") -> Committed:
        """``within``: SQL of what holds of every row ``t`` of the table that the rows are about."""

        def commit(source: DataFrame, merge: Merge) -> Committed:
            def write() -> None:
                merge_epoch(self._table, epoch, source, SOURCE, merge.command(self._table, SOURCE))

            return self._commits.commit(epoch, write)

        with about_moved_keys(self._table.label):
            return self._merges.run(rows, epoch.passed, commit, within)

    def merged_sql(self, rows: str, keys: str, at: Position | None, *, hint: str) -> str:
        """See ``sinks.delta.merge_on_read.Merging``."""
        return self._merges.merged_sql(rows, keys, at, hint=hint)


class Merges:
    """The MERGE of an epoch, and the tombstones around it. ``keep``: deletes have to be remembered."""

    def __init__(self, table: DeltaTable, rule: UpsertRule, *, keep: bool, retention: timedelta) -> None:
        self._table = table
        self._rule = rule
        self._tombstones = Tombstones(table, rule.key) if keep else None
        self._retention = retention

    def run(
        self, rows: DataFrame, passed: Offsets | None, commit: Callable[[DataFrame, Merge], Result], within: str = ""
    ) -> Result:
        """``commit`` gets the source and the MERGE. It has to commit nothing where it raises.

        ``passed``: tombstones of records before these offsets count; None: all do.
        """
        if self._tombstones is None or DELETED_BY not in rows.columns:
            return commit(self._source(rows, None, None), self._merge(rows, within=within))
        noted = self._tombstones.passed_sql(passed)
        if noted is None:
            try:
                return commit(self._source(self._up_to_a_delete(rows), None, None), self._merge(rows, within=within))
            except Exception as error:
                found = raised(error)
                if found is None or found["kind"] != "first_delete":
                    raise
        with kept(rows) as changes:
            source, merge = self._with_tombstones(changes, self._tombstones, noted, within)
            return commit(source, merge)

    def merged_sql(self, net: str, keys: str, at: Position | None, *, hint: str) -> str:
        columns = self._table.spark.sql(f"SELECT * FROM {net}").columns
        noted = None
        if self._tombstones is not None and DELETED_BY in columns:
            noted = self._tombstones.passed_sql(at.offsets if at else None)
        source = f"({self._counting_sql(self._marked_sql(net, columns, noted, None), columns)})"
        target = self._table.sql_at(at.version if at else None)
        merge = upserting(self._rule, columns)
        there = self._table.schema.names
        return merge.query(target, source, keys, there, replaces=self._rule.replaces, hint=hint)

    def merged(self, rows: DataFrame, passed: Offsets) -> DataFrame:
        """The rows of the table that ``rows`` are about, as they would be after the write. A truncate isn't done."""
        rows.createOrReplaceTempView(_NET)
        noted = self._tombstones.passed_sql(passed) if self._tombstones is not None else None
        source = self._counting_sql(self._marked_sql(_NET, rows.columns, noted, None), rows.columns)
        merge = upserting(self._rule, rows.columns, new=self._table.lacks(rows.columns))
        names = self._table.schema.names
        return self._table.spark.sql(merge.query(self._table.sql, f"({source})", _NET, names, untouched=False))

    def _merge(self, rows: DataFrame, truncate: str | None = None, within: str = "") -> Merge:
        return upserting(self._rule, rows.columns, truncate, new=self._table.lacks(rows.columns), within=within)

    def _up_to_a_delete(self, rows: DataFrame) -> DataFrame:
        """Fails the query at the first delete."""
        row = struct_sql({name: identifier(name) for name in rows.columns})
        # The check wraps the whole row: of one that is filtered out, the optimizer doesn't compute a single column.
        checked = f"CASE WHEN {DELETED_BY} IS NOT NULL THEN {raise_sql('first_delete')} ELSE {row} END AS checked"
        return rows.selectExpr(checked).select("checked.*")

    def _with_tombstones(
        self, rows: DataFrame, tombstones: Tombstones, noted: str | None, within: str
    ) -> tuple[DataFrame, Merge]:
        key = [identifier(name) for name in self._rule.key]
        a_truncate = f"{key[0]} IS NULL"  # no other change has a null in its key
        marks = rows.selectExpr(f"{DELETED_BY} AS mark", f"{a_truncate} AS truncates", "true AS added")
        if noted is not None:
            old = f"SELECT {self._noted()} AS mark, true AS truncates, false AS added FROM {noted} WHERE {a_truncate}"
            marks = marks.unionByName(self._table.spark.sql(old))
        kind = rows.schema[DELETED_BY].dataType
        added, truncates, truncate = self._found(marks, kind)
        if added:
            tombstones.expire_now_and_then(self._retention)
            sequence = [f"{DELETED_BY}.sequence AS _sequence"] if self._rule.sequenced else []
            places = [f"{DELETED_BY}.{identifier(name[1:])} AS {name}" for name in COORDINATES]
            tombstones.add(rows.where(f"{DELETED_BY} IS NOT NULL").selectExpr(*key, *sequence, *places))
        highest_truncate = f"({deleted_sql(truncate, sequenced=True)})" if truncate is not None and truncates else None
        return self._source(rows, noted, truncate), self._merge(rows, highest_truncate, within)

    def _source(self, rows: DataFrame, noted: str | None, truncate: str | None) -> DataFrame:
        if noted is None and truncate is None and not self._rule.ignore_nulls:
            return rows
        rows.createOrReplaceTempView(_NET)
        marked = self._marked_sql(_NET, rows.columns, noted, truncate)
        return self._table.spark.sql(self._counting_sql(marked, rows.columns))

    def _marked_sql(self, net: str, columns: Sequence[str], noted: str | None, truncate: str | None) -> str:
        """Net changes with the highest delete of all: of themselves, of tombstones and of truncates."""
        marks = [f"r.{DELETED_BY}"]
        rows = f"{net} AS r"
        if noted is not None:
            keys = ", ".join(identifier(name) for name in self._rule.key)
            same = " AND ".join(f"r.{identifier(name)} = n.{identifier(name)}" for name in self._rule.key)
            highest = f"SELECT {keys}, max({self._noted()}) AS mark FROM {noted} GROUP BY {keys}"
            rows += f" LEFT JOIN ({highest}) AS n ON {same}"
            marks.append("n.mark")
        if truncate is not None:
            marks.append(truncate)
        if len(marks) == 1:
            return f"SELECT * FROM {rows}"
        deleted = f"greatest({', '.join(marks)}) AS {DELETED_BY}"
        values = (deleted if name == DELETED_BY else f"r.{identifier(name)}" for name in columns)
        return f"SELECT {', '.join(values)} FROM {rows}"

    def _counting_sql(self, marked: str, columns: Sequence[str]) -> str:
        """Values that are older than the delete don't count."""
        if not self._rule.ignore_nulls or DELETED_BY not in columns:
            return marked
        deleted = deleted_sql(DELETED_BY, sequenced=self._rule.sequenced)
        orders = {name: f"{COLUMNS}.{identifier(name)}" for name in self._rule.ignore_nulls}
        counts = {
            name: f"CASE WHEN {DELETED_BY} IS NULL OR {order} > ({deleted}) THEN " for name, order in orders.items()
        }
        values = {name: f"{counts[name]}{identifier(name)} END AS {identifier(name)}" for name in orders}
        pairs = ", ".join(f"{literal(name)}, {counts[name]}{order} END" for name, order in orders.items())
        values[COLUMNS] = f"named_struct({pairs}) AS {COLUMNS}"
        return f"SELECT {', '.join(values.get(name, identifier(name)) for name in columns)} FROM ({marked})"

    def _noted(self) -> str:
        """A tombstone's columns as ``_deleted_by`` has them."""
        names = [*(["_sequence"] if self._rule.sequenced else []), *COORDINATES]
        return f"named_struct({', '.join(f'{literal(name[1:])}, {name}' for name in names)})"

    def _found(self, marks: DataFrame, kind: DataType) -> tuple[int, bool, str | None]:
        """How many marks the epoch adds, whether one of them is a truncate, and SQL of the highest truncate of all."""
        from pyspark.sql.types import StructType

        fields = {field.name: field.dataType for field in kind} if isinstance(kind, StructType) else {}
        found = (
            marks.selectExpr("*", "CASE WHEN truncates THEN mark END AS truncate")
            .selectExpr(
                "count_if(added AND mark IS NOT NULL) AS added",
                "coalesce(bool_or(added AND truncate IS NOT NULL), false) AS truncates",
                "max(truncate) AS highest",
            )
            .selectExpr(
                "added",
                "truncates",
                *(
                    f"{digits_sql(f'highest.{identifier(name)}', of)} AS {identifier(name)}"
                    for name, of in fields.items()
                ),
            )
            .first()
        )
        if found is None or found["offset"] is None:
            return (found["added"] if found else 0), False, None
        pairs = (f"{literal(name)}, {value_sql(found[name], of)}" for name, of in fields.items())
        return found["added"], found["truncates"], f"named_struct({', '.join(pairs)})"
