"""Which tombstones count, come back and are forgotten: SQL for ``sinks.delta.tombstones``, which tells the rule. Pure.

Tests, in SQLite: tests/unit/sinks/delta/test_tombstones.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from sinks.delta.noted import noted_in
from sinks.delta.sql_layout import any_of
from sinks.delta.table import COORDINATES
from sinks.offsets import Offsets, TopicPartition
from sinks.spark.sql import literal

FORGOTTEN_AT = "_forgotten_at"
"""A column of those aside: the number of the epoch that a tombstone was forgotten at."""
_BACK = "back to "
_SAME = " AND ".join(f"t.{name} = s.{name}" for name in COORDINATES[:3])


def forgetting_sql(target: str, records: str, *, but_copies: bool = False) -> str:
    """The statement of ``Tombstones.forget``; ``target``: SQL of the table of tombstones; ``but_copies``: leave what
    came back after a RESTORE. A MERGE, because Delta's DELETE takes no subquery."""
    these = f" AND NOT {_is_copy('t._noted_by')}" if but_copies else ""
    return f"MERGE INTO {target} AS t\nUSING {records} AS s\nON {_SAME}\nWHEN MATCHED{these}\n  THEN DELETE"


def copies_sql(target: str, records: str, at: int) -> str:
    """A query for what came back before the epoch ``at`` of these records' tombstones, as it is kept aside."""
    copies = f"{_is_copy('t._noted_by')} AND {noted_in('t._noted_by')} < {int(at)}"
    tombstones = f"SELECT t.*, {int(at)}L AS {FORGOTTEN_AT} FROM {target} AS t"
    return f"{tombstones} LEFT SEMI JOIN {records} AS s ON {_SAME} WHERE {copies}"


def ahead_sql(position: Offsets) -> str:
    """SQL that is true of a tombstone of a record that is still to be read: see ``Tombstones.left_over``."""
    # Not as NOT (... < ...): so Delta skips the files of earlier records.
    ahead = [f"({_of(at)} AND _offset >= {offset})" for at, offset in position.items()]
    unnamed = [f"NOT ({_of(at)})" for at in position]
    return any_of([*ahead, f"({' AND '.join(unnamed) or 'true'})"])


def not_retired_sql(position: Offsets, names: Mapping[str, str]) -> str:
    """SQL that is true of a tombstone with one of the retired ``names`` (the values), if the position doesn't pass its
    record by that name."""
    return f"_topic IN ({', '.join(map(literal, names.values()))}) AND ({ahead_sql(position)})"


def undone_sql(restored_to: int, at: int) -> str:
    """SQL that is true of a tombstone of an epoch between these two, which a RESTORE to the first one has undone.

    One that doesn't say which epoch has noted it goes on counting.
    """
    noted = noted_in("_noted_by")
    return f"coalesce({noted} > {int(restored_to)} AND {noted} < {int(at)}, false)"


def other_copies_sql(by: str) -> str:
    """SQL that is true of what came back before the same epoch as ``by`` says, with another one: the table was restored
    again, and nothing was committed between."""
    again = f"{noted_in('_noted_by')} = {noted_in(literal(by))} AND _noted_by <> {literal(by)}"
    return f"coalesce({_is_copy('_noted_by')} AND {again}, false)"


def again_sql(position: Offsets, restored_to: int, *, known: bool = True) -> str:
    """SQL that is true of a tombstone aside that counts again: see ``Tombstones.went_back``.

    ``known``: whether those aside say which epoch has noted them.
    """
    noted = noted_until_sql(restored_to) if known else "true"
    return f"{FORGOTTEN_AT} > {int(restored_to)} AND {noted} AND ({passed_sql(position)})"


def noted_until_sql(epoch: int) -> str:
    """SQL that is true of a tombstone that no later epoch than this one has noted, as far as it says."""
    return f"coalesce({noted_in('_noted_by')} <= {int(epoch)}, true)"


def came_back(restored_to: int, at: int) -> str:
    """What a tombstone that came back after a RESTORE says of who has noted it: no run. ``restored_to``: the epoch that
    the table went back to; ``at``: the number of the next one."""
    return f"{_BACK}{int(restored_to)}/{int(at)}"


def _is_copy(noted_by: str) -> str:
    return f"coalesce(startswith({noted_by}, {literal(_BACK)}), false)"


def passed_sql(position: Offsets) -> str:
    """SQL that is true of a tombstone of a record before these offsets."""
    return any_of(f"({_of(at)} AND _offset < {offset})" for at, offset in position.items()) or "false"


def _of(at: TopicPartition) -> str:
    """SQL that is true of a record of this partition."""
    return f"_topic = {literal(at.topic)} AND _partition = {at.partition}"
