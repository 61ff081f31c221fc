"""Kafka records as a DataFrame with the columns of Spark's own Kafka source."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connector.spark.compat import local_table
from sinks.kafka import EARLIEST_MILLIS, LATEST_MILLIS, TOLD_TIMESTAMP, no_timestamp, spark_reader
from sinks.offsets import OffsetRange, Offsets
from sinks.spark.types import no_rows, sql_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

HEADER_TYPE = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
_COLUMNS = {
    "key": "BINARY", "value": "BINARY", "topic": "STRING", "partition": "INT", "offset": "BIGINT",
    "timestamp": "TIMESTAMP", "headers": HEADER_TYPE,
}  # fmt: skip

RECORDS_PER_TASK = 25_000


def read(
    spark: SparkSession, kafka: Mapping[str, str], ranges: Sequence[OffsetRange], *, headers: bool = False
) -> DataFrame:
    """The records of these ranges, by Spark's own reader. ``kafka``: Kafka's options, with secrets in clear text.

    A query over them fails if any record is gone.
    """
    from pyspark.sql import functions as F

    if not ranges:
        return no_records(spark)
    starts = Offsets({part.at: part.start for part in ranges})
    ends = Offsets({part.at: part.end for part in ranges})
    assignment = {topic: [int(partition) for partition in partitions] for topic, partitions in starts.to_dict().items()}
    records = (
        spark_reader(spark, kafka)
        .option("kafka.group.id", kafka["group.id"])
        .option("assign", json.dumps(assignment))
        .option("startingOffsets", starts.to_json())
        .option("endingOffsets", ends.to_json())
        .option("failOnDataLoss", "true")
        .option("includeHeaders", headers)
        .load()
        .withColumn("timestamp", F.expr(TOLD_TIMESTAMP))
    )
    tasks = tasks_for(ranges)
    return records.coalesce(tasks) if tasks < len(ranges) else records


def tasks_for(ranges: Sequence[OffsetRange]) -> int:
    """The largest number of tasks that pays: for a few records, one task and one file per partition is too much."""
    return max(1, -(-sum(part.span for part in ranges) // RECORDS_PER_TASK))


def no_records(spark: SparkSession) -> DataFrame:
    """An empty DataFrame with the columns of Spark's Kafka source."""
    return no_rows(spark, _COLUMNS)


def nothing_like(frame: DataFrame) -> DataFrame:
    """An empty DataFrame with the columns of another one, and nothing to compute."""
    return no_rows(frame.sparkSession, {each.name: sql_type(each.dataType) for each in frame.schema})


def polled(spark: SparkSession, records: Iterable[Any]) -> DataFrame:
    """kafka-python's records as Spark would have read them. They pass the driver: only for bounded batches.

    Raises BadRecord for a Kafka timestamp that Spark wouldn't have read as it is.
    """
    records = list(records)
    for each in records:
        if not EARLIEST_MILLIS <= each.timestamp <= LATEST_MILLIS:
            raise no_timestamp(each.topic, each.partition, each.offset, each.timestamp)
    rows = [
        (each.key, each.value, each.topic, each.partition, each.offset, each.timestamp, each.headers or None)
        for each in records
    ]
    if not rows:
        return no_records(spark)
    return local_table(spark, rows, _POLLED, _polled_in_arrow()).selectExpr(
        "key", "value", "topic", "partition", "offset", "timestamp_millis(millis) AS timestamp", "headers"
    )


_POLLED = f"key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, millis BIGINT, headers {HEADER_TYPE}"


def _polled_in_arrow() -> pa.Schema:
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("millis", pa.int64()),
            ("headers", pa.list_(header)),
        ]
    )
