"""Whether the memory of a process grows with its pipelines: the peak of the JVM and of Python, with the usual heap."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.data import Topic
from benchmarks.measure import Figures, Ratio, Run, Work, alternating, progress
from benchmarks.processes import peak_mebibytes
from benchmarks.stage import Stage, in_a_process
from benchmarks.works.many import checked, expected, files, sent

RECORDS, AT_LEAST = 100, 10
FEW, MANY = f"{AT_LEAST} pipelines", "many pipelines"


def run(topics: list[Topic], folder: Path) -> Figures:
    """Make a table for each topic, and append what the topic has."""
    from connector import run_all

    run_all(files(topics, folder))
    return peak_mebibytes()


def measure(stage: Stage) -> list[Run]:
    topics = [stage.empty_topic("memory") for _ in range(stage.sizes.pipelines)]
    with stage.new_folder() as base:
        progress.print(f"  filling {len(topics)} topics")
        in_a_process(sent, topics, base, RECORDS)
        should = in_a_process(expected, topics, base)

    def once(count: int) -> Figures:
        with stage.new_folder() as folder:
            figures = in_a_process(run, topics[:count], folder)
            in_a_process(checked, folder, {topic.name: should[topic.name] for topic in topics[:count]})
            return figures

    contenders = {FEW: partial(once, AT_LEAST), MANY: partial(once, len(topics))}
    return alternating(contenders, stage.repetitions)


WORK = Work(
    "many_memory",
    "peak memory of one process with many pipelines",
    "MiB",
    (Ratio("peak memory, many pipelines / few", (MANY, "MiB"), (FEW, "MiB"), 1.3),),
    measure,
)
