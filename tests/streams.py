"""Structured Streaming jobs, for tests that stop or kill them."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

import connector
from connector.lab.bench.pipelines import SHORT_LIVED
from connector.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SPARK_55271 = 'the return value of "scala.Option.get()" is null'
"""How a query of Spark 4.1 ends that had a batch to repeat: in its figures, once the batch is noted as done."""

Write = Callable[["DataFrame", int], None]


def source(spark: SparkSession, bootstrap: str, topic: str, **options: object) -> DataFrame:
    """Kafka's records as a stream."""
    wanted: Mapping[str, object] = {
        "kafka.bootstrap.servers": bootstrap, "kafka.isolation.level": "read_committed", "subscribe": topic,
        "startingOffsets": "earliest", **options,
    }  # fmt: skip
    return spark.readStream.format("kafka").options(**{name: str(value) for name, value in wanted.items()}).load()


def started(stream: DataFrame, write: Write, checkpoint: Path) -> StreamingQuery:
    """Of what is there, batch after batch."""
    return (
        stream.writeStream.option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(write)
        .start()
    )


def bare_merge(path: Path) -> Write:
    """As one finds it in many a tutorial: a count per key, added up."""

    def write(batch: DataFrame, _: int) -> None:
        spark = batch.sparkSession
        spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{path}` (k STRING, records BIGINT) USING delta")
        batch.selectExpr("from_json(CAST(value AS STRING), 'k STRING').k AS k").createOrReplaceTempView("batch")
        spark.sql(
            f"MERGE INTO delta.`{path}` AS t USING (SELECT k, count(*) AS records FROM batch GROUP BY k) AS s "
            "ON t.k = s.k WHEN MATCHED THEN UPDATE SET records = t.records + s.records WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    return write


def bare_append(path: Path) -> Write:
    def write(batch: DataFrame, _: int) -> None:
        rows = batch.selectExpr("from_json(CAST(value AS STRING), 'k STRING, n INT') AS row").select("row.*")
        rows.write.format("delta").mode("append").save(str(path))

    return write


def main() -> None:
    """All jobs of a folder at once. ``kill``: the batch after which this process dies: every job has written it, and
    Spark has noted it as done for none of them."""
    options: dict[str, Any] = json.loads(sys.argv[1])
    folder = Path(options["folder"])
    jobs: dict[str, Write] = {"merge": bare_merge(folder / "merge"), "bare": bare_append(folder / "bare")}
    for file in sorted(folder.glob("*.yaml")):
        jobs[file.stem] = connector.foreach_batch(file, checkpoint=folder / "checkpoints" / file.stem)
    together = threading.Barrier(len(jobs), action=lambda: os.killpg(0, signal.SIGKILL))

    def until_killed(write: Write) -> Write:
        def written(batch: DataFrame, number: int) -> None:
            write(batch, number)
            if number == options["kill"]:
                together.wait()

        return written

    with session(SHORT_LIVED, name="streams") as spark:
        stream = source(spark, options["bootstrap"], options["topic"], maxOffsetsPerTrigger=options["records"])
        checkpoints = folder / "checkpoints"

        def start(name: str) -> StreamingQuery:
            return started(stream, until_killed(jobs[name]), checkpoints / name)

        queries = {name: start(name) for name in jobs}
        while queries:
            with suppress(StreamingQueryException):
                spark.streams.awaitAnyTermination()
            spark.streams.resetTerminated()
            for name, query in [each for each in queries.items() if not each[1].isActive]:
                error = query.exception()
                if error is None:
                    del queries[name]
                elif SPARK_55271 in str(error):
                    queries[name] = start(name)
                else:
                    print(error, flush=True)
                    os._exit(1)  # the others may wait for it


if __name__ == "__main__":
    main()
