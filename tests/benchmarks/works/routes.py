"""One topic into many tables, whole processes: a route, and what one would write without it.

A route reads Kafka once and makes a commit for each table. So the measure is the same records into one table, plus the
bare cost of as many commits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks import commands, ours
from benchmarks.data import Content, Topic, content, read
from benchmarks.measure import OURS, Figures, Ratio, Run, Work, alternating
from benchmarks.session import measured_session
from benchmarks.stage import Stage, in_a_process
from benchmarks.works.many import LOOP, checked

ONE_TABLE = f"{OURS}, one table, plus as many bare commits"


def routed(topic: Topic, folder: Path, tables: int) -> float:
    sink = {"type": "delta_append", "path": str(folder / "{route}")}
    options = ours.options(topic, "routed", coordinator={"path": str(folder / "log")})
    del options["sinks"]
    options["route"] = {"by": f"number % {tables}", "sink": sink}
    return commands.seconds(commands.lakelock(ours.as_file(options, folder)), folder)


def one_table(topic: Topic, folder: Path, tables: int) -> float:
    options = ours.options(topic, "one", ours.append(folder / "one"))
    whole = commands.seconds(commands.lakelock(ours.as_file(options, folder)), folder)
    return whole + float(in_a_process(bare_commits, folder, tables))


def loop(topic: Topic, folder: Path, tables: int) -> float:
    return commands.seconds(commands.routes(topic, folder, tables), folder)


def bare_commits(folder: Path, tables: int) -> float:
    """The seconds of an append of one row to each of as many tables, one after the other, in a warm session."""
    with measured_session(folder, time.time()) as (spark, _):
        row, begun = spark.range(1), 0.0
        for warm in (True, False):
            begun = time.perf_counter()
            for number in range(tables):
                row.write.format("delta").mode("append").save(str(folder / f"bare_{warm}" / str(number)))
        return time.perf_counter() - begun


def expected(topic: Topic, folder: Path, tables: int) -> Mapping[str, Content]:
    with measured_session(folder, time.time()) as (spark, _):
        rows = read(spark, topic)
        return {str(number): content(rows.where(f"number % {tables} = {number}")) for number in range(tables)}


CONTENDERS: Mapping[str, Callable[[Topic, Path, int], float]] = {OURS: routed, ONE_TABLE: one_table, LOOP: loop}


def measure(stage: Stage) -> list[Run]:
    tables, records = stage.sizes.routes, stage.sizes.backlog
    topic, _ = stage.topic(records, min(stage.sizes.keys, records))
    with stage.new_folder() as base:
        should = in_a_process(expected, topic, base, tables)

    def once(act: Callable[[Topic, Path, int], float], routes: bool) -> Figures:
        with stage.new_folder() as folder:
            took = act(topic, folder, tables)
            if routes:
                in_a_process(checked, folder, should)
            return {"process_seconds": took}

    contenders = {name: partial(once, act, name != ONE_TABLE) for name, act in CONTENDERS.items()}
    return alternating(contenders, stage.repetitions)


WORK = Work(
    "routes",
    "one topic into 20 tables, whole processes",
    "process_seconds",
    (
        Ratio(f"time / {ONE_TABLE}", (OURS, "process_seconds"), (ONE_TABLE, "process_seconds"), 1.4),
        Ratio(f"speed / {LOOP}", (LOOP, "process_seconds"), (OURS, "process_seconds"), at_least=2.0),
    ),
    measure,
)
