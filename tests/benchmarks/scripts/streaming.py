"""Structured Streaming from a topic into a Delta table, as a good engineer writes it. Imports nothing from Lakelock.

``streaming.py JARS BOOTSTRAP TOPIC SCHEMA FOLDER KIND TRIGGER``: KIND is ``append`` or ``upsert``, into FOLDER/table,
which must exist for ``upsert``. TRIGGER is ``available_now``, or ``endless``: one trigger after another until SIGTERM.
"""

import sys

from own_session import own_session
from own_stream import own_stream
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

jars, bootstrap, topic, schema, folder, kind, trigger = sys.argv[1:]


def merge(batch: DataFrame, _: int) -> None:
    """The latest record of each key. The guard makes a repeated batch harmless."""
    newest_first = Window.partitionBy("key").orderBy(F.desc("_offset"))
    latest = batch.withColumn("rank", F.row_number().over(newest_first)).where("rank = 1").drop("rank")
    latest.createOrReplaceTempView("updates")
    batch.sparkSession.sql(
        f"MERGE INTO delta.`{folder}/table` AS t USING updates AS s ON t.key = s.key "
        "WHEN MATCHED AND s._offset > t._offset THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


rows = own_stream(own_session(jars), bootstrap, topic, schema).writeStream.option(
    "checkpointLocation", f"{folder}/checkpoint"
)
to = rows.foreachBatch(merge) if kind == "upsert" else rows.format("delta").option("path", f"{folder}/table")
query = to.trigger(availableNow=True) if trigger == "available_now" else to.trigger(processingTime="0 seconds")
query.start().awaitTermination()
