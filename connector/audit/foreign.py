"""Commits of no pipeline that have removed or changed rows of its table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from sinks.plurals import plural

if TYPE_CHECKING:
    from pyspark.sql import Row

_ROWS = {
    "DELETE": ("numDeletedRows",), "UPDATE": ("numUpdatedRows",),
    "MERGE": ("numTargetRowsDeleted", "numTargetRowsUpdated"),
}  # fmt: skip
"""Operation -> the metrics that say how many rows it has removed or changed."""


class Foreign(NamedTuple):
    """One such commit."""

    version: int
    told: str
    """A sentence."""
    rows: int | None
    """How many rows it has removed or changed. None: the commit doesn't say."""

    @classmethod
    def of(cls, row: Row, *, quoted: bool = True) -> Foreign:
        """From a row of the table's history. ``quoted``: told with its condition, which has values of the rows."""
        metrics, parameters = row["operationMetrics"] or {}, row["operationParameters"] or {}
        return cls(
            row["version"],
            f"Version {row['version']} is somebody else's {row['operation']}"
            + (f" by {row['userName']}" if row["userName"] else "")
            + f" ({row['timestamp']:%Y-%m-%d %H:%M:%S}"
            + (f", where {where}" if quoted and (where := parameters.get("predicate")) else "")
            + "): "
            + _taken(metrics),
            rows_taken(row["operation"], metrics),
        )


def rows_taken(operation: str, metrics: Mapping[str, str]) -> int | None:
    """How many rows a commit has removed or changed. None: it doesn't say, as where it drops a partition or a table."""
    names = _ROWS.get(operation, ())
    numbers = [int(metrics.get(name) or -1) for name in names]
    return sum(numbers) if names and min(numbers) >= 0 else None


def _taken(metrics: Mapping[str, str]) -> str:
    deleted = int(metrics.get("numDeletedRows") or metrics.get("numTargetRowsDeleted") or 0)
    changed = int(metrics.get("numUpdatedRows") or metrics.get("numTargetRowsUpdated") or 0)
    said = [f"{plural(deleted, 'row')} deleted"] if deleted else []
    said += [f"{plural(changed, 'row')} changed"] if changed else []
    return f"{', '.join(said) or 'rows replaced'}. What it took away counts as lost, what it changed as altered."
