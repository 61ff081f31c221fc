"""What closed windows tell of event time, where no commit of the table says it any more."""

from __future__ import annotations

from collections.abc import Container
from datetime import timedelta

from sinks.delta.table import DeltaTable
from sinks.event_time import Clock, time_at
from sinks.recreated import topic_of
from sinks.spark.cached import uncached


def clock_of_rows(table: DeltaTable, topics: Container[str], allowed_lateness: timedelta | None) -> Clock:
    """The clock with the lowest watermark that can have closed the table's closed windows.

    Without it a record that comes late would be added to a closed window. Only windows with records of these topics
    count: another pipeline closes its own. ``allowed_lateness``: None if the table has no windows.
    """
    if allowed_lateness is None or not {"window_closed", "_applied"} <= set(uncached(table.spark, table.sql).columns):
        return Clock()
    closed = table.spark.sql(
        "SELECT place, unix_micros(max(window_end)) AS until "
        f"FROM (SELECT explode(map_keys(_applied)) AS place, window_end FROM {table.sql} WHERE window_closed) "
        "GROUP BY place"
    ).collect()
    ends = [row["until"] for row in closed if topic_of(row["place"].rpartition("-")[0]) in topics]
    return Clock(watermark=time_at(max(ends) + allowed_lateness // timedelta(microseconds=1)) if ends else None)
