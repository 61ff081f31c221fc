"""One row per group: its results, the state behind them, and the offsets of the records in it, in one MERGE.

States are monoids: the state of an epoch is added to the stored state, whatever was added before. Each record must
be added exactly once. So a row also has ``_applied``, the highest offset applied per topic-partition, and the MERGE
compares it with the offsets of the epoch's state for that group:

* All are higher: the state is added.
* None is higher: the records were added before, and the state is ignored.
* Some are higher: the query fails (``already_applied``). The records would have to be dropped before they are summed
  up, because a sum can't be taken apart. With offsets and states in one commit this doesn't happen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, cast

from sinks.contract import Committed, Epoch, Position
from sinks.delta.commit import PipelineCommits, without_position
from sinks.delta.conflicts import past_conflicts
from sinks.delta.fence import merge_batch, merge_epoch
from sinks.delta.key_ranges import pruning
from sinks.delta.limits import demands, refuse_broken
from sinks.delta.merge import Change, Merge
from sinks.delta.one_type import alike, are_nested, as_in, beside, selected
from sinks.delta.proof import Proof
from sinks.delta.refusals import about_refused_rows
from sinks.delta.sql_layout import call, case, listed, parentheses
from sinks.delta.table import DeltaTable
from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


_WINDOW = ("window_start", "window_end")
_OWN = ("_state", "_offsets")
SOURCE = "lakelock_groups"
"""Name of the temporary view with the epoch's groups."""


class State(Protocol):
    """The type of an aggregate's state, as SQL; see ``connector.state``."""

    def plus(self, left: str, right: str) -> str:
        """SQL of the sum of two states."""
        ...

    def present(self, state: str) -> str:
        """SQL of the result that readers see."""
        ...


@dataclass(frozen=True)
class Groups:
    """The shape of the table, and of the rows to write.

    Rows to write have the columns of ``key``, ``_state`` (a struct with a field per aggregate) and ``_offsets``
    (``map<topic-partition, struct<first, last>>``: the offsets in the state, both inclusive); with windows also
    ``window_closed``. A row without offsets adds nothing, but may close a window. Session windows have ``window_start``
    in the key and ``window_end`` beside it. ``sinks.delta.session_windows`` merges them with the stored sessions: then
    a row replaces the stored row with the same start, and a row with ``_gone`` deletes it.
    """

    key: Sequence[str]
    """Columns that identify a group, with the window's start and end (of a session window: its start)."""
    aggregates: Mapping[str, State] = field(default_factory=dict)
    """Column of the result -> type of its state."""
    windows: bool = False
    """Whether the groups are windows, with a column ``window_closed``."""
    may_fail: bool = True
    """Whether computing a sum of states, or its result, can fail for some values."""
    grown_together: Callable[[DataFrame, Epoch], DataFrame] | None = None
    """Session windows only: computes from an epoch's sessions the rows that replace the stored ones."""

    @property
    def replaces(self) -> bool:
        """Whether a row replaces the stored row instead of being added to it."""
        return self.grown_together is not None

    @property
    def touched(self) -> Sequence[str]:
        """The columns of the key in whose range among an epoch's rows all rows lie that the MERGE is about. None with
        sessions: the watermark closes those of any group."""
        return [] if self.replaces else [name for name in self.key if name not in _WINDOW]

    def in_the_order_of(self, table: StructType) -> Groups:
        """The same, with the aggregates in the order of the table's state; the file may have another order since.

        A MERGE takes the fields of a struct by name. In a query, structs with another order are other types.
        """
        stored = cast("StructType", table["_state"].dataType).names
        there = {name.lower(): place for place, name in enumerate(stored)}
        names = sorted(self.aggregates, key=lambda name: there.get(name.lower(), len(there)))
        return replace(self, aggregates={name: self.aggregates[name] for name in names})

    def source(self, table: DeltaTable, rows: DataFrame, epoch: Epoch) -> DataFrame:
        """The rows that the MERGE reads. A STRUCT among the groups has its fields in the table's order: with another
        one it is another type, which Spark doesn't compare."""
        rows = alike(table, rows, _OWN, grows=False)
        return self.grown_together(rows, epoch) if self.grown_together else rows


