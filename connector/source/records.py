"""Kafka records as a DataFrame with the columns of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from connector.spark.compat import local_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADER_TYPE = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
_NO_RECORDS = [
    f"CAST(NULL AS {sql_type}) AS {name}"
    for name, sql_type in {
        "key": "BINARY", "value": "BINARY", "topic": "STRING", "partition": "INT", "offset": "BIGINT",
        "timestamp": "TIMESTAMP", "headers": HEADER_TYPE,
    }.items()
]  # fmt: skip


def no_records(spark: SparkSession) -> DataFrame:
    """An empty DataFrame with the columns of Spark's Kafka source."""
    return spark.range(0).selectExpr(*_NO_RECORDS)


def polled(spark: SparkSession, records: Iterable[Any]) -> DataFrame:
    """kafka-python's records as Spark would have read them. They pass the driver: only for bounded batches."""
    rows = [
        (each.key, each.value, each.topic, each.partition, each.offset, each.timestamp, each.headers or None)
        for each in records
    ]
    columns = (
        f"key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, millis BIGINT, headers {HEADER_TYPE}"
    )
    return local_frame(spark, rows, columns, verify=False).selectExpr(
        "key", "value", "topic", "partition", "offset", "timestamp_millis(millis) AS timestamp", "headers"
    )
