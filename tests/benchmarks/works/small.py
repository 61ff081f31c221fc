"""A scheduled job that brings a few new records into a table: the whole process, from its start to its exit.

The job isn't the first one: the table has rows already, and each contender has written some of them, so that it finds
its position where it keeps it: in the table or in a checkpoint.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks import commands, ours
from benchmarks.commands import DELTA_RS
from benchmarks.data import Content, Topic, check, content, latest_per_key, produce, read
from benchmarks.measure import OURS, Figures, Ratio, Run, Work, alternating, progress
from benchmarks.session import measured_session
from benchmarks.stage import Stage, in_a_process
from benchmarks.streaming import TUNED
from benchmarks.tables import current, full_table, merging

BEFORE = 1_000
"""Records of the jobs before: two epochs of Lakelock's, because the first one with `on_read` is a MERGE."""
NEVER = 1_000_000
"""Epochs between folds."""
Command = Callable[[Topic, Path], list[str]]


@dataclass(frozen=True)
class Job:
    kind: str
    """append or upsert."""
    command: Command
    """The process that brings everything new from a topic into the subfolder ``table`` of a folder."""
    sink: Mapping[str, object] | None = None
    """Lakelock's."""


def options(topic: Topic, folder: Path, sink: Mapping[str, object]) -> dict[str, object]:
    return ours.options(topic, "bench", {"path": str(folder / "table"), **sink})


def lakelock(kind: str, merge: str = "on_write") -> Job:
    sink: dict[str, object] = {"type": "delta_append"}
    if kind == "upsert":
        sink = {"type": "delta_upsert", "key": "key", **merging(merge, NEVER)}
    return Job(kind, partial(run, sink), sink)


def run(sink: Mapping[str, object], topic: Topic, folder: Path) -> list[str]:
    return commands.lakelock(ours.as_file(options(topic, folder, sink), folder))


def jobs() -> dict[str, Job]:
    return {
        f"{OURS}, append": lakelock("append"),
        f"{OURS}, on_write": lakelock("upsert"),
        f"{OURS}, on_read": lakelock("upsert", "on_read"),
        **{f"{TUNED}, {kind}": Job(kind, partial(commands.streaming, kind)) for kind in ("append", "upsert")},
        **{f"{DELTA_RS}, {kind}": Job(kind, partial(commands.delta_rs, kind)) for kind in ("append", "upsert")},
    }


def filled(topic: Topic, folder: Path, rows: int) -> None:
    """The table, and the records of the jobs before."""
    with measured_session(folder, time.time()) as (spark, _):
        full_table(spark, topic, folder, rows)
        produce(spark, topic, BEFORE, _key(rows))


def new(topic: Topic, folder: Path, rows: int, records: int) -> Mapping[str, Content]:
    """The records of the job that is measured. Returns the expected content by kind."""
    with measured_session(folder, time.time()) as (spark, _):
        produce(spark, topic, records, _key(rows))
        table = spark.read.format("delta").load(str(folder / "table"))
        whole = table.unionByName(read(spark, topic))
        return {"append": content(whole), "upsert": content(latest_per_key(whole))}


def _key(rows: int) -> str:
    """One record in eleven has a new key."""
    return f"pmod(xxhash64(id, 2), {rows + rows // 10})"


def checked(job: Job, topic: Topic, folder: Path, should: Content) -> None:
    with measured_session(folder, time.time()) as (spark, _):
        rows: DataFrame = spark.read.format("delta").load(str(folder / "table"))
        if job.sink is not None:
            rows = current(spark, options(topic, folder, job.sink), folder)
        check(rows, should)


def before(job: Job, topic: Topic, base: Path, folder: Path) -> None:
    """What the jobs before have left in the folder."""
    shutil.copytree(base / "table", folder / "table")
    if job.sink is not None:
        first = {**options(topic, folder, job.sink), "epoch": {"max_records": BEFORE // 2}}
        commands.seconds(commands.lakelock(ours.as_file(first, folder)), folder)
    else:
        commands.seconds(job.command(topic, folder), folder)


def measure(stage: Stage) -> list[Run]:
    commands.require_delta_rs()
    topic, rows = stage.empty_topic("small"), stage.sizes.job_rows
    with stage.new_folder() as base:
        progress.print(f"  making a table of {rows:,} rows, and the jobs before")
        in_a_process(filled, topic, base, rows)
        folders = {name: base / str(number) for number, name in enumerate(jobs())}
        for name, job in jobs().items():
            folders[name].mkdir()
            before(job, topic, base, folders[name])
        should = in_a_process(new, topic, base, rows, stage.sizes.job_records)

        def once(name: str, job: Job) -> Figures:
            with stage.new_folder() as folder:
                shutil.copytree(folders[name], folder, dirs_exist_ok=True)
                seconds = commands.seconds(job.command(topic, folder), folder)
                in_a_process(checked, job, topic, folder, should[job.kind])
                return {"process_seconds": seconds}

        return alternating({name: partial(once, name, job) for name, job in jobs().items()}, stage.repetitions)


def _speed(ours_: str, peer: str, at_least: float | None = None) -> Ratio:
    return Ratio(
        f"speed, {ours_} / {peer}",
        (peer, "process_seconds"),
        (f"{OURS}, {ours_}", "process_seconds"),
        at_least=at_least,
    )


WORK = Work(
    "small",
    "a scheduled job with few new records for a large table, whole process",
    "process_seconds",
    (
        _speed("append", f"{TUNED}, append", 2.0),
        _speed("on_write", f"{TUNED}, upsert", 1.4),
        _speed("on_read", f"{TUNED}, upsert", 1.8),
        _speed("append", f"{DELTA_RS}, append"),
        _speed("on_write", f"{DELTA_RS}, upsert"),
        _speed("on_read", f"{DELTA_RS}, upsert"),
    ),
    measure,
)
