"""One row per group: what readers see, the state behind it, and the offsets that it holds, in one MERGE.

States are monoids, so those of an epoch are added to the stored ones, whatever was added before. A record must be added
once: beside its state a group has ``_applied``, the highest offset applied per topic-partition, and an epoch's part for
a group goes in only where all of its offsets are above. Where all are at or below, it is in already, and is ignored.
Where only some are, a sum can't be taken apart any more: the records have to be dropped before they are added up, so
the MERGE refuses (``already_applied``). With offsets and states in one commit it never comes to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from sinks.contract import Committed, Epoch, Position
from sinks.delta.commit import PipelineCommits, merge_epoch, past_conflicts, without_position
from sinks.delta.table import DeltaTable
from sinks.raised import identifier, raise_sql, struct_sql

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
    grown_together: Callable[[DataFrame, Epoch], DataFrame] | None = None
    """Sessions only: from those of an epoch to the rows that replace the stored ones."""

    @property
    def replaces(self) -> bool:
        return self.grown_together is not None

    def source(self, rows: DataFrame, epoch: Epoch) -> DataFrame:
        return self.grown_together(rows, epoch) if self.grown_together else rows


class DeltaAggregate:
    def __init__(self, table: DeltaTable, commits: PipelineCommits, groups: Groups) -> None:
        self._table, self._commits, self._groups = table, commits, groups

    def position(self) -> Position | None:
        return self._commits.position()

    def rehearse(self, rows: DataFrame, epoch: Epoch) -> None:
        source, groups = rows, self._groups
        if groups.grown_together is not None:
            source = groups.grown_together(rows, epoch)
        else:
            sums = [
                state.plus(f"t._state.{identifier(name)}", f"s._state.{identifier(name)}")
                for name, state in groups.aggregates.items()
            ]
            if not any("raise_error" in sum_ for sum_ in sums):
                return
            rows.createOrReplaceTempView(SOURCE)
            source = self._table.spark.sql(
                f"SELECT {', '.join(f'{sum_} AS s{index}' for index, sum_ in enumerate(sums))} "
                f"FROM {SOURCE} AS s JOIN {self._table.sql} AS t ON {_same_group(groups)}"
            )
        source.write.format("noop").mode("append").save()

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        sql = merge_sql(self._table.sql, self._groups, guarded=True)

        def write() -> None:
            # Planned again at each attempt: a conflict means that the table has changed.
            merge_epoch(self._table, epoch, self._groups.source(rows, epoch), SOURCE, sql)

        return self._commits.commit(epoch, write)


class PlainAggregate:
    """For the weaker deliveries. ``guarded``: what a group holds already is ignored; else it counts twice."""

    def __init__(self, table: DeltaTable, groups: Groups, *, guarded: bool) -> None:
        self._table, self._groups, self._guarded = table, groups, guarded

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        sql = merge_sql(self._table.sql, self._groups, guarded=self._guarded)

        def write() -> None:
            self._groups.source(rows, epoch).createOrReplaceTempView(SOURCE)
            self._table.spark.sql(sql).collect()

        past_conflicts(write)
        return without_position(epoch, None)


def merge_sql(target: str, groups: Groups, *, guarded: bool) -> str:
    """NULL is a group like any other."""
    ends = {"window_end": "s.window_end"} if groups.replaces else {}
    states, results = {}, {}
    for name, state in groups.aggregates.items():
        stored, new = (f"{side}._state.{identifier(name)}" for side in "ts")
        states[name] = new if groups.replaces else state.plus(stored, new)
        results[name] = state.present(states[name])
    closed = {"window_closed": "coalesce(t.window_closed, false) OR s.window_closed"} if groups.windows else {}
    updated = {
        **{identifier(name): result for name, result in results.items()},
        "_state": struct_sql(states),
        "_applied": _applied("s._offsets") if groups.replaces else _joined("t._applied", _applied("s._offsets")),
        **closed,
        **ends,
    }
    inserted = {
        **{identifier(name): f"s.{identifier(name)}" for name in groups.key},
        **ends,
        **{
            identifier(name): state.present(f"s._state.{identifier(name)}") for name, state in groups.aggregates.items()
        },
        "_state": "s._state",
        "_applied": _applied("s._offsets"),
        **({"window_closed": "s.window_closed"} if groups.windows else {}),
    }
    updates = ", ".join(f"t.{column} = {value}" for column, value in updated.items())
    guard = f"AND {_is_new()} " if guarded and not groups.replaces else ""
    gone, there = ("WHEN MATCHED AND s._gone THEN DELETE ", "AND NOT s._gone ") if groups.replaces else ("", "")
    return (
        f"MERGE INTO {target} AS t USING {SOURCE} AS s ON {_same_group(groups)} {gone}"
        f"WHEN MATCHED {guard}THEN UPDATE SET {updates} "
        f"WHEN NOT MATCHED {there}THEN INSERT ({', '.join(inserted)}) VALUES ({', '.join(inserted.values())})"
    )


def _same_group(groups: Groups) -> str:
    return " AND ".join(f"t.{identifier(name)} <=> s.{identifier(name)}" for name in groups.key)


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
