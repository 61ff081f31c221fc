"""Structured Streaming from many topics into a Delta table each, in one process. Imports nothing from Lakelock.

``many.py JARS BOOTSTRAP TOPICS SCHEMA FOLDER KIND``: TOPICS are separated by commas, and FOLDER/<topic> is a topic's
table. KIND is ``queries``, a query for each topic, as many at once as there are cores; or ``loop``, one query whose
function for ``foreachBatch`` appends to one table after the other.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from own_session import own_session
from own_stream import own_stream
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

jars, bootstrap, topics, schema, folder, kind = sys.argv[1:]
spark = own_session(jars)


def stream(names: str) -> DataFrame:
    return own_stream(spark, bootstrap, names, schema)


def one(topic: str) -> None:
    to = stream(topic).writeStream.format("delta").option("checkpointLocation", f"{folder}/checkpoints/{topic}")
    to.trigger(availableNow=True).start(f"{folder}/{topic}").awaitTermination()


def append(batch: DataFrame, number: int) -> None:
    """The batch is read once. ``txnVersion`` makes a repeated one harmless."""
    batch.persist()
    for topic in topics.split(","):
        rows = batch.where(F.col("_topic") == topic)
        once = {"txnAppId": "many", "txnVersion": str(number)}
        rows.write.format("delta").options(**once).mode("append").save(f"{folder}/{topic}")
    batch.unpersist()


if kind == "queries":
    with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
        list(pool.map(one, topics.split(",")))
else:
    query = stream(topics).writeStream.foreachBatch(append).option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
