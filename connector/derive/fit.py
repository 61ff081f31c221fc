"""Records with values that the sink can't hold as they are: bad records, as those that can't be decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from connector.decode.records import told
from sinks.spark.limits import Limit
from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def problem_with_values(limits: Sequence[Limit]) -> str:
    """SQL of ``_problem``: the first of the limits that a row breaks. There has to be one."""
    whens = (f"WHEN {limit.broken} THEN {told('unfit', limit.detail)}" for limit in limits)
    return f"CASE {' '.join(whens)} END"


def refuse_values(rows: DataFrame, limits: Sequence[Limit]) -> DataFrame:
    """The rows, of which one that breaks a limit fails the query, with its coordinates."""
    if not limits:
        return rows
    where = {"topic": "_topic", "partition": "_partition", "offset": "_offset", "reason": "'unfit'"}
    whens = " ".join(
        f"WHEN {limit.broken} THEN {raise_sql('bad_record', **where, detail=literal(limit.detail))}" for limit in limits
    )
    # The check replaces a column that every sink needs: the optimizer can't drop it.
    checked = f"CASE {whens} ELSE _offset END AS _offset"
    return rows.selectExpr(*(checked if name == "_offset" else identifier(name) for name in rows.columns))


def refuse_problem(rows: DataFrame, problem: str | None) -> DataFrame:
    """The rows, of which one with a problem fails the query, with its coordinates. ``problem``: SQL of ``_problem``."""
    if problem is None:
        return rows
    where = {"topic": "_topic", "partition": "_partition", "offset": "_offset"}
    raised = raise_sql("bad_record", **where, reason=f"({problem}).reason", detail=f"({problem}).detail")
    checked = f"CASE WHEN ({problem}) IS NOT NULL THEN {raised} ELSE _offset END AS _offset"
    return rows.selectExpr(*(checked if name == "_offset" else identifier(name) for name in rows.columns))
