"""How long it takes to bring one whole topic into a new table: every record, the latest per key, sums per key."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import ours, streaming
from benchmarks.data import Content, Topic, check, read
from benchmarks.measure import OURS, Figures, Ratio, Run, Work, alternating
from benchmarks.session import measured_session
from benchmarks.stage import Stage, in_a_process

PEER = "Structured Streaming"
ONE_TRIGGER = "Structured Streaming, one trigger"
STATEFUL = "Structured Streaming, stateful"
UNTUNED = "Structured Streaming, Spark's defaults"
DEFAULTS = {"spark.sql.shuffle.partitions": "200", "spark.databricks.delta.snapshotPartitions": "50"}
"""Where the sessions here have others: what a user has who sets nothing."""
FLOOR = "bare Spark to Parquet"
EVERYTHING = 1_000_000_000
"""More than any topic here holds."""

Fill = Callable[[SparkSession, Topic, Path], object]
"""Brings a topic into the table in the folder ``table`` of a folder."""


@dataclass(frozen=True)
class Lakelock:
    """One epoch of all."""

    sink: Mapping[str, object]

    def __call__(self, _: SparkSession, topic: Topic, folder: Path) -> None:
        sink = {"path": str(folder / "table"), **self.sink}
        ours.run(ours.options(topic, "bench", sink, epoch={"max_records": EVERYTHING}))


@dataclass(frozen=True)
class Streaming:
    query: streaming.Query
    per_trigger: int
    settings: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, spark: SparkSession, topic: Topic, folder: Path) -> None:
        for name, value in self.settings.items():
            spark.conf.set(name, value)
        self.query(spark, topic, folder, self.per_trigger)


def bare(spark: SparkSession, topic: Topic, folder: Path) -> None:
    """The floor: the least that Spark does to read, decode and write these records."""
    read(spark, topic).write.parquet(str(folder / "table"))


def fill(how: Fill, topic: Topic, folder: Path, should: Content, begun: float) -> Figures:
    """In a process of its own."""
    with measured_session(folder, begun) as (spark, clock):
        how(spark, topic, folder)
        seconds = clock.seconds
        reader = spark.read.format("parquet" if how is bare else "delta")
        rows = reader.load(str(folder / "table"))
        # An aggregate's table also says up to where it has counted.
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
        PEER: Streaming(streaming.append, stage.sizes.per_trigger),
        FLOOR: bare,
    }
    if stage.all_peers:
        contenders[ONE_TRIGGER] = Streaming(streaming.append, EVERYTHING)
        contenders[UNTUNED] = Streaming(streaming.append, stage.sizes.per_trigger, DEFAULTS)
    return measure(stage, "append", contenders)


def upsert(stage: Stage) -> list[Run]:
    contenders: dict[str, Fill] = {
        OURS: Lakelock({"type": "delta_upsert", "key": "key"}),
        PEER: Streaming(streaming.upsert, stage.sizes.per_trigger),
    }
    if stage.all_peers:
        contenders[ONE_TRIGGER] = Streaming(streaming.upsert, EVERYTHING)
        contenders[UNTUNED] = Streaming(streaming.upsert, stage.sizes.per_trigger, DEFAULTS)
    return measure(stage, "upsert", contenders)


def aggregates(stage: Stage) -> list[Run]:
    sums = {"records": "count(*)", "total": "sum(number)"}
    contenders: dict[str, Fill] = {
        OURS: Lakelock({"type": "delta_aggregate", "group_by": "key", "aggregates": sums}),
        PEER: Streaming(streaming.partial_sums, stage.sizes.per_trigger),
    }
    if stage.all_peers:
        contenders[ONE_TRIGGER] = Streaming(streaming.partial_sums, EVERYTHING)
        contenders[UNTUNED] = Streaming(streaming.partial_sums, stage.sizes.per_trigger, DEFAULTS)
        contenders[STATEFUL] = Streaming(streaming.stateful_sums, stage.sizes.per_trigger)
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
            _speed(ONE_TRIGGER),
            _speed(UNTUNED),
        ),
        append,
    ),
    Work(
        "upsert",
        "the latest row per key of a topic, one epoch",
        "seconds",
        (_speed(PEER, 2.5), _speed(ONE_TRIGGER), _speed(UNTUNED)),
        upsert,
    ),
    Work(
        "aggregates",
        "count and sum per key of a topic, one epoch",
        "seconds",
        (_speed(PEER, 2.0), _speed(ONE_TRIGGER), _speed(UNTUNED), _speed(STATEFUL)),
        aggregates,
    ),
)
