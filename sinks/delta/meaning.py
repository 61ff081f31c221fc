"""What the changes of a change log mean: how they become rows of the table.

An epoch means what it meant when it was appended. So a log keeps, with its columns, the options by which its changes
are reduced and merged. A fold, and each query for the current rows, takes every column of the log, by these options. A
run with other columns or options first folds what was appended with the old ones, and then starts the log again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sinks.contract import Committed, Epoch, Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class Merging(Protocol):
    """The sink that merges reduced changes into the table: an upsert or an aggregate."""

    def write(self, epoch: Epoch, rows: DataFrame, *, within: str = "") -> Committed:
        """Commit the epoch with its rows merged.

        ``within``: SQL that is true of every row ``t`` of the table that shares a key with the rows; empty: unknown.
        """
        ...

    def rehearse(self, rows: DataFrame, epoch: Epoch) -> None:
        """Fail if ``write`` would fail because of the rows. Changes nothing."""
        ...

    def merged_sql(self, rows: str, keys: str, at: Position | None, *, hint: str) -> str:
        """A query for the rows that the table would have after the write.

        ``rows``: SQL of the rows, as in FROM; ``keys``: SQL of rows with their key columns, as in FROM, where a key may
        occur any number of times; ``at``: the position whose version of the table is read (None: the newest);
        ``hint``: SQL hint for the join with the rows.
        """
        ...

    def not_merged_sql(self, changes: str) -> str:
        """SQL, as in FROM, of the changes that have to be merged with the table's newest version.

        ``changes``: SQL, as in FROM, of changes that may be in the table already. They are a tail of the change log:
        each change that is newer than one of them is among them too.
        """
        ...

    def make_ready_for_views(self, changes: str) -> None:
        """Make the tables that a view of the current rows reads, if some are missing; ``changes``: as above."""
        ...


class Reduces(Protocol):
    """Reduces changes to the rows that are merged: one per key or group. The changes may be of several epochs."""

    def of(self, changes: DataFrame) -> DataFrame:
        """The reduced rows."""
        ...

    def sql(self, changes: str) -> str:
        """A query for the reduced rows; ``changes``: SQL, as in FROM."""
        ...


@dataclass(frozen=True)
class Meaning:
    """How changes become rows of the table."""

    columns: Callable[[], StructType]
    """The columns of the changes."""
    options: Callable[[], str]
    """The options that the reduction and the merge depend on, as text. Empty: an older release has kept none. What the
    table remembers is among them, so they are asked when there is a table."""
    reduce: Reduces
    table: Merging
    """Merges what is reduced."""
    key: Sequence[str]
    """Key columns of table and changes."""


Kept = Callable[["StructType", str], Meaning]
"""The meaning of a log with these columns and options. Raises SchemaMismatch if the table can't take its changes."""
