"""The shortest PySpark script that appends a topic's records to a Delta table. Imports nothing from Lakelock.

``bare.py JARS BOOTSTRAP TOPIC SCHEMA TABLE``
"""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

jars, bootstrap, topic, schema, table = sys.argv[1:]
spark = (
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
(
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", topic)
    .load()
    .select(F.from_json(F.col("value").cast("string"), schema).alias("row"))
    .select("row.*")
    .write.format("delta")
    .mode("append")
    .save(table)
)
