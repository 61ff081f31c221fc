"""From the changes of an epoch, or of several, to the net change of each key."""

from __future__ import annotations

from collections.abc import Sequence

from connector.config import COORDINATES
from connector.config.unavailable import UNAVAILABLE
from connector.derive.changes import is_sent
from connector.derive.reduction import Reduction
from sinks.delta.moved import raise_moved
from sinks.delta.upsert_rule import COLUMNS, DELETED_BY, UpsertRule
from sinks.recreated import MARK as RETIRED
from sinks.spark.sql import MICROSECONDS, identifier, literal, struct_sql, to_json

_RETIRED = f"startswith(_topic, {literal(RETIRED)})"
_BELOW_ALL = 2**63 - 1
"""An offset without it is lower than every offset."""
_PLACE = {"topic": "_topic", "partition": "_partition"}
_ENDS = {
    "first": f"min({struct_sql({'retired': _RETIRED, **_PLACE})})",
    "last": f"max({struct_sql({'exists': f'NOT {_RETIRED}', **_PLACE})})",
}
"""A key's lowest and highest place: among the topics that exist, if it has records of one."""


def net_of(columns: Sequence[str], rule: UpsertRule, *, truncates: bool = False, ties: bool = False) -> Reduction:
    """One row per key, in one pass: its update with the highest order, nulls where it has none, and beside it

    * ``_columns``, with ``rule.parts`` only: each of these columns holds its last value that counts, and this is a
      struct with the order of each. A null doesn't count with ``rule.ignore_nulls``; with ``rule.keeps`` it does, but
      nothing does in an update whose ``_unavailable`` names the column;
    * ``_deleted_by``, the highest delete: STRUCT<sequence, topic, partition, offset, timestamp>, or null. It may be
      older or newer than the update.

    The highest truncate is one more row, with nulls for a key. ``columns``: of the changes. ``ties``: a record may give
    several rows of a key; the one whose JSON sorts last wins. Without a sequence, or with one that begins with the
    offset, a key with records in two partitions, whose offsets can't be compared, fails the query. Dead letters of a
    deleted topic may be in any partition: they are older than every record of the topic that was created under its
    name.
    """
    carried = [*COORDINATES, *(["_sequence"] if rule.sequenced else [])]
    own = [name for name in columns if name not in (*carried, "_delete", "_truncate", UNAVAILABLE)]
    places = {"topic": "_topic", "partition": "_partition", "offset": "_offset"}
    named = {**({"sequence": "_sequence"} if rule.sequenced else {}), **places}
    order = struct_sql(named)
    rank = order if rule.sequenced else f"CASE WHEN {_RETIRED} THEN _offset - {_BELOW_ALL} ELSE _offset END"
    if ties:
        rank = f"struct({rank}, {to_json(f'struct({_list(own)})', MICROSECONDS)})"
    # The groups get names of their own: a key column may be called `latest`.
    groups = [f"key {index}" for index in range(len(rule.key))]
    keys = [identifier(column) for column in rule.key]
    if truncates:
        keys = [f"CASE WHEN NOT _truncate THEN {key} END" for key in keys]
    update = "FILTER (WHERE NOT (_delete OR _truncate){})"
    parts = {name: f"part {index}" for index, name in enumerate(rule.parts)}
    aggregates = {
        "latest": f"max_by(struct({_list([*own, *carried])}), {rank}) {update.format('')}",
        "deleted": f"max({struct_sql({**named, 'timestamp': '_timestamp'})}) FILTER (WHERE _delete OR _truncate)",
    }
    for name, part in parts.items():
        newest = f"max_by(struct({identifier(name)} AS value, {order} AS `order`), {rank}) "
        aggregates[part] = newest + update.format(f" AND {has_value(name, rule)}")
    stays = rule.by_offset or not rule.sequenced
    if stays:
        aggregates |= _ENDS
    values = {name: f"latest.{identifier(name)}" for name in (*own, *carried)}
    values |= {name: f"`{part}`.value" for name, part in parts.items()}
    values |= {
        name: f"coalesce({values[name]}, {identifier(group)})" for name, group in zip(rule.key, groups, strict=True)
    }
    if parts:
        values[COLUMNS] = struct_sql({name: f"`{part}`.`order`" for name, part in parts.items()})
    values[DELETED_BY] = "deleted"
    row = struct_sql(values)
    if stays:
        key = struct_sql({name: identifier(group) for name, group in zip(rule.key, groups, strict=True)})
        offset = "coalesce(latest._offset, deleted.offset)"
        moved = raise_moved(f"to_json({key})", now="last", offset=offset, stored="first")
        # The check wraps what every row needs: the optimizer can't drop it.
        stayed = "first.topic = last.topic AND first.`partition` = last.`partition`"
        row = f"CASE WHEN {stayed} THEN {row} ELSE {moved} END"
    return Reduction(dict(zip(groups, keys, strict=True)), aggregates, row)


def has_value(column: str, rule: UpsertRule) -> str:
    """SQL over records or changes: whether one has a value for a column of ``rule.parts``."""
    if column in rule.keeps:
        return is_sent(column)
    return f"{identifier(column)} IS NOT NULL"


def _list(names: Sequence[str]) -> str:
    return ", ".join(identifier(name) for name in names)
