"""The files of a Delta table: small ones put together, and those removed that nothing refers to any more.

Neither changes what the table holds, nor the position: both are commits of nobody's epoch. A run that writes at the
same moment goes on: it wins over OPTIMIZE, or its epoch is written again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sinks.delta.conflicts import is_conflict, past_conflicts
from sinks.delta.table import DeltaTable
from sinks.spark.settings import with_settings

_FULL = 128 << 20
"""Bytes of a file that is left alone: what an upkeep rewrites grows with what was written since the last one. Larger
ones would be fewer, and a MERGE rewrites every file that it touches."""
_SIZES = {f"spark.databricks.delta.optimize.{end}FileSize": str(_FULL) for end in ("min", "max")}
_LEAST = timedelta(hours=1)
"""A run's files are there before their commit is."""


@dataclass(frozen=True)
class Upkeep:
    """Of one table. In a rehearsal what would be done."""

    table: str
    files: int
    bytes: int
    small: int
    """Files that were put together; 0: there was none, or one."""
    into: int | None
    """So many; None: not known before it is done; 0: they were left, as a run has rewritten them at each attempt."""
    unused: int | None
    """Files without a reader that were removed; None: left, as the table keeps them for less than an hour, or as
    nobody wants them removed."""


def upkeep(table: DeltaTable, *, rehearse: bool, compact: bool = True, vacuum: bool = True) -> Upkeep:
    """``table``: one that is there. What may be removed is its own choice: delta.deletedFileRetentionDuration."""
    files, size, small = _files(table)
    small = small if compact and small > 1 else 0
    into = None
    if small and not rehearse:
        try:
            small, into = past_conflicts(lambda: _compact(table))
        except Exception as error:
            if not is_conflict(error):
                raise
            into = 0
    detail = table.detail()
    unused = None
    if vacuum and detail is not None and detail.file_retention >= _LEAST:
        unused = table.spark.sql(f"VACUUM {table.sql} DRY RUN").count()
        if unused and not rehearse:
            table.spark.sql(f"VACUUM {table.sql}").collect()
    return Upkeep(table.label, files, size, small, into, unused)


def _files(table: DeltaTable) -> tuple[int, int, int]:
    """Number of files, their size in bytes, and how many of them are smaller than a full file."""
    counts = (
        table.spark.sql(f"SELECT DISTINCT _metadata.file_path, _metadata.file_size AS size FROM {table.sql}")
        .selectExpr("count(*) AS files", "coalesce(sum(size), 0) AS bytes", f"count_if(size < {_FULL}) AS small")
        .first()
    )
    assert counts is not None
    return counts["files"], counts["bytes"], counts["small"]


def _compact(table: DeltaTable) -> tuple[int, int]:
    """Number of files that were compacted, and of files that they became."""
    with with_settings(table.spark, _SIZES):
        done = table.spark.sql(f"OPTIMIZE {table.sql}").first()
    assert done is not None
    return done["metrics"]["numFilesRemoved"], done["metrics"]["numFilesAdded"]
