"""Records with values that the sink can't hold as they are: bad records, as those that can't be decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from connector.decode.records import TOMBSTONE, told
from sinks.spark.limits import Limit
from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def problems(own: str | None, limits: Sequence[Limit], *, refuses_tombstones: bool) -> list[str]:
    """SQL of each ``_problem`` that a sink may have with a row. ``own``: its own one; ``limits``: those of its table;
    ``refuses_tombstones``: whether rows may be tombstones, which it doesn't take."""
    found = [own] if own is not None else []
    found += [_problem_with_values(limits)] if limits else []
    if refuses_tombstones:
        found.append(f"CASE WHEN {TOMBSTONE} THEN {told('tombstone', 'has no value (a tombstone)')} END")
    return found


def refuse_values(rows: DataFrame, limits: Sequence[Limit]) -> DataFrame:
    """The rows, of which one that breaks a limit fails the query, with its coordinates."""
    return refuse_problem(rows, _problem_with_values(limits)) if limits else rows


def refuse_problem(rows: DataFrame, problem: str) -> DataFrame:
    """The rows, of which one with a problem fails the query, with its coordinates. ``problem``: SQL of ``_problem``."""
    where = {"topic": "_topic", "partition": "_partition", "offset": "_offset"}
    raised = raise_sql("bad_record", **where, reason=f"({problem}).reason", detail=f"({problem}).detail")
    # The check replaces a column that every sink needs: the optimizer can't drop it.
    checked = f"CASE WHEN ({problem}) IS NOT NULL THEN {raised} ELSE _offset END AS _offset"
    return rows.selectExpr(*(checked if name == "_offset" else identifier(name) for name in rows.columns))


def _problem_with_values(limits: Sequence[Limit]) -> str:
    """The first of the limits that a row breaks. There has to be one."""
    whens = (f"WHEN {limit.broken} THEN {told('unfit', limit.detail)}" for limit in limits)
    return f"CASE {' '.join(whens)} END"
