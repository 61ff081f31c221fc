"""The stream of a topic's records that the scripts of Structured Streaming read."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def own_stream(spark: SparkSession, bootstrap: str, topics: str, schema: str) -> DataFrame:
    """Decoded, with their coordinates. ``topics``: separated by commas."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .load()
        .select(
            F.from_json(F.col("value").cast("string"), schema).alias("row"),
            F.col("topic").alias("_topic"),
            F.col("partition").alias("_partition"),
            F.col("offset").alias("_offset"),
            F.col("timestamp").alias("_timestamp"),
        )
        .select("row.*", "_topic", "_partition", "_offset", "_timestamp")
    )
