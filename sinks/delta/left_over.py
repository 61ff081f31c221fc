"""Tombstones that count no more: they are deleted, and kept aside first. See ``sinks.delta.tombstones``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sinks.delta.append import evolution
from sinks.delta.conflicts import past_conflicts
from sinks.delta.table import CHANGING, DeltaTable
from sinks.delta.which_tombstones import FORGOTTEN_AT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class LeftOver:
    """Tombstones that no committed epoch of those that led to the table's rows has written."""

    table: DeltaTable
    where: str
    """SQL that is true of them."""
    number: int
    aside: DeltaTable
    """Where they are kept. It may not exist yet."""

    def delete(self, at: int | None) -> None:
        """Delete them, and keep them aside. An epoch that was planned before may still be committed, and would then
        lack its tombstones. So fence it first.

        ``at``: the number of the last epoch, which a RESTORE may undo; None: there is none yet, and nothing is kept. A
        crash between the two leaves them in both tables. The next run does both steps again: what is aside twice counts
        once. If the table is restored before, to an epoch at which they count, they stay.
        """
        if at is not None:
            sql = f"SELECT *, {int(at)}L AS {FORGOTTEN_AT} FROM {self.table.sql} WHERE {self.where}"
            keep(self.table.spark.sql(sql), self.aside)
        delete(self.table, self.where)


def keep(rows: DataFrame, aside: DeltaTable) -> None:
    """Write rows to the table of those aside."""
    if not aside.exists():
        aside.create(rows.schema, CHANGING)
    append(rows, aside)


def append(notes: DataFrame, table: DeltaTable) -> None:
    """Write rows to a table of tombstones."""
    table.allow_widening(notes.schema)
    past_conflicts(notes.writeTo(table.sql).options(**evolution(table)).append)


def delete(table: DeltaTable, where: str) -> None:
    """Delete the rows of which ``where`` is true."""
    past_conflicts(partial(run, table, f"DELETE FROM {table.sql} WHERE {where}"))


def run(table: DeltaTable, sql: str) -> None:
    """Run a statement on a table."""
    table.spark.sql(sql).collect()
