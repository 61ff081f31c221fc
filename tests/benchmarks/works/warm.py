"""The cost of a large epoch in a process that runs all day: the third of three equal ones.

Each contender has a process of its own. The first two epochs don't count: the JVM is still compiling, and the table is
new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import ours, streaming
from benchmarks.data import Content, Topic, read
from benchmarks.kinds import AGGREGATE, APPEND, UPSERT, Kind
from benchmarks.measure import OURS, Figures, Ratio, Run, Work, WrongResult, alternating
from benchmarks.session import measured_session
from benchmarks.stage import Stage, in_a_process
from benchmarks.streaming import TUNED
from benchmarks.works.catch_up import FLOOR
from connector.protocol.steps import Step

EPOCHS = 3

Epochs = Callable[[Kind, SparkSession, Topic, Path, int], list[float]]
"""Writes a topic in epochs of this many records. Returns the seconds of each."""


def lakelock(kind: Kind, _: SparkSession, topic: Topic, folder: Path, records: int) -> list[float]:
    options = ours.options(topic, "bench", kind.into(folder), epoch={"max_records": records})
    return ours.run(options).laps(Step.COMMITTED)


def structured_streaming(kind: Kind, spark: SparkSession, topic: Topic, folder: Path, records: int) -> list[float]:
    return streaming.trigger_seconds(kind.query(spark, topic, folder, records))


def bare(_: Kind, spark: SparkSession, topic: Topic, folder: Path, records: int) -> list[float]:
    """Batches of equal ranges. Each partition has as many thirds as there are epochs."""
    ends, seconds = topic.ends(), []
    for number in range(EPOCHS):
        start, end = ([each * part // EPOCHS for each in ends] for part in (number, number + 1))
        started = time.perf_counter()
        rows = read(spark, topic, start, end)
        rows.write.format("delta").mode("append").save(str(folder / "table"))
        seconds.append(time.perf_counter() - started)
    return seconds


def third(
    how: Epochs, kind: Kind, topic: Topic, folder: Path, records: int, should: Mapping[str, Content], begun: float
) -> Figures:
    with measured_session(folder, begun) as (spark, _):
        seconds = how(kind, spark, topic, folder, records)
        kind.check(spark, folder, should)
    if len(seconds) < EPOCHS:
        raise WrongResult(f"{len(seconds)} epochs instead of {EPOCHS}")
    return {"epoch_seconds": seconds[2], "first_seconds": seconds[0], "second_seconds": seconds[1]}


def measure(kind: Kind, stage: Stage) -> list[Run]:
    sizes = stage.sizes
    topic, should = stage.topic(sizes.records * EPOCHS, sizes.keys)
    contenders: dict[str, Epochs] = {OURS: lakelock, TUNED: structured_streaming}
    if kind is APPEND:
        contenders[FLOOR] = bare

    def once(how: Epochs) -> Figures:
        with stage.new_folder() as folder:
            return in_a_process(third, how, kind, topic, folder, sizes.records, should, time.time())

    return alternating({name: partial(once, how) for name, how in contenders.items()}, stage.repetitions)


def _speed(peer: str, at_least: float) -> Ratio:
    return Ratio(f"speed / {peer}", (peer, "epoch_seconds"), (OURS, "epoch_seconds"), at_least=at_least)


WORKS = (
    Work(
        "warm_append",
        "every record appended, the third epoch of a process",
        "epoch_seconds",
        (_speed(TUNED, 1.7), _speed(FLOOR, 1.2)),
        partial(measure, APPEND),
    ),
    Work(
        "warm_upsert",
        "the latest row per key, the third epoch of a process",
        "epoch_seconds",
        (_speed(TUNED, 1.5),),
        partial(measure, UPSERT),
    ),
    Work(
        "warm_aggregates",
        "count and sum per key, the third epoch of a process",
        "epoch_seconds",
        (_speed(TUNED, 1.5),),
        partial(measure, AGGREGATE),
    ),
)
