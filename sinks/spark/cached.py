"""Rows that several queries use, computed once; and what Delta does with the rows that it merges.

A MERGE reads its source twice, so by default Delta puts the source aside first. Told not to, it refuses a source that
Spark keeps: DELTA_MERGE_SOURCE_CACHED_DURING_EXECUTION. So a session does one or the other, never both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PUT_ASIDE = "spark.databricks.delta.merge.materializeSource"


def merging(spark: SparkSession, *, staged: bool) -> None:
    """Before the session's first MERGE. ``staged``: what it merges are files that stay as they are, which Delta needn't
    put aside once more. Else it has to, whatever the user's settings say: records read twice may differ."""
    from pyspark.errors import PySparkException

    with suppress(PySparkException):  # where it may not be set, as on a serverless cluster
        if staged:
            spark.conf.set(_PUT_ASIDE, "none")
        elif _read_twice(spark):
            spark.conf.set(_PUT_ASIDE, "auto")


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Kept by Spark until the end of the block. Where the platform can't (serverless), or the rows are staged, each
    query reads them again."""
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


def _read_twice(spark: SparkSession) -> bool:
    from pyspark.errors import PySparkException

    try:
        return spark.conf.get(_PUT_ASIDE, "auto") == "none"
    except PySparkException:
        return False
