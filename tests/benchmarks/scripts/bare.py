"""The shortest PySpark script that appends a topic's records to a Delta table. Imports nothing from Lakelock.

``bare.py JARS BOOTSTRAP TOPIC SCHEMA TABLE``
"""

import sys

from own_session import own_session
from pyspark.sql import functions as F

jars, bootstrap, topic, schema, table = sys.argv[1:]
(
    own_session(jars)
    .read.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", topic)
    .load()
    .select(F.from_json(F.col("value").cast("string"), schema).alias("row"))
    .select("row.*")
    .write.format("delta")
    .mode("append")
    .save(table)
)
