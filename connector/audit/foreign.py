"""Commits of no pipeline that have removed or changed rows of its table."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from connector.audit.verdict import FAULTS
from sinks.plurals import first_of, plural

if TYPE_CHECKING:
    from pyspark.sql import Row

_ROWS = {
    "DELETE": ("numDeletedRows",), "UPDATE": ("numUpdatedRows",),
    "MERGE": ("numTargetRowsDeleted", "numTargetRowsUpdated"),
}  # fmt: skip
"""Operation -> the metrics that say how many rows it has removed or changed."""
_COLUMNS = {"DROP COLUMNS": "columns", "RENAME COLUMN": "oldColumnPath", "REPLACE COLUMNS": None}
"""Operation that takes the values of columns away -> the parameter that names them. None: they aren't named."""
_SHOWN = 5


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
            + (_TAKEN_COLUMNS if row["operation"] in _COLUMNS else _taken(metrics)),
            rows_taken(row["operation"], metrics),
        )


def takes_away(operation: str, parameters: Mapping[str, str], columns: Collection[str]) -> bool:
    """Whether a commit has removed or changed rows, or values of these ``columns``: their paths, in lower case.

    A column that is dropped or renamed, and is there again, is null in the rows of before. One that isn't there is
    missing in the comparison itself.
    """
    said = {name: (value or "").strip('"') for name, value in parameters.items()}
    if operation in _COLUMNS:
        named = _named(said, _COLUMNS[operation])
        return named is None or any(_within(path, name) for path in columns for name in named)
    if operation in (*_ROWS, "TRUNCATE", "CLONE") or "REPLACE TABLE" in operation:
        return True
    return said.get("mode", "").lower() == "overwrite" or said.get("outputMode", "").lower() == "complete"


def _named(parameters: Mapping[str, str], name: str | None) -> list[str] | None:
    """The paths of the columns that a commit says it has taken away, in lower case. None: it doesn't say."""
    text = parameters.get(name, "") if name is not None else ""
    if not text:
        return None
    try:
        paths = json.loads(text) if text.startswith("[") else [text]
    except ValueError:
        return None
    return [str(path).replace("`", "").lower() for path in paths]


def _within(path: str, column: str) -> bool:
    return path == column or path.startswith(f"{column}.")


def rows_taken(operation: str, metrics: Mapping[str, str]) -> int | None:
    """How many rows a commit has removed or changed. None: it doesn't say, as where it drops a partition or a table."""
    names = _ROWS.get(operation, ())
    numbers = [int(metrics.get(name) or -1) for name in names]
    return sum(numbers) if names and min(numbers) >= 0 else None


_TAKEN_COLUMNS = (
    "values of columns taken away. Where Kafka still has the record they count as altered, also if a column of the "
    "name was added again."
)


def _taken(metrics: Mapping[str, str]) -> str:
    deleted = int(metrics.get("numDeletedRows") or metrics.get("numTargetRowsDeleted") or 0)
    changed = int(metrics.get("numUpdatedRows") or metrics.get("numTargetRowsUpdated") or 0)
    said = [f"{plural(deleted, 'row')} deleted"] if deleted else []
    said += [f"{plural(changed, 'row')} changed"] if changed else []
    return (
        f"{', '.join(said) or 'rows replaced'}. What it took away counts as lost, what it changed as "
        "altered, where Kafka still has the record."
    )


def hidden(foreign: Sequence[Foreign], counts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why a table can't be called exact of which Kafka doesn't show every record, as a sentence, if so.

    ``foreign``: commits of others since the pipeline has begun. ``counts``: what was found. A row whose record is gone
    is in no count once it is deleted, and a changed one shows only as unchecked. What is at fault accounts for as many
    rows.
    """
    took = [each for each in foreign if each.rows != 0]
    shown = sum(each["count"] for each in counts if each["kind"] in FAULTS)
    rows = None if any(each.rows is None for each in took) else sum(each.rows or 0 for each in took)
    if not took or (rows is not None and rows <= shown):
        return []
    named = first_of([str(each.version) for each in took], _SHOWN)
    versions = f"Version {named} is" if len(took) == 1 else f"Versions {named} are"
    what = "rows" if rows is None else plural(rows, "row")
    return [
        f"{versions} somebody else's, and removed or changed {what}. The comparison shows {shown:,} of them, as Kafka "
        "may no longer hold the records of the others. If it was a mistake, rewind to the version before. If it was "
        f"meant, verify the version before (--version {took[0].version - 1}): nothing shows that later ones are exact "
        "as long as the table's history has the commit."
    ]
