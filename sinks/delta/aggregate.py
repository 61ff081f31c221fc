"""One row per group: what readers see, the state behind it, and the offsets that it holds, in one MERGE.

States are monoids, so those of an epoch are added to the stored ones, whatever was added before. A record must be added
once: beside its state a group has ``_applied``, the highest offset applied per topic-partition, and an epoch's part for
a group goes in only where all of its offsets are above. Where all are at or below, it is in already, and is ignored.
Where only some are, a sum can't be taken apart any more: the records have to be dropped before they are added up, so
the MERGE refuses (``already_applied``). With offsets and states in one commit it never comes to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from sinks.contract import Committed, Epoch, Position
from sinks.delta.commit import PipelineCommits, merge_epoch, without_position
from sinks.delta.conflicts import past_conflicts
from sinks.delta.limits import demands, refuse_broken
from sinks.delta.merge import Change, Merge
from sinks.delta.table import DeltaTable
from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import identifier, struct_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


SOURCE = "lakelock_groups"


class State(Protocol):
    """A state type, in SQL; see ``connector.state``."""

    def plus(self, left: str, right: str) -> str: ...

    def present(self, state: str) -> str: ...


@dataclass(frozen=True)
class Groups:
    """The shape of the table.

    Rows to write have ``key``, ``_state`` (a struct with a field per aggregate) and ``_offsets``
    (``map<topic-partition, struct<first, last>>``: the offsets added), with windows ``window_closed`` too. A row with
    no offsets adds nothing; it may close a window. Sessions have ``window_start`` and ``window_end`` instead of the
    window's key; merged with the stored ones, see ``sessions``, their rows replace those of the same start, and rows
    with ``_gone`` remove them.
    """

    key: Sequence[str]
    """Columns that make a group, the window's start and end among them (of a session the start alone)."""
    aggregates: Mapping[str, State] = field(default_factory=dict)
    windows: bool = False
    may_fail: bool = True
    """Whether a sum of states, or what readers see of it, can't be worked out for some of them."""
    grown_together: Callable[[DataFrame, Epoch], DataFrame] | None = None
    """Sessions only: from those of an epoch to the rows that replace the stored ones."""

    @property
    def replaces(self) -> bool:
        return self.grown_together is not None

    def source(self, rows: DataFrame, epoch: Epoch) -> DataFrame:
        return self.grown_together(rows, epoch) if self.grown_together else rows


class DeltaAggregate:
    appends = False

    def __init__(self, table: DeltaTable, commits: PipelineCommits, groups: Groups) -> None:
        self._table, self._commits, self._groups = table, commits, groups

    def position(self) -> Position | None:
        return self._commits.position()

    def rehearse(self, rows: DataFrame, epoch: Epoch) -> None:
        limits = demands(self._table)
        if not (limits or self._groups.may_fail):
            return
        self._groups.source(rows, epoch).createOrReplaceTempView(SOURCE)
        target, names = self._table.sql, self._table.schema.names
        merge = adding(self._groups, guarded=True)
        groups = self._table.spark.sql(merge.query(target, SOURCE, SOURCE, names, untouched=False))
        groups.write.format("noop").mode("append").save()
        refuse_broken(groups, limits, self._groups.key)

    def merged_sql(self, rows: str, keys: str, at: Position | None, *, hint: str) -> str:
        """See ``sinks.delta.merge_on_read.Merging``."""
        target = self._table.sql_at(at.version if at else None)
        merge = adding(self._groups, guarded=True)
        return merge.query(target, rows, keys, self._table.schema.names, hint=hint)

    def write(self, epoch: Epoch, rows: DataFrame, *, within: str = "") -> Committed:
        """``within``: SQL of what holds of every row ``t`` of the table that the rows add to."""
        merge = replace(adding(self._groups, guarded=True), within=within)

        def write() -> None:
            # Planned again at each attempt: a conflict means that the table has changed.
            sql = merge.command(self._table, SOURCE)
            merge_epoch(self._table, epoch, self._groups.source(rows, epoch), SOURCE, sql)

        return self._commits.commit(epoch, write)


class PlainAggregate:
    """For the weaker deliveries. ``guarded``: what a group holds already is ignored; else it counts twice."""

    def __init__(self, table: DeltaTable, groups: Groups, *, guarded: bool) -> None:
        self._table, self._groups, self._guarded = table, groups, guarded

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        sql = adding(self._groups, guarded=self._guarded).statement(self._table.sql, SOURCE)

        def write() -> None:
            self._groups.source(rows, epoch).createOrReplaceTempView(SOURCE)
            self._table.spark.sql(sql).collect()

        past_conflicts(write)
        return without_position(epoch, None)


def adding(groups: Groups, *, guarded: bool) -> Merge:
    """One MERGE for all groups of an epoch."""
    ends = {"window_end": "s.window_end"} if groups.replaces else {}
    states, results = {}, {}
    for name, state in groups.aggregates.items():
        stored, new = (f"{side}._state.{identifier(name)}" for side in "ts")
        states[name] = new if groups.replaces else state.plus(stored, new)
        results[name] = state.present(states[name])
    closed = {"window_closed": "coalesce(t.window_closed, false) OR s.window_closed"} if groups.windows else {}
    updates = {
        **results,
        "_state": struct_sql(states),
        "_applied": _applied("s._offsets") if groups.replaces else _joined("t._applied", _applied("s._offsets")),
        **closed,
        **ends,
    }
    inserts = {
        **{name: f"s.{identifier(name)}" for name in groups.key},
        **ends,
        **{name: state.present(f"s._state.{identifier(name)}") for name, state in groups.aggregates.items()},
        "_state": "s._state",
        "_applied": _applied("s._offsets"),
        **({"window_closed": "s.window_closed"} if groups.windows else {}),
    }
    update = Change(_is_new() if guarded and not groups.replaces else "", updates)
    matched = [Change("s._gone", None), update] if groups.replaces else [update]
    return Merge(groups.key, matched, inserts, "NOT s._gone" if groups.replaces else "", null_keys=True)


def _is_new() -> str:
    """SQL: whether the offsets of a source row are all above those of the row; false where all are at or below."""
    applied = "try_element_at(t._applied, _e.key)"
    entries = "map_entries(s._offsets)"
    overlap = raise_sql("already_applied", offsets="to_json(s._offsets)", applied="to_json(t._applied)")
    return (
        # Spark may evaluate this for rows without a match too: those must not raise.
        "CASE WHEN s._offsets IS NULL THEN false "
        f"WHEN forall({entries}, _e -> coalesce({applied} < _e.value.first, true)) THEN true "
        f"WHEN forall({entries}, _e -> coalesce({applied} >= _e.value.last, false)) THEN false "
        f"ELSE CAST({overlap} AS BOOLEAN) END"
    )


def _applied(offsets: str) -> str:
    return f"transform_values({offsets}, (_k, _v) -> _v.last)"


def _joined(left: str, right: str) -> str:
    """SQL: the higher offset of both, per partition."""
    return f"coalesce(map_zip_with({left}, {right}, (_k, _l, _r) -> greatest(_l, _r)), {right})"
