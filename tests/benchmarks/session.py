"""The Spark session of a measured process, with the same settings for every contender."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from connector.spark.session import session


@dataclass
class Clock:
    start_seconds: float
    """From the request to start the process until the session was ready."""
    ready: float

    @property
    def seconds(self) -> float:
        """Seconds since the session was ready."""
        return time.perf_counter() - self.ready


@contextmanager
def measured_session(folder: Path, begun: float, more: Mapping[str, str] = {}) -> Iterator[tuple[SparkSession, Clock]]:
    """A session with Lakelock's settings, and a clock. The peers profit from these settings too.

    ``begun``: when the process was requested, in seconds since 1970. ``more``: other settings.
    """
    settings = {
        # The heap that users get by default.
        "spark.driver.memory": "2g",
        "spark.sql.warehouse.dir": str(folder),
        # Keep the progress of every trigger, not only of the last hundred.
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        **more,
    }
    with session(settings, name="benchmark") as spark:
        yield spark, Clock(time.time() - begun, time.perf_counter())