class DeltaAggregate:
    """The exactly-once aggregate. The table's session must be the sink's own."""

    appends = False

    def __init__(self, table: DeltaTable, commits: PipelineCommits, groups: Groups) -> None:
        self._table, self._commits, self._groups = table, commits, groups

    def position(self) -> Position | None:
        """Where the pipeline stands in this table; None: no epoch was committed to it."""
        return self._commits.position()

    def rehearse(self, rows: DataFrame, epoch: Epoch) -> None:
        """Fail if the write would fail because of its rows: a sum that can't be computed, or a broken constraint."""
        merge = adding(self._groups, guarded=True)
        limits = demands(self._table, list(merge.inserts))
        if not (limits or self._groups.may_fail):
            return
        self._groups.source(self._table, rows, epoch).createOrReplaceTempView(SOURCE)
        target, names = self._table.sql, self._table.schema.names
        detail = self._table.detail()
        groups = self._table.spark.sql(merge.query(target, SOURCE, SOURCE, names, untouched=False, detail=detail))
        groups.write.format("noop").mode("append").save()
        refuse_broken(groups, limits, self._groups.key)

    def merged_sql(self, rows: str, keys: str, at: Position | None, *, hint: str) -> str:
        """See ``sinks.delta.merge_on_read.Merging``."""
        target, schema = self._table.sql_at(at.version if at else None), self._table.schema
        groups = self._groups.in_the_order_of(schema)
        state = _struct({name: f"_state.{identifier(name)}" for name in groups.aggregates})
        key = listed(map(identifier, groups.key))
        if in_order := self._in_order(schema, f"SELECT {key} FROM {rows}"):
            key = listed(in_order)
            keys = parentheses(f"SELECT {key} FROM {keys}")  # these are compared with the table's, too
        ordered = parentheses(f"SELECT {key}, {state} AS _state, _offsets FROM {rows}")
        merge = adding(groups, guarded=True)
        return merge.query(target, ordered, keys, schema.names, hint=hint, detail=self._table.detail())

    def not_merged_sql(self, changes: str) -> str:
        """See ``sinks.delta.merge_on_read.Merging``.

        Each change is the state of one epoch and group, so it was added as a whole or not at all. The sum of one that
        was added and one that wasn't could not be compared with ``_applied``.
        """
        if in_order := self._in_order(self._table.schema, f"SELECT * FROM {changes}"):
            changes = parentheses(f"SELECT {listed(in_order)} FROM {changes}")
        key = listed(map(identifier, self._groups.key))
        on = adding(self._groups, guarded=True).on
        touched = parentheses(
            f"SELECT {key}, _applied FROM {self._table.sql} AS t\n"
            f"LEFT SEMI JOIN (SELECT {key} FROM {changes}) AS s\nON {on}"
        )
        is_new = _all_offsets_are_new()
        return parentheses(f"SELECT s.* FROM {changes} AS s\nLEFT JOIN {touched} AS t\nON {on}\nWHERE {is_new}")

    def _in_order(self, there: StructType, rows: str) -> Sequence[str]:
        """What a SELECT names so that nested columns of the key have their fields in the table's order: a STRUCT of
        another order is of another type, which Spark doesn't compare. Empty: they have it. ``there``: the table's
        columns; ``rows``: a query, of which Spark is asked only if the key is nested."""
        if not are_nested(there, beside(self._groups.key, there)):
            return []
        schema = self._table.spark.sql(rows).schema
        values = as_in(there, schema, beside(self._groups.key, schema), grows=False)
        return selected(schema.names, values) if values else []

    def make_ready_for_views(self, changes: str) -> None:
        """See ``sinks.delta.merge_on_read.Merging``: the table and its log are all that is read."""

    def write(self, epoch: Epoch, rows: DataFrame, *, within: str = "") -> Committed:
        """Commit the epoch with its groups added. Raises what ``sinks.delta.proof.Proof`` raises.

        ``within``: SQL that is true of every row ``t`` of the table that shares a key with the rows; empty: unknown.
        """
        proof = Proof(self._commits, epoch)
        with pruning(self._table, self._groups.touched, rows, within) as (groups, near):
            merge = replace(adding(self._groups, guarded=True), within=near)
            while proof.wanted():
                with proof:
                    # Planned again at each attempt: a conflict means that the table has changed.
                    sql = merge.command(self._table, SOURCE)
                    merge_epoch(self._table, epoch, self._groups.source(self._table, groups, epoch), SOURCE, sql)
        return proof.committed


