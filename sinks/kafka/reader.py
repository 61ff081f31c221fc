"""Spark's Kafka reader, for a batch of records whose end offsets are known before it starts, and its timestamps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sinks.kafka.options import spark_options

EARLIEST_MILLIS = -2_208_902_400_000
"""1900-01-02, in UTC: the first Kafka timestamp that counts. Spark's own source rebases those before 1900 from the
Julian calendar and the local mean time of the executor's zone. A day is more than any zone adds."""
LATEST_MILLIS = (2**63 - 1) // 1000
"""A TIMESTAMP counts microseconds in 64 bits."""
NO_TIMESTAMP = "LAKELOCK_TIMESTAMP"
"""What an error says of a Kafka timestamp out of range. The timestamp (``?``: Spark's own source has changed it), the
partition, the offset and the topic follow."""
TOLD_TIMESTAMP = (
    f"CASE WHEN `timestamp` < timestamp_millis({EARLIEST_MILLIS}L) THEN raise_error(concat('{NO_TIMESTAMP} ? ', "
    "CAST(`partition` AS STRING), ' ', CAST(`offset` AS STRING), ' ', topic)) ELSE `timestamp` END"
)
"""SQL: the column ``timestamp`` of Spark's own source. It fails the query where that isn't what Kafka has."""

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
_ALWAYS = {
    "isolation.level": "read_committed",
    # Else a broker may create a topic again that was deleted while a task reads it: with another id, and empty.
    "allow.auto.create.topics": "false",
}


def spark_reader(spark: SparkSession, kafka: Mapping[str, str], format: str = "kafka") -> DataFrameReader:
    """A reader of committed records only. ``kafka`` are Kafka's options, with secrets in clear text."""
    options = spark_options({**_DEFAULTS, **kafka, **_ALWAYS})
    return spark.read.format(format).options(**options)
