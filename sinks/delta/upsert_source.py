"""The source of an upsert's MERGE: the epoch's net changes, with the deletes that were stored before. Pure SQL text.

A hard-deleted row can't hold the order of its delete, so its tombstone does, in a table of its own. The tombstone joins
the net changes here: ``_deleted_by`` becomes the highest of the epoch's delete, the key's tombstone and the newest
truncate. So the rule in ``sinks.delta.upsert_rule`` needs no case for tombstones.
"""

from __future__ import annotations

from collections.abc import Sequence

from sinks.delta.sql_layout import any_of, call, case, indented, listed, parentheses
from sinks.delta.table import COORDINATES
from sinks.delta.upsert_rule import COLUMNS, DELETED_BY, UpsertRule, deleted_sql, key_sql
from sinks.recreated import MARK as RETIRED
from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import identifier, literal, struct_sql


def source_sql(rule: UpsertRule, net: str, columns: Sequence[str], tombstones: str | None, truncate: str | None) -> str:
    """A query for the rows that the MERGE reads: those of ``net``, with the same columns.

    ``net``: SQL of the epoch's net changes, as in FROM; ``columns``: the names of its columns.
    ``tombstones``: SQL of the tombstones that count, as in FROM; None: there are none.
    ``truncate``: SQL of the newest truncate, a ``_deleted_by``; None: there is none.
    """
    return _without_deleted_values(rule, _with_newest_delete(rule, net, columns, tombstones, truncate), columns)


def moved_from_sql(rule: UpsertRule, net: str, columns: Sequence[str], tombstones: str) -> str | None:
    """A query that fails at a key that has left the partition of its tombstone, as ``source_sql`` does. None: the rule
    allows it. The parameters are those of ``source_sql``."""
    if not rule.stays:
        return None
    return f"SELECT count({DELETED_BY})\nFROM {parentheses(_with_newest_delete(rule, net, columns, tombstones, None))}"


def tombstone_sql(rule: UpsertRule) -> str:
    """SQL of a tombstone's columns as a ``_deleted_by``."""
    names = [*(["_sequence"] if rule.sequenced else []), *COORDINATES]
    return struct_sql({name[1:]: name for name in names})


def newer_deletes_sql(rule: UpsertRule, now: str, then: str | None) -> str:
    """A query for the keys whose newest delete is newer in some tombstones than in others.

    ``now``, ``then``: SQL of the tombstones, as in FROM; ``then`` None: there were none.
    """
    key, mark = listed(map(identifier, rule.key)), tombstone_sql(rule)
    marks = f"SELECT {key}, {mark} AS mark, true AS newer FROM {now}"
    if then is not None:
        marks += f"\nUNION ALL\nSELECT {key}, {mark} AS mark, false AS newer FROM {then}"
    is_newer, was_none = "max(CASE WHEN newer THEN mark END) > {0}", "{0} IS NULL"
    higher = any_of(each.format("max(CASE WHEN NOT newer THEN mark END)") for each in (is_newer, was_none))
    return f"SELECT {key}\nFROM {parentheses(marks)}\nGROUP BY {key}\nHAVING {higher}"


def _with_newest_delete(
    rule: UpsertRule, net: str, columns: Sequence[str], tombstones: str | None, truncate: str | None
) -> str:
    deletes = [f"r.{DELETED_BY}"]
    rows = f"{net} AS r"
    if tombstones is not None:
        key = listed(map(identifier, rule.key))
        same = " AND ".join(f"r.{identifier(name)} = n.{identifier(name)}" for name in rule.key)
        # Several tombstones of a key may count: each delete adds one.
        newest = parentheses(f"SELECT {key}, max({tombstone_sql(rule)}) AS mark\nFROM {tombstones}\nGROUP BY {key}")
        rows += f"\nLEFT JOIN {newest} AS n\nON {same}"
        deletes.append(_in_its_partition(rule, "n.mark"))
    if truncate is not None:
        deletes.append(truncate)
    if len(deletes) == 1:
        return f"SELECT * FROM {rows}"
    values = {name: f"r.{identifier(name)}" for name in columns}
    values[DELETED_BY] = f"{call('greatest', deletes)} AS {DELETED_BY}"
    return f"SELECT\n{indented(listed(values[name] for name in columns))}\nFROM {rows}"


def _in_its_partition(rule: UpsertRule, mark: str) -> str:
    """The key's tombstone. The query fails if the key has left the tombstone's partition: as for a row, see
    ``UpsertRule``. By sequence: the tombstone alone, unless the sequence begins with the offset."""
    if not rule.stays:
        return mark
    names = ("topic", "partition", "offset")
    place = {name: f"coalesce(r._{name}, r.{DELETED_BY}.{identifier(name)})" for name in names}
    stayed = any_of(
        [
            f"{mark} IS NULL",
            *(
                f"startswith({topic}, {literal(RETIRED)})"
                for topic in ([] if rule.sequenced else [f"{mark}.topic", place["topic"]])
            ),
            f"({mark}.topic = {place['topic']} AND {mark}.`partition` = {place['partition']})",
        ]
    )
    stored = {"stored_topic": f"{mark}.topic", "stored_partition": f"{mark}.`partition`"}
    return case([(stayed, mark)], raise_sql("key_moved", key=key_sql(rule.key, "r."), **place, **stored))


def _without_deleted_values(rule: UpsertRule, rows: str, columns: Sequence[str]) -> str:
    """With parts of rows: a value that isn't newer than the delete becomes NULL, and so does its order."""
    if not rule.parts or DELETED_BY not in columns:
        return rows
    deleted = deleted_sql(DELETED_BY, sequenced=rule.sequenced)
    values, orders = {name: identifier(name) for name in columns}, {}
    for name in rule.parts:
        order = f"{COLUMNS}.{identifier(name)}"
        survives = f"{DELETED_BY} IS NULL OR {order} > ({deleted})"
        values[name] = f"{case([(survives, identifier(name))])} AS {identifier(name)}"
        orders[name] = case([(survives, order)])
    pairs = (f"{literal(name)}, {order}" for name, order in orders.items())
    values[COLUMNS] = f"{call('named_struct', pairs)} AS {COLUMNS}"
    return f"SELECT\n{indented(listed(values[name] for name in columns))}\nFROM {parentheses(rows)}"
