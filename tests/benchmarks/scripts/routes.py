"""Structured Streaming from one topic into many Delta tables, in one query. Imports nothing from Lakelock.

``routes.py JARS BOOTSTRAP TOPIC SCHEMA FOLDER TABLES``: FOLDER/<number % TABLES> is a record's table. The function for
``foreachBatch`` reads the batch once, and appends to one table after the other.
"""

import sys

from own_session import own_session
from own_stream import own_stream
from pyspark.sql import DataFrame

jars, bootstrap, topic, schema, folder, tables = sys.argv[1:]
spark = own_session(jars)


def append(batch: DataFrame, number: int) -> None:
    """``txnVersion`` makes a repeated batch harmless."""
    batch.persist()
    for table in range(int(tables)):
        rows = batch.where(f"number % {tables} = {table}")
        once = {"txnAppId": "routes", "txnVersion": str(number)}
        rows.write.format("delta").options(**once).mode("append").save(f"{folder}/{table}")
    batch.unpersist()


stream = own_stream(spark, bootstrap, topic, schema)
query = stream.writeStream.foreachBatch(append).option("checkpointLocation", f"{folder}/checkpoint")
query.trigger(availableNow=True).start().awaitTermination()