class PlainAggregate:
    """The aggregate of deliveries without the exactly-once guarantee: a commit of its own, without a position.

    ``guarded``: records that a group already holds are ignored; else they are added again.
    """

    def __init__(self, table: DeltaTable, groups: Groups, *, guarded: bool) -> None:
        self._table, self._groups, self._guarded = table, groups, guarded

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        """Merge the epoch's groups. Other writers' conflicts are retried."""
        sql = adding(self._groups, guarded=self._guarded).statement(self._table.sql, SOURCE)

        def write() -> None:
            self._groups.source(self._table, rows, epoch).createOrReplaceTempView(SOURCE)
            merge_batch(self._table, epoch.pipeline, sql)

        with about_refused_rows(self._table.label):
            past_conflicts(write)
        return without_position(epoch, None)


def adding(groups: Groups, *, guarded: bool) -> Merge:
    """The MERGE of an epoch's groups. ``guarded``: compare with ``_applied``, see the top of this module."""
    ends = {"window_end": "s.window_end"} if groups.replaces else {}
    states, results = {}, {}
    for name, state in groups.aggregates.items():
        stored, new = (f"{side}._state.{identifier(name)}" for side in "ts")
        states[name] = new if groups.replaces else state.plus(stored, new)
        results[name] = state.present(states[name])
    # A row that replaces has the end of the whole session, which a late record may have moved beyond the watermark.
    is_closed = "s.window_closed" if groups.replaces else "coalesce(t.window_closed, false) OR s.window_closed"
    closed = {"window_closed": is_closed} if groups.windows else {}
    updates = {
        **results,
        "_state": _struct(states),
        "_applied": _last("s._offsets") if groups.replaces else _highest("t._applied", _last("s._offsets")),
        **closed,
        **ends,
    }
    inserts = {
        **{name: f"s.{identifier(name)}" for name in groups.key},
        **ends,
        **{name: state.present(f"s._state.{identifier(name)}") for name, state in groups.aggregates.items()},
        "_state": "s._state",
        "_applied": _last("s._offsets"),
        **({"window_closed": "s.window_closed"} if groups.windows else {}),
    }
    update = Change(_all_offsets_are_new() if guarded and not groups.replaces else "", updates)
    matched = [Change("s._gone", None), update] if groups.replaces else [update]
    return Merge(groups.key, matched, inserts, "NOT s._gone" if groups.replaces else "", null_keys=True)


def _struct(fields: Mapping[str, str]) -> str:
    return call("named_struct", (f"{literal(name)}, {value}" for name, value in fields.items()))


def _all_offsets_are_new() -> str:
    """SQL: true if all offsets of the source's row are higher than ``_applied``, false if none is; else it fails."""
    applied = "try_element_at(t._applied, _e.key)"
    entries = "map_entries(s._offsets)"
    overlap = raise_sql("already_applied", offsets="to_json(s._offsets)", applied="to_json(t._applied)")
    return case(
        [
            # Spark may evaluate this also for rows without a match. Those must not fail.
            ("s._offsets IS NULL", "false"),
            (f"forall({entries}, _e -> coalesce({applied} < _e.value.first, true))", "true"),
            (f"forall({entries}, _e -> coalesce({applied} >= _e.value.last, false))", "false"),
        ],
        f"CAST({overlap} AS BOOLEAN)",
    )


def _last(offsets: str) -> str:
    """SQL of the last offset per topic-partition, of a ``map<topic-partition, struct<first, last>>``."""
    return f"transform_values({offsets}, (_k, _v) -> _v.last)"


def _highest(left: str, right: str) -> str:
    """SQL of the higher offset of two maps, per topic-partition."""
    return f"coalesce(map_zip_with({left}, {right}, (_k, _l, _r) -> greatest(_l, _r)), {right})"
