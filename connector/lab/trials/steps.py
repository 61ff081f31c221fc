"""Two-phase commit killed at every step: four sinks that move together, really crashed, really restarted, and compared.

Most pipelines share their processes (see ``crew``), and one SIGKILL hits each of them at its own step. In the middle of
the commits, when one sink has the epoch and others don't, every pipeline gets a process and a SIGKILL of its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from connector.lab.bench.broker import Broker
from connector.lab.bench.crew import CRASH_IN_BATCH, Task, read_journal
from connector.lab.bench.processes import run_crew, started, wait_for_end
from connector.lab.check.evidence import sent_records
from connector.lab.check.history import Happened, Sent
from connector.lab.trials.matrix import BATCH, PARTITIONS, send_records
from connector.lab.trials.together import Store, Together, Verdict, judge, store

TOPIC = "together"


@dataclass(frozen=True)
class Point:
    """Where it is killed: first, and again in the recovery."""

    name: str
    first: str
    again: str | None = None
    says: str = ""


POINTS = (
    Point("begun", "begun", None, "The log has the epoch's ranges. No sink knows of it."),
    Point("read", "read", None, "The epoch's query stands. Nothing is staged."),
    Point("prepared", "prepared", None, "Every sink has staged the rows. Nothing is decided."),
    Point("decided", "decided", None, "The decision is in the log. No sink has committed."),
    Point("mid_commit", "sink_committed", None, "One sink has the epoch; the others are on the way, or not."),
    Point("committed", "committed", None, "Every sink has the epoch. The log doesn't say so yet."),
    Point("recovery_of_begun", "prepared", "resumed", "Killed before the decision, and again after the recovery."),
    Point("recovery_of_decided", "decided", "sink_committed", "Killed after the decision, and again rolling forward."),
)
_ALONE = ("mid_commit", "recovery_of_decided")


def run_steps(folder: Path, out: Console, points: Sequence[str] = ()) -> Mapping[str, Verdict]:
    """Verdict by point. Tables, logs and journals stay in ``folder``."""
    chosen = [point for point in POINTS if not points or point.name in points]
    with Broker() as broker, store() as s3:
        bench = _Bench(chosen, folder, broker, s3, out)
        bench.crash()
        return bench.judged()


class _Bench:
    def __init__(self, points: Sequence[Point], folder: Path, broker: Broker, s3: Store, out: Console) -> None:
        self._points, self._folder, self._out = points, folder, out
        self._started = time.time()
        send_records(broker, TOPIC)
        self._sent: tuple[Sent, ...] = sent_records(broker.bootstrap, TOPIC)
        self._pipelines = {}
        for point in points:
            pipeline = Together(f"at_{point.name}", folder, TOPIC, s3, broker.bootstrap)
            pipeline.write(max_records=BATCH)
            broker.create_topic(pipeline.target, PARTITIONS)
            self._pipelines[point] = pipeline

    def crash(self) -> None:
        """First crashes, then those of recoveries, then all run to the end."""
        shared = [point for point in self._points if point.name != "mid_commit"]
        if shared:
            self._say(f"{len(shared)} pipelines, each up to its step, then one SIGKILL")
            self._crew([self._task(point, 0, point.first) for point in shared], killed=True)
        for point in self._points:
            step = point.first if point.name == "mid_commit" else point.again
            if point.name in _ALONE and step is not None:
                self._say(f"{point.name}: SIGKILL when the first sink has the epoch")
                self._kill_alone(point, step)
        again = [point for point in self._points if point.again is not None and point.name not in _ALONE]
        self._say("restart of all" + (f", {len(again)} of them killed once more" if again else ""))
        self._crew(
            [self._task(point, 1, point.again if point in again else None) for point in self._points],
            killed=bool(again),
        )
        if again:
            self._say("the last restart")
            self._crew([self._task(point, 2, None) for point in again], killed=False)

    def judged(self) -> dict[str, Verdict]:
        return {point.name: judge(pipeline, self._sent) for point, pipeline in self._pipelines.items()}

    def events(self, point: Point) -> tuple[Happened, ...]:
        return read_journal(self._journal(point))

    def _kill_alone(self, point: Point, step: str) -> None:
        arguments = (str(self._pipelines[point].file), step, str(CRASH_IN_BATCH), "SIGKILL")
        log = self._folder / f"{point.name}.log"
        with started("connector.lab.bench.faults", *arguments, log=log) as process:
            wait_for_end(process, log, killed=True)

    def _crew(self, tasks: Sequence[Task], *, killed: bool) -> None:
        run_crew(self._folder, tasks, self._started, killed=killed)

    def _task(self, point: Point, run: int, crash: str | None) -> Task:
        return Task(str(self._pipelines[point].file), str(self._journal(point)), run, crash)

    def _journal(self, point: Point) -> Path:
        return self._folder / f"{point.name}.jsonl"

    def _say(self, text: str) -> None:
        self._out.print(f"[dim]{time.time() - self._started:5.0f} s[/]  {text}", highlight=False)
