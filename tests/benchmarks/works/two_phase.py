"""The cost of two-phase commit: one pipeline with two tables, compared with a pipeline for each table.

All run in one warm session, with epochs of the same size. Every table is compared with the topic.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import ours
from benchmarks.data import Content, Topic, check
from benchmarks.measure import Figures, Ratio, Run, Work, alternating
from benchmarks.stage import Stage, in_a_process
from connector.protocol.steps import Step
from connector.spark.session import session

KEYS = 20_000
TOGETHER, APART = "one pipeline, two-phase", "a pipeline each"


def run(
    pipelines: Sequence[Sequence[str]], spark: SparkSession, topic: Topic, epoch: int, should: Mapping[str, Content]
) -> Figures:
    """Run pipelines one after another and add up their median epochs. ``pipelines``: the kinds of tables of each."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        sinks = {"append": ours.append(folder / "append"), "upsert": ours.upsert(folder / "upsert")}
        seconds = 0.0
        steps: dict[str, float] = {}
        for kinds in pipelines:
            more = {"coordinator": {"path": str(folder / "log")}} if len(kinds) > 1 else {}
            options = ours.options(
                topic,
                f"bench_{'_'.join(kinds)}",
                *(sinks[kind] for kind in kinds),
                epoch={"max_records": epoch},
                **more,
            )
            noted = ours.run(options)
            # The first epoch of a run is cold and doesn't count.
            seconds += statistics.median(noted.laps(Step.COMMITTED)[1:])
            steps |= {f"{'+'.join(kinds)} to {step}": median for step, median in noted.shares().items()}
        for kind in sinks:
            check(spark.read.format("delta").load(str(folder / kind)), should[kind])
    return {"epoch_seconds": seconds, **steps}


def rounds(topic: Topic, epoch: int, should: Mapping[str, Content], repetitions: int) -> list[Run]:
    """Measure both ways in one process, after a warm-up round."""
    ways = {TOGETHER: [["append", "upsert"]], APART: [["append"], ["upsert"]]}
    with session({}, name="benchmark") as spark:
        contenders = {name: partial(run, way, spark, topic, epoch, should) for name, way in ways.items()}
        return alternating(contenders, repetitions, warm_up=1)


def measure(stage: Stage) -> list[Run]:
    epoch, epochs = stage.sizes.two_phase_epoch, stage.sizes.two_phase_epochs
    topic, should = stage.topic(epoch * epochs, min(KEYS, epoch))
    return in_a_process(rounds, topic, epoch, should, stage.repetitions)


WORK = Work(
    "two_phase",
    "an append and an upsert that move together, per epoch",
    "epoch_seconds",
    (Ratio("epoch / a pipeline each", (TOGETHER, "epoch_seconds"), (APART, "epoch_seconds"), 1.35),),
    measure,
)
