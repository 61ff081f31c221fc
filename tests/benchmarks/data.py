"""The records of a topic, the rows they are decoded to, and what a table made of them must hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Content:
    """What a table holds, or should. ``digest`` is the sum of all rows' hashes, over every column."""

    rows: int
    keys: int
    digest: int


def produced(topic: Topic, records: int, keys: int) -> Mapping[str, Content]:
    """Fills a topic in a session of its own; answers what a table of each kind made of it must hold."""
    with session({}, name="benchmark") as spark:
        # Every key occurs; the order looks random.
        produce(spark, topic, records, f"IF(id < {keys}, id, pmod(xxhash64(id), {keys}))")
        rows = read(spark, topic)
        sums = rows.groupBy("key").agg(F.count("*").alias("records"), F.sum("number").alias("total"))
        should = {
            "append": content(rows),
            "upsert": content(latest_per_key(rows)),
            "aggregate": content(sums),
        }
    if should["append"].rows != records or should["upsert"].rows != keys:
        raise WrongResult(f"the topic isn't what was asked for: {should}")
    return should


def produce(spark: SparkSession, topic: Topic, records: int, key: str) -> None:
    """JSON records of about 100 bytes. ``key``: SQL of a record's key, a number, which is Kafka's key too and says the
    partition; ``id`` is the record's number."""
    (
        values(spark.range(0, records, numPartitions=PARTITIONS), key)
        .selectExpr("key", "to_json(struct(key, number, amount, at, note)) AS value", "_partition AS partition")
        .write.format("kafka")
        .option("kafka.bootstrap.servers", topic.bootstrap)
        .option("kafka.linger.ms", "20")
        .option("kafka.batch.size", "131072")
        .option("topic", topic.name)
        .save()
    )


def values(numbers: DataFrame, key: str) -> DataFrame:
    """Columns as in SCHEMA, and the key's partition."""
    return numbers.selectExpr(
        f"format_string('key-%08d', {key}) AS key",
        "id AS number",
        "pmod(xxhash64(id, 1), 100000) / 100.0D AS amount",
        "timestamp_seconds(1767225600 + id) AS at",
        "substring(sha1(CAST(id AS STRING)), 1, 8) AS note",
        f"CAST(pmod({key}, {PARTITIONS}) AS INT) AS _partition",
    )


def read(spark: SparkSession, topic: Topic) -> DataFrame:
    """All of the topic by Spark's own reader, in one batch, decoded."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", topic.bootstrap)
    return decoded(reader.option("subscribe", topic.name).load())


def decoded(records: DataFrame) -> DataFrame:
    return records.select(
        F.from_json(F.col("value").cast("string"), SCHEMA).alias("row"),
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
    ).select("row.*", "_topic", "_partition", "_offset", "_timestamp")


def latest_per_key(rows: DataFrame) -> DataFrame:
    """The faster of the two usual ways: `max_by` and `groupBy` takes 5 to 10 % more CPU here."""
    newest_first = Window.partitionBy("key").orderBy(F.desc("_offset"))
    return rows.withColumn("rank", F.row_number().over(newest_first)).where("rank = 1").drop("rank")


def content(rows: DataFrame) -> Content:
    digest = F.sum(F.xxhash64(*sorted(rows.columns)).cast("decimal(38,0)")).cast("string")
    found = rows.agg(F.count("*"), F.count_distinct("key"), digest).collect()[0]
    return Content(found[0], found[1], int(found[2] or 0))


def check(rows: DataFrame, should: Content) -> None:
    found = content(rows)
    if found != should:
        raise WrongResult(f"the table holds {found}, and should hold {should}")
