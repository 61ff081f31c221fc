"""The cost of each delivery: the time of one batch in a warm session, as in a pipeline that runs all day.

A batch has the same size for every delivery, so that each makes the same number of Delta commits.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import ours
from benchmarks.data import Content, Topic, check
from benchmarks.measure import Figures, Ratio, Run, Work, alternating
from benchmarks.stage import Stage, in_a_process
from connector.protocol.steps import Step
from connector.spark.session import session

KEYS = 5_000
DELIVERIES = ("auto_commit", "manual_commit", "idempotent", "transactional")
SINGLE = 20
"""Records to commit one by one. They are few, because each commit takes about as long as that of a whole batch."""


@dataclass(frozen=True)
class Way:
    kind: str
    delivery: str
    topic: Topic
    should: Content
    more: Mapping[str, object]

    def run(self, spark: SparkSession) -> Figures:
        with tempfile.TemporaryDirectory() as place:
            table = Path(place) / "table"
            sink = ours.append(table) if self.kind == "append" else ours.upsert(table)
            # The consumer group keeps the offsets, so each run needs another group.
            name = f"bench_{Path(place).name}"
            options = ours.options(
                self.topic, name.lower(), sink, delivery=self.delivery, kafka={"auto.commit.interval.ms": "1000"},
                **self.more,
            )  # fmt: skip
            end = Step.COMMITTED if self.delivery == "auto_commit" else Step.OFFSETS_COMMITTED
            laps = ours.run(options).laps(end)
            check(spark.read.format("delta").load(str(table)), self.should)
        return {"batch_seconds": statistics.median(laps), "seconds": sum(laps), "batches": len(laps)}


def rounds(ways: Mapping[str, Way], repetitions: int) -> list[Run]:
    """Measure all deliveries in one process, after a warm-up round."""
    with session({}, name="benchmark") as spark:
        return alternating({name: partial(way.run, spark) for name, way in ways.items()}, repetitions, warm_up=1)


def measure(stage: Stage) -> list[Run]:
    sizes = stage.sizes
    records = sizes.batch * sizes.batches
    topic, should = stage.topic(records, min(KEYS, records))
    whole = {"epoch": {"max_records": sizes.batch}}
    ways = {
        f"{delivery}, {kind}": Way(kind, delivery, topic, should[kind], whole)
        for kind in ("append", "upsert")
        for delivery in DELIVERIES
        if (kind, delivery) != ("append", "idempotent")
        and (stage.all_peers or (kind == "append" and delivery in ("manual_commit", "transactional")))
    }
    if stage.all_peers:
        topic, should = stage.topic(SINGLE, SINGLE)
        for kind in ("append", "upsert"):
            name = f"manual_commit of each record, {kind}"
            ways[name] = Way(kind, "manual_commit", topic, should[kind], {"commit_every": "record"})
    return in_a_process(rounds, ways, stage.repetitions)


WORK = Work(
    "delivery",
    "one batch appended: exactly once against at least once",
    "batch_seconds",
    tuple(
        Ratio(
            f"batch / manual_commit's, {kind}",
            (f"transactional, {kind}", "batch_seconds"),
            (f"manual_commit, {kind}", "batch_seconds"),
            at_most=at_most,
        )
        for kind, at_most in (("append", 1.1), ("upsert", None))
    ),
    measure,
)
