"""Compacts the small files of a Delta table, and removes files that nothing refers to any more.

The commits of both change neither the table's rows nor the pipeline's position. A run may write at the same time. If
the two conflict, OPTIMIZE gives way, or the run writes its epoch again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from sinks.delta.conflicts import is_conflict, past_conflicts
from sinks.delta.table import DeltaTable
from sinks.spark.settings import with_settings

_FULL = 128 << 20
"""The size in bytes from which a file counts as full and isn't rewritten. So an upkeep only rewrites what was written
since the last one. With a larger size there would be fewer files, but a MERGE rewrites every file that it touches."""
_SIZES = {f"spark.databricks.delta.optimize.{end}FileSize": str(_FULL) for end in ("min", "max")}
_LEAST = timedelta(hours=1)
"""The shortest retention with which VACUUM is run. A shorter one could remove files that a run is about to commit."""


@dataclass(frozen=True)
class Upkeep:
    """The result of the upkeep of one table. In a rehearsal, what it would do."""

    table: str
    files: int
    bytes: int
    small: int
    """The number of small files that were compacted. 0: there was none, or one."""
    into: int | None
    """The number of files that they became. None: unknown in a rehearsal. 0: they stayed, because a run rewrote them at
    each attempt."""
    unused: int | None
    """The number of unused files that VACUUM removed. None: it wasn't run, because the table's file retention is below
    an hour, or because it wasn't wanted, or because of ``needed_by``."""
    needed_by: int | None = None
    """The epoch in doubt that may need the unused files."""


def upkeep(
    table: DeltaTable,
    *,
    rehearse: bool,
    compact: bool = True,
    vacuum: bool = True,
    needed_by: Callable[[], int | None] = lambda: None,
) -> Upkeep:
    """Compact and vacuum a table, which must exist. Its delta.deletedFileRetentionDuration decides what is removed.

    ``rehearse``: change nothing; ``compact``, ``vacuum``: which of the two to do; ``needed_by``: asked right
    before unused files are removed; the epoch that needs them, if there is one: then they stay.
    """
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
    unused, needs = None, needed_by() if vacuum else None
    if vacuum and needs is None and detail is not None and detail.file_retention >= _LEAST:
        unused = table.spark.sql(f"VACUUM {table.sql} DRY RUN").count()
        needs = needed_by() if unused else None  # listing them may have taken long
        if needs is not None:
            unused = None
        elif unused and not rehearse:
            table.spark.sql(f"VACUUM {table.sql}").collect()
    return Upkeep(table.label, files, size, small, into, unused, needs)


def _files(table: DeltaTable) -> tuple[int, int, int]:
    """The number of files, their size in bytes, and the number of files smaller than a full file."""
    counts = (
        table.spark.sql(f"SELECT DISTINCT _metadata.file_path, _metadata.file_size AS size FROM {table.sql}")
        .selectExpr("count(*) AS files", "coalesce(sum(size), 0) AS bytes", f"count_if(size < {_FULL}) AS small")
        .first()
    )
    assert counts is not None
    return counts["files"], counts["bytes"], counts["small"]


def _compact(table: DeltaTable) -> tuple[int, int]:
    """Compact the table. Returns the number of files that were compacted, and of files that they became."""
    with with_settings(table.spark, _SIZES):
        done = table.spark.sql(f"OPTIMIZE {table.sql}").first()
    assert done is not None
    return done["metrics"]["numFilesRemoved"], done["metrics"]["numFilesAdded"]
