"""The cost of `connector.foreach_batch` in a streaming query, against a function that writes the batches bare.

Both bare functions have a guard that makes a repeated batch harmless: the append has Delta's ``txnAppId`` and
``txnVersion``, and the MERGE compares offsets. All run in one warm session, with batches of the same size.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import connector
from benchmarks import ours, streaming
from benchmarks.data import COLUMNS, Content, Topic, check, decoded
from benchmarks.kinds import APPEND, UPSERT, Kind
from benchmarks.measure import OURS, Figures, Ratio, Run, Work, alternating
from benchmarks.stage import Stage, in_a_process
from connector.spark.session import session
from connector.spark.tuning import TUNING

KEYS = 5_000
BARE = "bare function"

Write = Callable[[DataFrame, int], None]
Function = Callable[[Kind, SparkSession, Topic, Path], Write]


def lakelock(kind: Kind, _: SparkSession, topic: Topic, folder: Path) -> Write:
    options = ours.options(topic, "bench", kind.into(folder))
    return connector.foreach_batch(options, checkpoint=folder / "checkpoint")


def bare(kind: Kind, spark: SparkSession, _: Topic, folder: Path) -> Write:
    streaming.create(spark, folder, COLUMNS)

    def append(batch: DataFrame, number: int) -> None:
        once = {"txnAppId": "bench", "txnVersion": str(number)}
        decoded(batch).write.format("delta").options(**once).mode("append").save(str(folder / "table"))

    # By name: a kind that another process was given is a copy.
    return append if kind.name == APPEND.name else lambda batch, number: streaming.merge_latest(decoded(batch), folder)


@dataclass(frozen=True)
class Query:
    kind: Kind
    function: Function
    topic: Topic
    batch: int
    should: Mapping[str, Content]

    def run(self, spark: SparkSession) -> Figures:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            write = self.function(self.kind, spark, self.topic, folder)
            query = streaming.batches(streaming.stream(spark, self.topic, self.batch), write, folder)
            check(spark.read.format("delta").load(str(folder / "table")), self.should[self.kind.name])
        # The first batch creates the table or looks for the position, and a last one may have a few records only.
        seconds = streaming.trigger_seconds(query)
        return {"batch_seconds": statistics.median(seconds[1:]), "first_seconds": seconds[0], "batches": len(seconds)}


def rounds(queries: Mapping[str, Query], repetitions: int) -> list[Run]:
    """Measure all functions in one process, after a warm-up round. The session is the user's: Lakelock doesn't tune it
    for small batches."""
    with session({TUNING: "false"}, name="benchmark") as spark:
        return alternating({name: partial(each.run, spark) for name, each in queries.items()}, repetitions, warm_up=1)


def measure(stage: Stage) -> list[Run]:
    sizes = stage.sizes
    records = sizes.batch * sizes.batches
    topic, should = stage.topic(records, min(KEYS, records))
    queries = {
        f"{name}, {kind.name}": Query(kind, function, topic, sizes.batch, should)
        for kind in (APPEND, UPSERT)
        for name, function in ((OURS, lakelock), (BARE, bare))
    }
    return in_a_process(rounds, queries, stage.repetitions)


WORK = Work(
    "foreach_batch",
    "a batch of a streaming query, written by connector.foreach_batch",
    "batch_seconds",
    tuple(
        Ratio(
            f"batch / bare function, {kind}",
            (f"{OURS}, {kind}", "batch_seconds"),
            (f"{BARE}, {kind}", "batch_seconds"),
            at_most=at_most,
        )
        for kind, at_most in (("append", 1.5), ("upsert", 1.3))
    ),
    measure,
)
