"""Spark's Kafka reader, for a batch of records whose end offsets are known before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sinks.kafka.options import spark_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

_DEFAULTS = {
    # Kafka's default, 500, suits callers that handle one record at a time.
    "max.poll.records": "10000",
    # All records that a task reads exist already. With Kafka's default, 500 ms, a broker holds a fetch at the end of a
    # partition to wait for records of the next epoch, and each task with few records would take that long.
    # Brokers with tiered storage before 3.8 end a fetch from remote storage after it (KIP-1018): users raise it there.
    "fetch.max.wait.ms": "10",
}


def spark_reader(spark: SparkSession, kafka: Mapping[str, str], format: str = "kafka") -> DataFrameReader:
    """A reader of committed records only. ``kafka`` are Kafka's options, with secrets in clear text."""
    options = spark_options({**_DEFAULTS, **kafka})
    return spark.read.format(format).options(**options).option("kafka.isolation.level", "read_committed")
