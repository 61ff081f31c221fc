"""A Delta append: each record becomes one row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.contract import Committed, Epoch, Position
from sinks.delta.commit import PipelineCommits
from sinks.delta.fence import options
from sinks.delta.limits import demands, refuse_broken
from sinks.delta.proof import proven
from sinks.delta.table import COORDINATES, DeltaTable
from sinks.spark.sql import identifier
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def evolution(table: DeltaTable) -> dict[str, str]:
    """The options that let a write add and widen columns. Empty if the table doesn't evolve."""
    return {"mergeSchema": "true"} if table.evolves else {}


def _filled(rows: DataFrame, table: StructType) -> DataFrame:
    """The rows, with NULL in the columns of the table that they lack."""
    given = {name.lower() for name in rows.columns}
    lacking = (field for field in table if field.name.lower() not in given)
    return rows.selectExpr(
        "*", *(f"CAST(NULL AS {sql_type(field.dataType)}) AS {identifier(field.name)}" for field in lacking)
    )


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
        limits = demands(self._table)
        if limits:
            refuse_broken(_filled(rows, self._table.schema), limits, COORDINATES[:3])

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        """Commit the epoch with its rows. Raises what ``sinks.delta.proof.Proof`` raises."""
        # These are options of one write, not of the session: nothing else can pick them up.
        writer = rows.writeTo(self._table.sql)
        for name, value in {**options(self._table, epoch), **evolution(self._table)}.items():
            writer = writer.option(name, value)
        return proven(self._commits, epoch, writer.append)
