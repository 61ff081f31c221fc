"""The time to write a whole topic into a new table: every record, the latest per key, or sums per key."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import ours, streaming
from benchmarks.data import Content, Topic, check, read
from benchmarks.measure import OURS, Figures, Ratio, Run, Work, alternating
from benchmarks.session import measured_session
from benchmarks.stage import Stage, in_a_process
from benchmarks.streaming import PEER, TUNED

ONE_TRIGGER = "Structured Streaming, one trigger"
STATEFUL = "Structured Streaming, stateful"
FLOOR = "bare Spark to Parquet"
EVERYTHING = 1_000_000_000
"""More records than any topic here holds."""

Fill = Callable[[SparkSession, Topic, Path], object]
"""Writes a topic into a table: the subfolder ``table`` of the given folder."""


@dataclass(frozen=True)
class Lakelock:
    """Lakelock, with all records in one epoch."""

    sink: Mapping[str, object]

    def __call__(self, _: SparkSession, topic: Topic, folder: Path) -> None:
        sink = {"path": str(folder / "table"), **self.sink}
        ours.run(ours.options(topic, "bench", sink, epoch={"max_records": EVERYTHING}))


@dataclass(frozen=True)
class Streaming:
    query: streaming.Query
    per_trigger: int
    tuned: bool = False

    def __call__(self, spark: SparkSession, topic: Topic, folder: Path) -> None:
        streaming.prepare(spark, tuned=self.tuned)
        self.query(spark, topic, folder, self.per_trigger)


def peers(stage: Stage, query: streaming.Query) -> dict[str, Fill]:
    contenders: dict[str, Fill] = {
        PEER: Streaming(query, stage.sizes.per_trigger),
        TUNED: Streaming(query, stage.sizes.per_trigger, tuned=True),
    }
    if stage.all_peers:
        contenders[ONE_TRIGGER] = Streaming(query, EVERYTHING, tuned=True)
    return contenders


def bare(spark: SparkSession, topic: Topic, folder: Path) -> None:
    """The floor: Spark only reads, decodes and writes the records."""
    read(spark, topic).write.parquet(str(folder / "table"))


def fill(how: Fill, topic: Topic, folder: Path, should: Content, begun: float) -> Figures:
    """Write the topic with one contender and check the table. Runs in its own process."""
    with measured_session(folder, begun) as (spark, clock):
        how(spark, topic, folder)
        seconds = clock.seconds
        reader = spark.read.format("parquet" if how is bare else "delta")
        rows = reader.load(str(folder / "table"))
        # An aggregate's table also has columns for the offsets that it has counted.
        check(rows.select(*(name for name in rows.columns if name not in ("_state", "_applied"))), should)
    return {"seconds": seconds, "start_seconds": clock.start_seconds}


def measure(stage: Stage, kind: str, contenders: Mapping[str, Fill]) -> list[Run]:
    topic, should = stage.topic(stage.sizes.records, stage.sizes.keys)

    def once(how: Fill) -> Figures:
        with stage.new_folder() as folder:
            return in_a_process(fill, how, topic, folder, should[kind], time.time())

    return alternating({name: partial(once, how) for name, how in contenders.items()}, stage.repetitions)


def append(stage: Stage) -> list[Run]:
    contenders: dict[str, Fill] = {
        OURS: Lakelock({"type": "delta_append"}),
        **peers(stage, streaming.append),
        FLOOR: bare,
    }
    return measure(stage, "append", contenders)


def upsert(stage: Stage) -> list[Run]:
    contenders: dict[str, Fill] = {
        OURS: Lakelock({"type": "delta_upsert", "key": "key"}),
        **peers(stage, streaming.upsert),
    }
    return measure(stage, "upsert", contenders)


def aggregates(stage: Stage) -> list[Run]:
    sums = {"records": "count(*)", "total": "sum(number)"}
    contenders: dict[str, Fill] = {
        OURS: Lakelock({"type": "delta_aggregate", "group_by": "key", "aggregates": sums}),
        **peers(stage, streaming.partial_sums),
    }
    if stage.all_peers:
        contenders[STATEFUL] = Streaming(streaming.stateful_sums, stage.sizes.per_trigger, tuned=True)
    return measure(stage, "aggregate", contenders)


def _speed(peer: str, at_least: float | None = None) -> Ratio:
    return Ratio(f"speed / {peer}", (peer, "seconds"), (OURS, "seconds"), at_least=at_least)


WORKS = (
    Work(
        "append",
        "every record of a topic into a new table, one epoch",
        "seconds",
        (
            _speed(PEER, 1.5),
            Ratio("time / floor", (OURS, "seconds"), (FLOOR, "seconds"), at_most=1.25),
            _speed(TUNED),
            _speed(ONE_TRIGGER),
        ),
        append,
    ),
    Work(
        "upsert",
        "the latest row per key of a topic, one epoch",
        "seconds",
        (_speed(PEER, 2.5), _speed(TUNED), _speed(ONE_TRIGGER)),
        upsert,
    ),
    Work(
        "aggregates",
        "count and sum per key of a topic, one epoch",
        "seconds",
        (_speed(PEER, 2.0), _speed(TUNED), _speed(ONE_TRIGGER), _speed(STATEFUL)),
        aggregates,
    ),
)
