"""The records of a topic, their decoded rows, and the expected content of tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from kafka import KafkaConsumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from benchmarks.measure import WrongResult
from benchmarks.sizes import PARTITIONS
from connector.spark.session import session

SCHEMA = "key STRING, number BIGINT, amount DOUBLE, at TIMESTAMP, note STRING"
COLUMNS = f"{SCHEMA}, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"


@dataclass(frozen=True)
class Topic:
    bootstrap: str
    name: str

    def ends(self) -> list[int]:
        """The end offset of each partition."""
        partitions = [TopicPartition(self.name, number) for number in range(PARTITIONS)]
        with closing(KafkaConsumer(bootstrap_servers=self.bootstrap)) as consumer:
            ends = consumer.end_offsets(partitions)
        return [ends[each] for each in partitions]


@dataclass(frozen=True)
class Content:
    """The actual or expected content of a table. ``digest``: the sum of all rows' hashes, over every column."""

    rows: int
    keys: int
    digest: int


def produced(topic: Topic, records: int, keys: int) -> Mapping[str, Content]:
    """Fill a topic in a new session. Returns the expected content by kind of table."""
    with session({}, name="benchmark") as spark:
        # Every key occurs, in an order that looks random.
        produce(spark, topic, records, f"IF(id < {keys}, id, pmod(xxhash64(id), {keys}))")
        rows = read(spark, topic)
        sums = rows.groupBy("key").agg(F.count("*").alias("records"), F.sum("number").alias("total"))
        should = {
            "append": content(rows),
            "upsert": content(latest_per_key(rows)),
            "aggregate": content(sums),
        }
    if should["append"].rows != records or should["upsert"].rows != keys:
        raise WrongResult(f"the topic doesn't hold {records} records on {keys} keys: {should}")
    return should


def produce(spark: SparkSession, topic: Topic, records: int, key: str) -> None:
    """Write JSON records of about 100 bytes. ``key``: SQL of a record's key as a number, where ``id`` is the record's
    number. The key is also Kafka's key and decides the partition."""
    rows = values(spark.range(0, records, numPartitions=PARTITIONS), key)
    as_json = "to_json(struct(key, number, amount, at, note)) AS value"
    produce_values(rows.selectExpr("key", as_json, "_partition AS partition"), topic)


def produce_values(records: DataFrame, topic: Topic) -> None:
    """Write records: ``value``, and perhaps ``key`` and ``partition``."""
    (
        records.write.format("kafka")
        .option("kafka.bootstrap.servers", topic.bootstrap)
        .option("kafka.linger.ms", "20")
        .option("kafka.batch.size", "131072")
        .option("topic", topic.name)
        .save()
    )


def values(numbers: DataFrame, key: str) -> DataFrame:
    """The columns of SCHEMA, and the key's partition."""
    return numbers.selectExpr(
        f"format_string('key-%08d', {key}) AS key",
        "id AS number",
        "pmod(xxhash64(id, 1), 100000) / 100.0D AS amount",
        "timestamp_seconds(1767225600 + id) AS at",
        "substring(sha1(CAST(id AS STRING)), 1, 8) AS note",
        f"CAST(pmod({key}, {PARTITIONS}) AS INT) AS _partition",
    )


def read(
    spark: SparkSession, topic: Topic, start: Sequence[int] | None = None, end: Sequence[int] | None = None
) -> DataFrame:
    """The topic, read in one batch by Spark's own reader and decoded. ``start``, ``end``: offsets by partition, by
    default the whole topic."""
    return decoded(undecoded(spark, topic, start, end))


def undecoded(
    spark: SparkSession, topic: Topic, start: Sequence[int] | None = None, end: Sequence[int] | None = None
) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", topic.bootstrap)
    for option, offsets in (("startingOffsets", start), ("endingOffsets", end)):
        if offsets is not None:
            reader = reader.option(option, json.dumps({topic.name: dict(enumerate(offsets))}))
    return reader.option("subscribe", topic.name).load()


def decoded(records: DataFrame) -> DataFrame:
    return records.select(
        F.from_json(F.col("value").cast("string"), SCHEMA).alias("row"),
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
    ).select("row.*", "_topic", "_partition", "_offset", "_timestamp")


def latest_per_key(rows: DataFrame) -> DataFrame:
    """The row with the highest offset per key. `max_by` with `groupBy` would take 5 to 10 % more CPU here."""
    newest_first = Window.partitionBy("key").orderBy(F.desc("_offset"))
    return rows.withColumn("rank", F.row_number().over(newest_first)).where("rank = 1").drop("rank")


def content(rows: DataFrame) -> Content:
    digest = F.sum(F.xxhash64(*sorted(rows.columns)).cast("decimal(38,0)")).cast("string")
    found = rows.agg(F.count("*"), F.count_distinct("key"), digest).collect()[0]
    return Content(found[0], found[1], int(found[2] or 0))


def check(rows: DataFrame, should: Content) -> None:
    found = content(rows)
    if found != should:
        raise WrongResult(f"the table holds {found} instead of {should}")
