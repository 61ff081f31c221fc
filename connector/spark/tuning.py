"""Spark settings for the work of an epoch, in sessions that Lakelock starts on this machine. See docs/spark.md."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sinks.spark.settings import with_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TUNING = "spark.lakelock.tuning"
"""A setting that is "true" in sessions that may be tuned."""
FEW = 10_000
"""Up to this number of records, decoding takes less time than compiling code for it."""
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings for a query on a few rows. Compiling it takes as long as everything else."""
_FOR_FEW = {
    **INTERPRETED,
    # The state of Delta's log: for the epoch in it, Delta reads at most a few hundred actions.
    "spark.databricks.delta.snapshotPartitions": "1",
}


@contextmanager
def for_few(spark: SparkSession, options: Container[str], *, few: bool = True) -> Iterator[None]:
    """Tune the session for queries on few rows within the block. ``options`` are settings chosen by the user, which
    stay. ``few`` False: change nothing."""
    with with_settings(spark, settings_for_few(spark, options) if few else {}):
        yield


def settings_for_few(spark: SparkSession, options: Container[str]) -> dict[str, str]:
    """The settings for a session that sees few rows; empty if the session may not be tuned. ``options`` are settings
    chosen by the user, which stay."""
    if spark.conf.get(TUNING, "false") != "true":
        return {}
    return {name: value for name, value in _FOR_FEW.items() if name not in options}


@contextmanager
def tuned(spark: SparkSession, options: Container[str], *, appended: int | None) -> Iterator[None]:
    """Tune the session for the block. ``options`` are settings chosen by the user, which stay.

    ``appended`` is the number of the epoch's records, or None if they are merged into a table: then the table's size
    matters more.
    """
    with for_few(spark, options, few=appended is not None and appended <= FEW):
        yield
