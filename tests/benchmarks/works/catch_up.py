"""The time to write a whole topic into a new table: every record, the latest per key, or sums per key.

The peer is measured twice: as many write it, with the defaults and 250,000 records per trigger, and as a good engineer
writes it for a backlog, with Lakelock's settings and everything in one trigger. The second ratio is that of the whole
processes, because the backlog waits for the start of a process too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import commands, ours, streaming
from benchmarks.commands import DELTA_RS
from benchmarks.data import Content, Topic, read
from benchmarks.kinds import AGGREGATE, APPEND, UPSERT, Kind
from benchmarks.measure import OURS, Figures, Ratio, Run, Work, alternating
from benchmarks.session import measured_session
from benchmarks.stage import Stage, in_a_process
from benchmarks.streaming import PEER, TUNED

STATEFUL = "Structured Streaming, stateful"
FLOOR = "bare Spark to Delta"
EVERYTHING = 1_000_000_000
"""More records than any topic here holds."""

Fill = Callable[[SparkSession, Topic, Path], object]
"""Writes a topic into a table: the subfolder ``table`` of the given folder."""


@dataclass(frozen=True)
class Lakelock:
    """Lakelock, with all records in one epoch."""

    kind: Kind

    def __call__(self, _: SparkSession, topic: Topic, folder: Path) -> None:
        ours.run(ours.options(topic, "bench", self.kind.into(folder), epoch={"max_records": EVERYTHING}))


@dataclass(frozen=True)
class Streaming:
    query: streaming.Query
    per_trigger: int | None
    tuned: bool

    def __call__(self, spark: SparkSession, topic: Topic, folder: Path) -> None:
        streaming.prepare(spark, tuned=self.tuned)
        self.query(spark, topic, folder, self.per_trigger)


def bare(spark: SparkSession, topic: Topic, folder: Path) -> None:
    """The floor: Spark only reads, decodes and writes the records."""
    read(spark, topic).write.format("delta").mode("append").save(str(folder / "table"))


def fill(how: Fill, kind: Kind, topic: Topic, folder: Path, should: Mapping[str, Content], begun: float) -> Figures:
    """Write the topic with one contender and check the table. Runs in its own process."""
    with measured_session(folder, begun) as (spark, clock):
        how(spark, topic, folder)
        seconds = clock.seconds
        kind.check(spark, folder, should)
    return {
        "process_seconds": clock.start_seconds + seconds,
        "seconds": seconds,
        "start_seconds": clock.start_seconds,
    }


def checked(kind: Kind, folder: Path, should: Mapping[str, Content]) -> None:
    with measured_session(folder, time.time()) as (spark, _):
        kind.check(spark, folder, should)


def measure(kind: Kind, stage: Stage) -> list[Run]:
    sizes = stage.sizes
    contenders: dict[str, Fill] = {
        OURS: Lakelock(kind),
        PEER: Streaming(kind.query, sizes.per_trigger, tuned=False),
        TUNED: Streaming(kind.query, None, tuned=True),
    }
    if kind is APPEND:
        contenders[FLOOR] = bare
    if kind is AGGREGATE and stage.all_peers:
        contenders[STATEFUL] = Streaming(streaming.stateful_sums, sizes.per_trigger, tuned=True)
    if kind is not AGGREGATE:
        commands.require_delta_rs()
    topic, should = stage.topic(sizes.records, sizes.keys)

    def once(how: Fill) -> Figures:
        with stage.new_folder() as folder:
            return in_a_process(fill, how, kind, topic, folder, should, time.time())

    def delta_rs() -> Figures:
        with stage.new_folder() as folder:
            seconds = commands.seconds(commands.delta_rs(kind.name, topic, folder), folder)
            in_a_process(checked, kind, folder, should)
        return {"process_seconds": seconds}

    runs: dict[str, Callable[[], Figures]] = {name: partial(once, how) for name, how in contenders.items()}
    return alternating(runs if kind is AGGREGATE else {**runs, DELTA_RS: delta_rs}, stage.repetitions)


def _speed(peer: str, at_least: float | None = None) -> Ratio:
    return Ratio(f"speed / {peer}", (peer, "seconds"), (OURS, "seconds"), at_least=at_least)


def _process(peer: str, at_least: float | None = None) -> Ratio:
    figure = "process_seconds"
    return Ratio(f"speed, whole process / {peer}", (peer, figure), (OURS, figure), at_least=at_least)


WORKS = (
    Work(
        "append",
        "every record of a topic into a new table, one epoch",
        "process_seconds",
        (
            _speed(PEER, 1.5),
            _process(TUNED, 1.4),
            Ratio("time / floor", (OURS, "seconds"), (FLOOR, "seconds"), at_most=1.25),
            _process(DELTA_RS),
        ),
        partial(measure, APPEND),
    ),
    Work(
        "upsert",
        "the latest row per key of a topic, one epoch",
        "process_seconds",
        (_speed(PEER, 2.5), _process(TUNED, 1.3), _process(DELTA_RS)),
        partial(measure, UPSERT),
    ),
    Work(
        "aggregates",
        "count and sum per key of a topic, one epoch",
        "process_seconds",
        (_speed(PEER, 2.0), _process(TUNED, 1.3), _speed(STATEFUL)),
        partial(measure, AGGREGATE),
    ),
)
