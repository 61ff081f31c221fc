"""Records that don't get into the table, kept with their coordinates and the reason.

They are written before the commit of their epoch, which passes them. A crash in between leaves them there already; the
next run meets the same records, and finds them: a record is inserted once per reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.delta.commit import past_conflicts
from sinks.delta.table import COORDINATES, DeltaTable
from sinks.raised import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SOURCE = "lakelock_dead_letters"
_WINDOW = ("window_start", "window_end")


class DeadLetters:
    """Columns: pipeline, reason, record (JSON of what was decoded), window_start and window_end of a late record (null
    for sessions), and the record's coordinates."""

    def __init__(self, table: DeltaTable, *, pipeline: str) -> None:
        self._table = table
        self._pipeline = pipeline

    def add(self, records: DataFrame, reason: str, *, columns: list[str], windowed: bool) -> None:
        shown = ", ".join(identifier(name) for name in columns)
        window = [name if windowed else f"CAST(NULL AS TIMESTAMP) AS {name}" for name in _WINDOW]
        letters = records.selectExpr(
            f"{literal(self._pipeline)} AS pipeline",
            f"{literal(reason)} AS reason",
            f"to_json(struct({shown})) AS record",
            *window,
            *COORDINATES,
            "current_timestamp() AS _noted_at",
        )
        if self._table.detail() is None:
            self._table.create(letters.schema)
        letters.createOrReplaceTempView(_SOURCE)
        same = " AND ".join(f"t.{name} <=> s.{name}" for name in ("pipeline", "reason", *_WINDOW, *COORDINATES[:3]))
        sql = f"MERGE INTO {self._table.sql} AS t USING {_SOURCE} AS s ON {same} WHEN NOT MATCHED THEN INSERT *"
        past_conflicts(lambda: self._table.spark.sql(sql).collect())
