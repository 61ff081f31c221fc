"""Spark's settings for the work of an epoch, in sessions that Lakelock makes on this machine. See docs/spark.md."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sinks.spark.settings import with_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TUNING = "spark.lakelock.tuning"
"""Set in the sessions that may be tuned: "true"."""
_FEW = 10_000
"""Records that are decoded sooner than the code for it is compiled."""
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""How Spark runs a query on a few rows: to compile it takes as long again as all the rest."""
_FOR_FEW = {
    **INTERPRETED,
    # Delta's state of its log: a few hundred actions at most are read, for the epoch that it holds.
    "spark.databricks.delta.snapshotPartitions": "1",
}


@contextmanager
def tuned(spark: SparkSession, options: Container[str], *, appended: int | None) -> Iterator[None]:
    """For the block. ``options``: settings that the user has chosen; ``appended``: records of the epoch, None where
    they are merged into a table, whose size counts more than theirs."""
    changed: dict[str, str] = {}
    if appended is not None and appended <= _FEW and spark.conf.get(TUNING, "false") == "true":
        changed = {name: value for name, value in _FOR_FEW.items() if name not in options}
    with with_settings(spark, changed):
        yield
