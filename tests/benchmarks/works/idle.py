"""The cost of an idle pipeline: the CPU time of a poll, of Python and the JVM together."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from benchmarks import ours
from benchmarks.data import Topic
from benchmarks.measure import OURS, Figures, Ratio, Run, Work, alternating
from benchmarks.processes import cpu_seconds
from benchmarks.session import measured_session
from benchmarks.stage import Stage, in_a_process
from connector import Pipeline

WARM_UP = 20
"""Polls that don't count, because the JVM is still compiling."""
RECORDS = 1_000


class Polls(threading.Event):
    """Stops a run after a number of polls. It counts them, because the run waits for this event between two polls."""

    def __init__(self, polls: int) -> None:
        super().__init__()
        self._marked = (WARM_UP, WARM_UP + polls)
        self._polls = 0
        self.marks: list[tuple[float, float]] = []

    def wait(self, timeout: float | None = None) -> bool:
        self._polls += 1
        if self._polls in self._marked:
            self.marks.append((time.perf_counter(), cpu_seconds()))
            if len(self.marks) == 2:
                self.set()
        return super().wait(timeout)


def poll(topic: Topic, folder: Path, polls: int, begun: float) -> Figures:
    """Measure a pipeline that is up to date after its first epoch. Then let the same process sleep for as long."""
    trigger = {"interval": "0.5 seconds"}
    options = ours.options(topic, "bench", ours.append(folder / "table"), trigger=trigger)
    with measured_session(folder, begun):
        stop = Polls(polls)
        Pipeline.from_options(options).run(stop=stop)
        (started, cpu_before), (ended, cpu_after) = stop.marks
        asleep = cpu_seconds()
        time.sleep(ended - started)
        sleeping = cpu_seconds() - asleep
    used = cpu_after - cpu_before
    return {"ms_per_poll": (used - sleeping) / polls * 1000, "cpu_seconds": used, "sleeping_cpu_seconds": sleeping}


def measure(stage: Stage) -> list[Run]:
    topic, _ = stage.topic(RECORDS, RECORDS)

    def once() -> Figures:
        with stage.new_folder() as folder:
            return in_a_process(poll, topic, folder, stage.sizes.polls, time.time())

    return alternating({OURS: once}, stage.repetitions)


WORK = Work(
    "idle",
    "CPU time of a poll that finds nothing, without what the process costs asleep",
    "ms_per_poll",
    (Ratio("CPU of a poll, ms", (OURS, "ms_per_poll"), None, 50),),
    measure,
)
