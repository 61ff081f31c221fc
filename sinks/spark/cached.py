"""Caches rows that several queries use, and sets how Delta caches the source of a MERGE.

A MERGE reads its source twice, so by default Delta materializes the source first. With that turned off, Delta refuses a
source that Spark caches: DELTA_MERGE_SOURCE_CACHED_DURING_EXECUTION. So a session does one of the two, never both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PUT_ASIDE = "spark.databricks.delta.merge.materializeSource"


def merging(spark: SparkSession, *, staged: bool) -> None:
    """Set how the session's MERGEs read their source. Call it before the first MERGE.

    With ``staged`` the source consists of files that don't change, and Delta needn't materialize it. Otherwise Delta
    must, whatever the user's settings are, because records that are read twice may differ.
    """
    from pyspark.errors import PySparkException

    with suppress(PySparkException):  # a serverless cluster refuses the setting
        if staged:
            spark.conf.set(_PUT_ASIDE, "none")
        elif _read_twice(spark):
            spark.conf.set(_PUT_ASIDE, "auto")


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Cache the rows until the end of the block.

    Where the platform can't cache (serverless), or the rows are staged, each query reads them again.
    """
    from pyspark.errors import PySparkException

    if _read_twice(rows.sparkSession):
        yield rows
        return
    with suppress(PySparkException):
        rows = rows.persist()
    try:
        yield rows
    finally:
        with suppress(PySparkException):
            rows.unpersist()


def uncached(spark: SparkSession, table: str) -> DataFrame:
    """The rows that the newest version of a table has. ``table``: SQL of its name.

    All sessions of a JVM share Spark's cache, and it takes every version of a Delta table for the same rows. So a table
    that somebody has cached would be read as it was then: before a RESTORE, or before the commits of another JVM.
    """
    from pyspark.errors import PySparkException

    with suppress(PySparkException):  # a serverless cluster has no cache
        spark.catalog.uncacheTable(table)
    return spark.table(table)


def stays(rows: DataFrame) -> bool:
    """Whether every query on these rows, of ``kept``, sees the same ones: they are cached, or staged in files."""
    from pyspark.errors import PySparkException

    if _read_twice(rows.sparkSession):
        return True
    with suppress(PySparkException):
        level = rows.storageLevel
        return level.useMemory or level.useDisk
    return False


def _read_twice(spark: SparkSession) -> bool:
    from pyspark.errors import PySparkException

    try:
        return (spark.conf.get(_PUT_ASIDE, "auto") or "").lower() == "none"  # Delta takes it in any case
    except PySparkException:
        return False
