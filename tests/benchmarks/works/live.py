"""Reading the current rows of a table that is merged on read, compared with a plain Delta table of the same size."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks import ours
from benchmarks.data import Content, Topic, check, content, latest_per_key, produce, read
from benchmarks.measure import OURS, Figures, Ratio, Run, Work, WrongResult, alternating, progress
from benchmarks.session import measured_session
from benchmarks.stage import Stage, in_a_process
from benchmarks.tables import current, full_table, merging
from connector import Pipeline

PLAIN = "plain Delta table"
NEVER = 1_000_000
"""Epochs between folds: more than the run has, so it never folds."""
AGAIN = 7


def made(options: Mapping[str, object], topic: Topic, folder: Path, rows: int) -> Content:
    """Make the plain table in ``plain``, and in ``table`` the same with unfolded changes to 1 % of the rows.

    Returns the expected content.
    """
    with measured_session(folder, time.time()) as (spark, _):
        full_table(spark, topic, folder, rows)
        # The first epoch is merged into the table, and later ones are appended.
        produce(spark, topic, 1, "0")
        ours.run(options)
        # A copy has the same files, so Spark splits both tables into the same tasks.
        shutil.copytree(folder / "table", folder / "plain", ignore=shutil.ignore_patterns("_lakelock"))
        produce(spark, topic, rows // 100, "id * 100")
        ours.run({**options, "epoch": {"max_records": max(1, rows // 1_000)}})
        table = spark.read.format("delta").load(str(folder / "plain"))
        should = content(latest_per_key(table.unionByName(read(spark, topic))))
        check(current(spark, options, folder), should)
    if not Pipeline.from_options(options).status().unfolded:
        raise WrongResult("everything is folded: there is nothing to measure")
    return should


def read_current(options: Mapping[str, object], folder: Path, begun: float) -> Figures:
    with measured_session(folder, begun) as (spark, _):
        return read_again(lambda: current(spark, options, folder))


def read_plain(folder: Path, begun: float) -> Figures:
    with measured_session(folder, begun) as (spark, _):
        return read_again(lambda: spark.read.format("delta").load(str(folder / "plain")))


def read_again(rows: Callable[[], DataFrame]) -> Figures:
    """Time the first read and several more. The first runs cold, which hides the cost of reading. The JVM still
    compiles during the next ones, so their median counts."""
    seconds = []
    for _ in range(1 + AGAIN):
        started = time.perf_counter()
        rows().write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - started)
    return {"seconds": seconds[0], "again_seconds": statistics.median(seconds[1:])}


def measure(stage: Stage) -> list[Run]:
    topic = stage.empty_topic("live")
    with stage.new_folder() as folder:
        options = ours.options(topic, "bench", ours.upsert(folder / "table", **merging("on_read", NEVER)))
        progress.print(f"  making and changing a table of {stage.sizes.large_rows:,} rows")
        in_a_process(made, options, topic, folder, stage.sizes.large_rows)
        contenders = {
            OURS: lambda: in_a_process(read_current, options, folder, time.time()),
            PLAIN: lambda: in_a_process(read_plain, folder, time.time()),
        }
        return alternating(contenders, stage.repetitions)


WORK = Work(
    "live",
    "all current rows of a large table with 1 % unfolded changes",
    "seconds",
    (
        Ratio("time / plain Delta table", (OURS, "seconds"), (PLAIN, "seconds"), 1.3),
        Ratio("time, read again / plain Delta table", (OURS, "again_seconds"), (PLAIN, "again_seconds"), 1.5),
    ),
    measure,
)
