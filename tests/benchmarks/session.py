"""The session of a measured process: the same settings for whoever is measured in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from connector.spark.session import session


@dataclass
class Clock:
    start_seconds: float
    """From the order to start the process to the session."""
    ready: float

    @property
    def seconds(self) -> float:
        """Since the session was ready."""
        return time.perf_counter() - self.ready


@contextmanager
def measured_session(folder: Path, begun: float) -> Iterator[tuple[SparkSession, Clock]]:
    """Lakelock's own settings, as many shuffle partitions as cores and few for a snapshot: they help the peers too.

    ``begun``: the time of day when the process was asked for.
    """
    settings = {
        # What a user has who sets nothing.
        "spark.driver.memory": "2g",
        "spark.sql.warehouse.dir": str(folder),
        # Of every trigger, not of the last hundred.
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
    }
    with session(settings, name="benchmark") as spark:
        yield spark, Clock(time.time() - begun, time.perf_counter())
