"""Spark's reader of Kafka, for records up to offsets that are known before it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sinks.kafka.options import spark_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

_DEFAULTS = {
    # Kafka's default, 500, is made for callers that handle one record at a time.
    "max.poll.records": "10000",
    # What a task reads is there already. Kafka's default, 500 ms, is how long a broker keeps a fetch at the end of a
    # partition, for records that are of the next epoch: the time that each task with few records would take.
    "fetch.max.wait.ms": "10",
}


def spark_reader(spark: SparkSession, kafka: Mapping[str, str]) -> DataFrameReader:
    """Of committed records only. ``kafka``: options by Kafka's names, secrets in clear."""
    options = spark_options({**_DEFAULTS, **kafka})
    return spark.read.format("kafka").options(**options).option("kafka.isolation.level", "read_committed")
