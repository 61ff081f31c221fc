"""The session of the scripts that import nothing from Lakelock."""

import os

from pyspark.sql import SparkSession


def own_session(jars: str) -> SparkSession:
    return (
        SparkSession.builder.appName("bare")
        .config("spark.jars", jars)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        # Settings that Lakelock has for one machine and that affect the time: no web UI, few tasks.
        .config("spark.master", "local[*]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(max(2, os.cpu_count() or 2)))
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .getOrCreate()
    )
