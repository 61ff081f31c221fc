"""Every record, one row: a Delta append."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.contract import Committed, Epoch, Position
from sinks.delta.commit import PipelineCommits, options
from sinks.delta.table import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def evolution(table: DeltaTable) -> dict[str, str]:
    """Options of a write that may add columns, and widen them."""
    return {"mergeSchema": "true"} if table.evolves else {}


class DeltaAppend:
    """Rows need the table's columns, by name; replaying an epoch adds nothing."""

    appends = True

    def __init__(self, table: DeltaTable, commits: PipelineCommits) -> None:
        self._table = table
        self._commits = commits

    def position(self) -> Position | None:
        return self._commits.position()

    def rehearse(self, rows: DataFrame, _: Epoch) -> None:
        """Whatever the table holds, rows are added to it."""

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        # Options of one write, not of the session: nothing else can pick them up.
        writer = rows.writeTo(self._table.sql)
        for name, value in {**options(self._table, epoch), **evolution(self._table)}.items():
            writer = writer.option(name, value)
        return self._commits.commit(epoch, writer.append)
