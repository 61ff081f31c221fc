"""The peer: Spark Structured Streaming into Delta with a checkpoint, as its users write it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.data import COLUMNS, Topic, decoded, latest_per_key

PEER = "Structured Streaming"
TUNED = "Structured Streaming, tuned"
DEFAULTS = {"spark.sql.shuffle.partitions": "200", "spark.databricks.delta.snapshotPartitions": "50"}
"""The defaults of Spark and Delta, for the settings that the sessions here change."""

Query = Callable[[SparkSession, Topic, Path, int | None], StreamingQuery]
"""Writes a topic into the table of a folder, and waits for the end. The last argument: offsets per trigger, or None for
everything in one."""


def prepare(spark: SparkSession, *, tuned: bool) -> None:
    """``tuned``: keep the settings of the session. Otherwise set the defaults of Spark and Delta."""
    for name, value in ({} if tuned else DEFAULTS).items():
        spark.conf.set(name, value)


def append(spark: SparkSession, topic: Topic, folder: Path, per_trigger: int | None) -> StreamingQuery:
    create(spark, folder, COLUMNS)
    rows = decoded(stream(spark, topic, per_trigger)).writeStream
    return _finished(rows.format("delta").outputMode("append").option("path", str(folder / "table")), folder)


def upsert(spark: SparkSession, topic: Topic, folder: Path, per_trigger: int | None) -> StreamingQuery:
    create(spark, folder, COLUMNS)
    return merge(spark, topic, folder, per_trigger)


def merge(spark: SparkSession, topic: Topic, folder: Path, per_trigger: int | None) -> StreamingQuery:
    """foreachBatch and MERGE. A guard makes a repeated batch harmless."""

    def write(batch: DataFrame, _: int) -> None:
        merge_latest(batch, folder)

    return batches(decoded(stream(spark, topic, per_trigger)), write, folder)


def partial_sums(spark: SparkSession, topic: Topic, folder: Path, per_trigger: int | None) -> StreamingQuery:
    """Adds a batch's sums to the table's. Has no guard, so it is faster, but counts a repeated batch twice."""
    create(spark, folder, "key STRING, records BIGINT, total BIGINT")

    def write(batch: DataFrame, _: int) -> None:
        added = "UPDATE SET records = t.records + s.records, total = t.total + s.total"
        into(batch, sums(batch), folder, f"WHEN MATCHED THEN {added}")

    return batches(decoded(stream(spark, topic, per_trigger)), write, folder)


def stateful_sums(spark: SparkSession, topic: Topic, folder: Path, per_trigger: int | None) -> StreamingQuery:
    """Spark's stateful aggregation. Merges the changed groups into the table."""
    create(spark, folder, "key STRING, records BIGINT, total BIGINT")

    def write(batch: DataFrame, _: int) -> None:
        into(batch, batch, folder, "WHEN MATCHED THEN UPDATE SET *")

    changed = sums(decoded(stream(spark, topic, per_trigger)))
    return _finished(changed.writeStream.outputMode("update").foreachBatch(write), folder)


def create(spark: SparkSession, folder: Path, columns: str) -> None:
    spark.sql(f"CREATE TABLE delta.`{folder / 'table'}` ({columns}) USING delta")


def sums(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").agg(F.count("*").alias("records"), F.sum("number").alias("total"))


def merge_latest(batch: DataFrame, folder: Path) -> None:
    into(batch, latest_per_key(batch), folder, "WHEN MATCHED AND s._offset > t._offset THEN UPDATE SET *")


def into(batch: DataFrame, rows: DataFrame, folder: Path, matched: str) -> None:
    rows.createOrReplaceTempView("updates")
    batch.sparkSession.sql(
        f"MERGE INTO delta.`{folder / 'table'}` AS t USING updates AS s ON t.key = s.key "
        f"{matched} WHEN NOT MATCHED THEN INSERT *"
    )


def trigger_seconds(query: StreamingQuery) -> list[float]:
    """The seconds of each trigger that had records. The session must keep the progress of all triggers."""
    return [
        progress["durationMs"]["triggerExecution"] / 1000 for progress in query.recentProgress if progress.numInputRows
    ]


def stream(spark: SparkSession, topic: Topic, per_trigger: int | None) -> DataFrame:
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", topic.bootstrap)
        .option("subscribe", topic.name)
        .option("startingOffsets", "earliest")
    )
    return (reader if per_trigger is None else reader.option("maxOffsetsPerTrigger", per_trigger)).load()


def batches(rows: DataFrame, write: Callable[[DataFrame, int], None], folder: Path) -> StreamingQuery:
    return _finished(rows.writeStream.foreachBatch(write), folder)


def _finished(writer: DataStreamWriter, folder: Path) -> StreamingQuery:
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return query
