"""Large tables of one row per key, for a pipeline to continue with, and their current rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import connector
from benchmarks import ours, streaming
from benchmarks.data import COLUMNS, Topic, values
from benchmarks.sizes import PARTITIONS


def full_table(spark: SparkSession, topic: Topic, folder: Path, rows: int) -> None:
    """Make a table with Spark, because a pipeline would take minutes. A pipeline takes the table for a copy without
    its log: the rows tell the position, which is before the first record."""
    streaming.create(spark, folder, COLUMNS)
    (
        values(spark.range(0, rows, numPartitions=PARTITIONS), "id")
        .selectExpr(
            "* EXCEPT (_partition)", f"'{topic.name}' AS _topic", "_partition", "-1L AS _offset",
            "timestamp_seconds(1767225600) AS _timestamp",
        )
        .write.format("delta").mode("append").save(str(folder / "table"))
    )  # fmt: skip


def merging(merge: str, fold: int) -> dict[str, object]:
    """The sink's options. None for on_write, which is the default."""
    return {} if merge == "on_write" else {"merge": merge, "fold": {"epochs": fold}}


def current(spark: SparkSession, of: Mapping[str, Any], folder: Path) -> DataFrame:
    """The current rows of a pipeline's table, including changes that aren't folded yet."""
    (sink,) = of["sinks"]
    if "merge" not in sink:
        return spark.read.format("delta").load(sink["path"])
    return connector.read(spark, ours.as_file(of, folder))
