"""Small epochs into a large table of one row per key: the cost of one, and whether it depends on the table's size."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import ours, streaming
from benchmarks.data import Content, Topic, check, content, latest_per_key, produce, read
from benchmarks.measure import OURS, Figures, Ratio, Run, Work, alternating, progress
from benchmarks.session import measured_session
from benchmarks.stage import Stage, in_a_process
from benchmarks.streaming import PEER, TUNED
from benchmarks.tables import current, full_table, merging
from connector.protocol.steps import Step

SMALL, LARGE = "small table", "large table"


@dataclass(frozen=True)
class Trickle:
    topic: Topic
    base: Path
    """The folder of a table. Each run gets a copy of the table."""
    should: Content
    per_epoch: int
    merging: Mapping[str, object]


def prepared(stage: Stage, rows: int) -> Trickle:
    sizes = stage.sizes
    topic = stage.empty_topic("trickle")
    base = stage.folder / topic.name
    base.mkdir()
    progress.print(f"  making a table of {rows:,} rows")
    should = in_a_process(made, topic, base, rows, sizes.trickle_records * sizes.trickle_epochs)
    return Trickle(topic, base, should, sizes.trickle_records, merging(stage.merge, sizes.trickle_fold))


def once(stage: Stage, how: Callable[[Trickle, Path, float], Figures], of: Trickle) -> Figures:
    with stage.new_folder() as folder:
        shutil.copytree(of.base / "table", folder / "table")
        return in_a_process(how, of, folder, time.time())


def made(topic: Topic, folder: Path, rows: int, records: int) -> Content:
    """Make a table of ``rows`` rows, and ``records`` changes in the topic. Returns the expected content."""
    with measured_session(folder, time.time()) as (spark, _):
        full_table(spark, topic, folder, rows)
        # One record in eleven has a new key.
        produce(spark, topic, records, f"pmod(xxhash64(id, 2), {rows + rows // 10})")
        table = spark.read.format("delta").load(str(folder / "table"))
        return content(latest_per_key(table.unionByName(read(spark, topic))))


def lakelock(of: Trickle, folder: Path, begun: float) -> Figures:
    with measured_session(folder, begun) as (spark, clock):
        sink = ours.upsert(folder / "table", **of.merging)
        options = ours.options(of.topic, "bench", sink, epoch={"max_records": of.per_epoch})
        steps = ours.run(options)
        whole = clock.seconds
        check(current(spark, options, folder), of.should)
    return {
        "epoch_seconds": statistics.median(steps.epochs()),
        # Includes the work between two epochs: planning, reading Kafka's end offsets, publishing offsets, folds.
        "lap_seconds": statistics.median(steps.laps(Step.COMMITTED)),
        "slowest_lap_seconds": max(steps.laps(Step.COMMITTED)),
        "seconds": whole,
        "epochs": len(steps.epochs()),
    }


def structured_streaming(of: Trickle, folder: Path, begun: float, *, tuned: bool) -> Figures:
    with measured_session(folder, begun) as (spark, clock):
        streaming.prepare(spark, tuned=tuned)
        query = streaming.merge(spark, of.topic, folder, of.per_epoch)
        whole = clock.seconds
        check(spark.read.format("delta").load(str(folder / "table")), of.should)
    triggers = streaming.trigger_seconds(query)
    return {"epoch_seconds": statistics.median(triggers), "seconds": whole, "epochs": len(triggers)}


def measure(stage: Stage) -> list[Run]:
    of = prepared(stage, stage.sizes.trickle_rows)
    contenders: dict[str, Callable[[Trickle, Path, float], Figures]] = {
        OURS: lakelock,
        PEER: partial(structured_streaming, tuned=False),
        TUNED: partial(structured_streaming, tuned=True),
    }
    return alternating({name: partial(once, stage, how, of) for name, how in contenders.items()}, stage.repetitions)


def measure_by_size(stage: Stage) -> list[Run]:
    sizes = {SMALL: stage.sizes.small_rows, LARGE: stage.sizes.large_rows}
    tables = {name: prepared(stage, rows) for name, rows in sizes.items()}
    return alternating({name: partial(once, stage, lakelock, of) for name, of in tables.items()}, stage.repetitions)


WORKS = (
    Work(
        "trickle",
        "small epochs upserted into a large table",
        "epoch_seconds",
        (
            Ratio(f"median epoch / {PEER}", (OURS, "epoch_seconds"), (PEER, "epoch_seconds"), 0.25),
            Ratio(f"whole run / {PEER}", (OURS, "seconds"), (PEER, "seconds"), round(1 / 3, 3)),
            Ratio(f"median epoch / {TUNED}", (OURS, "epoch_seconds"), (TUNED, "epoch_seconds")),
            Ratio(f"whole run / {TUNED}", (OURS, "seconds"), (TUNED, "seconds")),
        ),
        measure,
    ),
    Work(
        "trickle_by_size",
        "the same epochs into a small table and into one a hundred times as large",
        "epoch_seconds",
        (Ratio("median epoch, large / small", (LARGE, "epoch_seconds"), (SMALL, "epoch_seconds"), 1.3),),
        measure_by_size,
    ),
)
