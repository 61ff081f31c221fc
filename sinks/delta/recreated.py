"""A table's rows of a topic that was deleted, and made again: renamed in the commit of the epoch that says so.

Everything by which rows guard against records that come again (their coordinates, those of deletes, of the parts of
rows, of the events of a history, of what is in a sum) is of the old topic. Renamed, it stays where it is in the order,
before all that the new topic brings; and of two records with the same coordinates each has its own identity.

Deletes and dead letters are kept in tables of their own, which can't share the commit. They are renamed before it: a
crash in between leaves names that mean nothing yet, and the next run, which has to retire the topic first of all,
renames what is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sinks.contract import Committed, Epoch
from sinks.delta.commit import PipelineCommits, merge_epoch
from sinks.delta.conflicts import past_conflicts
from sinks.delta.table import DeltaTable
from sinks.spark.sql import identifier, literal, struct_sql

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_SOURCE = "lakelock_retired"
_ORDERS = ("_deleted_by", "_columns", "_state")
"""Own columns with coordinates inside."""


def retire(
    table: DeltaTable,
    commits: PipelineCommits,
    epoch: Epoch,
    names: Mapping[str, str],
    beside: Sequence[DeltaTable] = (),
) -> Committed:
    """Commit ``epoch``, which reads nothing, with the rows of these topics renamed. ``beside``: tables with notes on
    records, renamed first."""
    for notes in beside:
        _rename_notes(notes, names)
    columns = _renamed_columns(table, names)
    updates = ", ".join(f"t.{identifier(name)} = {new}" for name, (new, _) in columns.items())
    concerned = " OR ".join(f"({condition})" for _, condition in columns.values())
    # A MERGE, not an UPDATE: it commits the epoch also where no row is concerned.
    sql = f"MERGE INTO {table.sql} AS t USING {_SOURCE} AS s ON {concerned} WHEN MATCHED THEN UPDATE SET {updates}"

    def write() -> None:
        merge_epoch(table, epoch, table.spark.range(1), _SOURCE, sql)

    return commits.commit(epoch, write)


def _rename_notes(notes: DeltaTable, names: Mapping[str, str]) -> None:
    if not notes.exists():
        return
    old = ", ".join(map(literal, names))
    sql = f"UPDATE {notes.sql} SET _topic = {_name('_topic', names)} WHERE _topic IN ({old})"
    past_conflicts(lambda: notes.spark.sql(sql).collect())


def _renamed_columns(table: DeltaTable, names: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Column -> SQL of its new value, and of whether it has one."""
    old = ", ".join(map(literal, names))
    schema = table.spark.table(table.sql).schema
    if "_applied" in schema.names:  # an aggregate, whose _state holds no coordinates
        topic = "regexp_replace(_k, '-[0-9]+$', '')"
        key = f"concat({_name(topic, names)}, substr(_k, length({topic}) + 1))"
        there = f"exists(map_keys(t._applied), _k -> {topic} IN ({old}))"
        return {"_applied": (f"transform_keys(t._applied, (_k, _v) -> {key})", there)}
    found = {"_topic": (_name("t._topic", names), f"t._topic IN ({old})")}
    for name in _ORDERS:
        stored = f"t.{name}"
        value = _renamed(stored, schema[name].dataType, names) if name in schema.names else None
        if value is not None:
            found[name] = (value, f"NOT ({value} <=> {stored})")
    return found


def _renamed(sql: str, kind: DataType, names: Mapping[str, str], depth: int = 0) -> str | None:
    """SQL of the value with the topics renamed in all coordinates inside; None where there are none."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, ArrayType):
        each = f"_e{depth}"
        element = _renamed(each, kind.elementType, names, depth + 1)
        return f"transform({sql}, {each} -> {element})" if element else None
    if not isinstance(kind, StructType):
        return None
    coordinates = {"topic", "partition", "offset"} <= set(kind.names)
    fields, any_renamed = {}, coordinates
    for field in kind:
        value = f"{sql}.{identifier(field.name)}"
        # "values" are the user's.
        inner = None if field.name == "values" else _renamed(value, field.dataType, names, depth)
        any_renamed = any_renamed or inner is not None
        fields[field.name] = _name(value, names) if coordinates and field.name == "topic" else inner or value
    return f"CASE WHEN {sql} IS NOT NULL THEN {struct_sql(fields)} END" if any_renamed else None


def _name(topic: str, names: Mapping[str, str]) -> str:
    cases = " ".join(f"WHEN {literal(old)} THEN {literal(new)}" for old, new in names.items())
    return f"CASE {topic} {cases} ELSE {topic} END"
