"""Many topics with a few new records each, into a table each: whole processes, from their start to their exit.

The jobs aren't the first ones: each contender has made its tables before, from a few records.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks import commands, ours
from benchmarks.data import Content, Topic, check, content, produce, read
from benchmarks.measure import OURS, Figures, Ratio, Run, Work, alternating, progress
from benchmarks.session import measured_session
from benchmarks.stage import Stage, in_a_process

BEFORE = 100
ONE_BY_ONE = f"{OURS}, a process for each"
QUERIES, LOOP = "a streaming query for each, in one process", "a foreachBatch that loops over the tables"
Act = Callable[[Sequence[Topic], Path], list[list[str]]]
"""The processes that bring everything new into the tables of a folder, one after the other."""


def files(topics: Sequence[Topic], folder: Path) -> list[Path]:
    found = []
    for topic in topics:
        place = folder / "pipelines" / topic.name
        place.mkdir(parents=True, exist_ok=True)
        options = ours.options(topic, topic.name, ours.append(folder / topic.name))
        found.append(ours.as_file(options, place))
    return found


def together(topics: Sequence[Topic], folder: Path) -> list[list[str]]:
    return [commands.lakelock(*files(topics, folder))]


def one_by_one(topics: Sequence[Topic], folder: Path) -> list[list[str]]:
    return [commands.lakelock(file) for file in files(topics, folder)]


CONTENDERS: Mapping[str, Act] = {
    OURS: together,
    ONE_BY_ONE: one_by_one,
    QUERIES: lambda topics, folder: [commands.many("queries", topics, folder)],
    LOOP: lambda topics, folder: [commands.many("loop", topics, folder)],
}


def sent(topics: Sequence[Topic], folder: Path, records: int) -> None:
    with measured_session(folder, time.time()) as (spark, _):
        for topic in topics:
            produce(spark, topic, records, "id")


def expected(topics: Sequence[Topic], folder: Path) -> Mapping[str, Content]:
    with measured_session(folder, time.time()) as (spark, _):
        return {topic.name: content(read(spark, topic)) for topic in topics}


def checked(folder: Path, should: Mapping[str, Content]) -> None:
    with measured_session(folder, time.time()) as (spark, _):
        for name, of_topic in should.items():
            check(spark.read.format("delta").load(str(folder / name)), of_topic)


def seconds(act: Act, topics: Sequence[Topic], folder: Path) -> float:
    return sum(commands.seconds(command, folder) for command in act(topics, folder))


def measure(stage: Stage) -> list[Run]:
    topics = [stage.empty_topic("many") for _ in range(stage.sizes.many)]
    with stage.new_folder() as base:
        progress.print(f"  making {len(topics)} tables, four times")
        in_a_process(sent, topics, base, BEFORE)
        for number, name in enumerate(CONTENDERS):
            (base / str(number)).mkdir()
            # The first jobs of each are made by one process, whatever measures the next ones.
            seconds(together if name == ONE_BY_ONE else CONTENDERS[name], topics, base / str(number))
        in_a_process(sent, topics, base, stage.sizes.many_records)
        should = in_a_process(expected, topics, base)

        def once(number: int, act: Act) -> Figures:
            with stage.new_folder() as folder:
                shutil.copytree(base / str(number), folder, dirs_exist_ok=True)
                took = seconds(act, topics, folder)
                in_a_process(checked, folder, should)
                return {"process_seconds": took}

        contenders = {name: partial(once, number, act) for number, (name, act) in enumerate(CONTENDERS.items())}
        return alternating(contenders, stage.repetitions)


WORK = Work(
    "many",
    "many topics with a few new records each, into a table each, whole processes",
    "process_seconds",
    tuple(
        Ratio(f"speed / {peer}", (peer, "process_seconds"), (OURS, "process_seconds"), at_least=at_least)
        for peer, at_least in ((ONE_BY_ONE, 8.0), (QUERIES, 1.5), (LOOP, 1.5))
    ),
    measure,
)
