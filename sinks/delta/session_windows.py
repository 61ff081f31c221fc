"""Session windows: an epoch's sessions are merged with the stored sessions that they touch.

Stored sessions of a group never touch one another, so each stored session that changes touches a session of the epoch.
The result has one row per merged session, which replaces the stored session with the same start, and a row with
``_gone`` for each other stored session that was merged into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

START, END = "window_start", "window_end"
SESSION = "lakelock session"
"""The column of ``numbered``."""


class Total(Protocol):
    """The type of an aggregate's state, as SQL. See ``connector.state``."""

    def total(self, states: str) -> str:
        """SQL of the sum of a group's states; ``states``: SQL of the state in a row."""
        ...


def merged(
    new: DataFrame,
    stored: DataFrame,
    *,
    groups: Sequence[str],
    states: Mapping[str, Total],
    numbered: Callable[[DataFrame], DataFrame],
    closed_before: str,
) -> DataFrame:
    """The rows that replace the stored sessions, as ``sinks.delta.aggregate.Groups`` describes them.

    ``new``: the epoch's sessions; ``stored``: the rows of the table; both as ``Groups`` describes them.
    ``groups``: columns that identify a group, without the window's; ``states``: column -> type of its state.
    ``numbered``: adds a column ``SESSION``, which is the same for rows of a group whose windows touch.
    ``closed_before``: SQL of a timestamp; sessions that end at or before it are closed.
    """
    from pyspark.sql import functions as F

    same = (f"old.{identifier(name)} <=> new.{identifier(name)}" for name in groups)
    touches = " AND ".join([*same, f"old.{START} < new.{END}", f"new.{START} < old.{END}"])
    plain = [*(identifier(name) for name in groups), START, END, "_state"]
    before = stored.selectExpr(
        *plain, "transform_values(_applied, (_k, _v) -> named_struct('first', _v, 'last', _v)) AS _offsets",
        "window_closed",
    )  # fmt: skip
    touched_stored = before.alias("old").join(new.alias("new"), F.expr(touches), "left_semi")
    closing = before.where(f"NOT window_closed AND {END} <= {closed_before}")
    concerned = touched_stored.unionByName(closing).dropDuplicates([*groups, START]).withColumn("_old", F.col(START))
    rows = concerned.drop("window_closed").unionByName(
        new.selectExpr(*plain, "_offsets", "CAST(NULL AS TIMESTAMP) AS _old")
    )
    offsets = (
        "reduce(collect_list(_offsets), CAST(map() AS MAP<STRING, STRUCT<first: BIGINT, last: BIGINT>>), "
        "(_a, _b) -> map_zip_with(_a, _b, (_k, _l, _r) -> named_struct("
        "'first', least(_l.first, _r.first), 'last', greatest(_l.last, _r.last))))"
    )
    sums = ", ".join(f"{literal(name)}, {state.total(f'_state.{identifier(name)}')}" for name, state in states.items())
    sessions = (
        numbered(rows)
        .groupBy(*(F.col(identifier(name)) for name in groups), SESSION)
        .agg(
            F.min(START).alias(START),
            F.max(END).alias(END),
            F.expr(f"named_struct({sums})").alias("_state"),
            F.expr(offsets).alias("_offsets"),
            F.collect_list("_old").alias("_olds"),
        )
    )
    merged_session = (
        f"named_struct('{START}', {START}, '{END}', {END}, '_state', _state, '_offsets', _offsets, 'window_closed', "
        f"coalesce({END} <= {closed_before}, false), '_gone', false)"
    )
    nulls = ", ".join(f"'{name}', CASE WHEN false THEN {name} END" for name in (END, "_state", "_offsets"))
    gone = f"named_struct('{START}', _start, {nulls}, 'window_closed', true, '_gone', true)"
    return sessions.selectExpr(
        *(identifier(name) for name in groups),
        f"inline(concat(array({merged_session}), transform(filter(_olds, _old -> _old <> {START}), _start -> {gone})))",
    )
