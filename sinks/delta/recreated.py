"""Recreated topics: the rows of the deleted topic are renamed in one commit, which is an epoch of its own.

Everything that guards rows against repeated records has the deleted topic's coordinates: those of rows, of deletes, of
columns' values, of a history's events, of the records in a sum, of the record that a ``first`` or ``last`` shows. The
commit renames the topic in all of them. Renamed coordinates keep their place in the order, before everything that the
recreated topic brings; and of two records with the same partition and offset, each has its own identity.

Tombstones and dead letters are in tables of their own, which can't share the commit. They are renamed before it. A
crash between the two leaves new names that no position has. So does a RESTORE to before the retirement. The next run
may read the old topic on, if it is back. So a run, and a retry of dead letters, first gives them their old names again
(``OneTable.named``). If the topic retires after all, they are renamed once more.

Another run may be sooner, and read the recreated topic already. What it notes of that has a number after this epoch's,
and keeps its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from sinks.contract import Committed, Epoch
from sinks.delta.commit import PipelineCommits
from sinks.delta.conflicts import past_conflicts
from sinks.delta.dead_letters import DeadLetters
from sinks.delta.fence import merge_epoch
from sinks.delta.noted import noted_in
from sinks.delta.proof import proven
from sinks.delta.sql_layout import any_of, indented
from sinks.delta.table import DeltaTable
from sinks.spark.sql import identifier, literal, renamed_sql, struct_sql

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_SOURCE = "lakelock_retired"
_ORDERS = ("_deleted_by", "_columns", "_state")
"""Lakelock's own columns with coordinates inside."""


def retire(
    table: DeltaTable,
    commits: PipelineCommits,
    epoch: Epoch,
    names: Mapping[str, str],
    *,
    tombstones: DeltaTable,
    letters: DeadLetters | None = None,
) -> Committed:
    """Commit an epoch that reads no records, and renames deleted topics in the table's rows.

    ``names``: topic -> its new name, see ``sinks.recreated.retired``; ``tombstones``: the table of tombstones. They
    and the ``letters`` are renamed first. Raises what ``sinks.delta.proof.Proof`` raises.
    """
    stands = commits.already(epoch)  # a run that was replaced renames nothing
    if stands is not None:
        return stands
    if tombstones.exists():
        known = "_noted_by" in tombstones.schema.names
        noted = f"coalesce({noted_in('_noted_by')} <= {epoch.number}, true)"
        _rename_notes(tombstones, names, noted if known else "true")
    if letters is not None and letters.exists():
        # Other pipelines, or a clone, share the table. They may have gone on to the new topic already.
        _rename_notes(letters.table, names, f"{letters.own_sql()} AND {letters.until_sql(epoch)}")
    sql = retiring_sql(table.sql, table.spark.table(table.sql).schema, names)

    return proven(commits, epoch, partial(merge_epoch, table, epoch, table.spark.range(1), _SOURCE, sql))


def retiring_sql(target: str, schema: StructType, names: Mapping[str, str]) -> str:
    """The MERGE that renames topics. ``target``, ``schema``: SQL of the table, and its schema; ``names``: as above."""
    columns = _renamed_columns(schema, names)
    updates = ",\n".join(f"t.{identifier(name)} = {new}" for name, (new, _) in columns.items())
    concerned = any_of(dict.fromkeys(f"({condition})" for _, condition in columns.values()))
    # A MERGE, not an UPDATE: it commits the epoch even if it changes no row.
    return f"MERGE INTO {target} AS t\nUSING {_SOURCE} AS s\nON {concerned}\nWHEN MATCHED\n" + indented(
        f"THEN UPDATE SET\n{indented(updates)}"
    )


def _rename_notes(notes: DeltaTable, names: Mapping[str, str], where: str) -> None:
    old = ", ".join(map(literal, names))
    sql = f"UPDATE {notes.sql} SET _topic = {renamed_sql('_topic', names)} WHERE _topic IN ({old}) AND {where}"
    past_conflicts(lambda: notes.spark.sql(sql).collect())


def _renamed_columns(schema: StructType, names: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Column -> SQL of its new value, and SQL of whether the value changes."""
    old = ", ".join(map(literal, names))
    if "_applied" in schema.names:  # an aggregate
        topic = "regexp_replace(_k, '-[0-9]+$', '')"
        key = f"concat({renamed_sql(topic, names)}, substr(_k, length({topic}) + 1))"
        there = f"exists(map_keys(t._applied), _k -> {topic} IN ({old}))"
        state = _renamed_state(schema["_state"].dataType, names)
        # A state may be a map, which can't be compared. What it holds is of the topics in _applied.
        return {
            "_applied": (f"transform_keys(t._applied, (_k, _v) -> {key})", there),
            **({"_state": (state, there)} if state is not None else {}),
        }
    renamed = {"_topic": (renamed_sql("t._topic", names), f"t._topic IN ({old})")}
    for name in _ORDERS:
        stored = f"t.{name}"
        value = _renamed(stored, schema[name].dataType, names) if name in schema.names else None
        if value is not None:
            renamed[name] = (value, f"NOT ({value} <=> {stored})")
    return renamed


def _renamed_state(states: DataType, names: Mapping[str, str]) -> str | None:
    """SQL of an aggregate's ``_state`` with the topics renamed in the states of ``first`` and ``last``.

    None: there are no such states. All else in a state is values of the user's.
    """
    from pyspark.sql.types import StructType

    assert isinstance(states, StructType)
    fields, any_renamed = {}, False
    for field in states:
        stored, kind = f"t._state.{identifier(field.name)}", field.dataType
        fields[field.name] = stored
        at = kind["at"].dataType if isinstance(kind, StructType) and kind.names == ["at", "value"] else None
        if isinstance(at, StructType) and at.names == ["order", "_topic", "_partition", "_offset"]:
            place = {name: f"{stored}.at.{identifier(name)}" for name in at.names}
            place["_topic"] = renamed_sql(place["_topic"], names)
            renamed = struct_sql({"at": struct_sql(place), "value": f"{stored}.value"})
            fields[field.name] = f"CASE WHEN {stored} IS NOT NULL THEN {renamed} END"
            any_renamed = True
    return f"CASE WHEN t._state IS NOT NULL THEN {struct_sql(fields)} END" if any_renamed else None


def _renamed(sql: str, kind: DataType, names: Mapping[str, str], depth: int = 0) -> str | None:
    """SQL of a value with the topics renamed in all coordinates inside. None: the type has no coordinates.

    ``sql``: SQL of the value; ``depth``: number of arrays around it, for names that don't collide.
    """
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, ArrayType):
        variable = f"_e{depth}"
        element = _renamed(variable, kind.elementType, names, depth + 1)
        return f"transform({sql}, {variable} -> {element})" if element else None
    if not isinstance(kind, StructType):
        return None
    coordinates = {"topic", "partition", "offset"} <= set(kind.names)
    fields, any_renamed = {}, coordinates
    for field in kind:
        value = f"{sql}.{identifier(field.name)}"
        # "values" holds columns of the user.
        inner = None if field.name == "values" else _renamed(value, field.dataType, names, depth)
        any_renamed = any_renamed or inner is not None
        fields[field.name] = renamed_sql(value, names) if coordinates and field.name == "topic" else inner or value
    return f"CASE WHEN {sql} IS NOT NULL THEN {struct_sql(fields)} END" if any_renamed else None
