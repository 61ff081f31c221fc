"""A Delta append: each record becomes one row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.contract import Committed, Epoch, Position
from sinks.delta.commit import PipelineCommits
from sinks.delta.fence import options
from sinks.delta.limits import as_stored, demands, refuse_broken
from sinks.delta.proof import proven
from sinks.delta.table import COORDINATES, DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def evolution(table: DeltaTable) -> dict[str, str]:
    """The options that let a write add and widen columns. Empty if the table doesn't evolve."""
    return {"mergeSchema": "true"} if table.evolves else {}


class DeltaAppend:
    """The exactly-once append. Rows have the table's columns, matched by name. Replaying an epoch adds nothing."""

    appends = True

    def __init__(self, table: DeltaTable, commits: PipelineCommits) -> None:
        self._table = table
        self._commits = commits

    def position(self) -> Position | None:
        """The pipeline's position in this table. None: no epoch was committed to it."""
        return self._commits.position()

    def rehearse(self, rows: DataFrame, _: Epoch) -> None:
        """Fail if a row breaks a constraint of the table. Nothing else in the table can make an append fail."""
        limits = demands(self._table, rows.columns)
        if limits:
            refuse_broken(as_stored(rows, self._table, rows.columns), limits, COORDINATES[:3])

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        """Commit the epoch with its rows. Raises what ``sinks.delta.proof.Proof`` raises."""
        # These are options of one write, not of the session: nothing else can pick them up.
        writer = rows.writeTo(self._table.sql)
        for name, value in {**options(self._table, epoch), **evolution(self._table)}.items():
            writer = writer.option(name, value)
        return proven(self._commits, epoch, writer.append)
