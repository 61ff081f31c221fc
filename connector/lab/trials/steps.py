"""Two-phase commit, killed at every step: pipelines with four sinks are really crashed, restarted, and compared.

Most pipelines share their processes (see ``crew``), and one SIGKILL hits each pipeline at its own step. Pipelines that
are killed in the middle of the commits, when only one sink has the epoch, have their own processes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from connector.lab.bench.broker import Broker
from connector.lab.bench.crew import Task, read_journal
from connector.lab.bench.processes import kill_at, run_crew
from connector.lab.check.evidence import sent_records
from connector.lab.check.history import Happened, Sent
from connector.lab.trials.matrix import BATCH, PARTITIONS, send_records
from connector.lab.trials.together import Store, Together, Verdict, judge, store
from sinks.plurals import plural

TOPIC = "together"


@dataclass(frozen=True)
class Point:
    """The step of the first kill, and the step of the second, during the recovery. ``says``: an explanation."""

    name: str
    first: str
    again: str | None = None
    says: str = ""


POINTS = (
    Point("begun", "begun", None, "The log has the epoch's ranges. No sink knows of the epoch."),
    Point("read", "read", None, "The epoch's query exists. No rows are staged."),
    Point("prepared", "prepared", None, "Every sink has staged the rows. The log has no decision."),
    Point("decided", "decided", None, "The log has the decision. No sink has committed."),
    Point("mid_commit", "sink_committed", None, "One sink has committed the epoch. The others may have or not."),
    Point("committed", "committed", None, "Every sink has committed the epoch. The log doesn't say so yet."),
    Point("recovery_of_begun", "prepared", "resumed", "Killed before the decision, and again after the recovery."),
    Point("recovery_of_decided", "decided", "sink_committed", "Killed after the decision, and while rolling forward."),
)
_ALONE = ("mid_commit", "recovery_of_decided")


def run_steps(folder: Path, out: Console, points: Sequence[str] = ()) -> Mapping[str, Verdict]:
    """Kill a pipeline at each point. Returns the verdicts by the points' names.

    ``folder``: receives tables, logs and journals. ``points``: names from `POINTS`, empty for all.
    """
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
        """Cause the first crashes, then those during recovery. Then run all pipelines to the end."""
        shared = [point for point in self._points if point.name != "mid_commit"]
        if shared:
            self._say(f"{plural(len(shared), 'pipeline runs', 'pipelines run')} to the step, then one SIGKILL")
            self._crew([self._task(point, 0, point.first) for point in shared], killed=True)
        for point in self._points:
            step = point.first if point.name == "mid_commit" else point.again
            if point.name in _ALONE and step is not None:
                self._say(f"{point.name}: SIGKILL when the first sink has committed")
                kill_at(step, self._pipelines[point].file, self._folder / f"{point.name}.log")
        again = [point for point in self._points if point.again is not None and point.name not in _ALONE]
        self._say("restart of all" + (f", of which {len(again)} are killed again" if again else ""))
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

    def _crew(self, tasks: Sequence[Task], *, killed: bool) -> None:
        run_crew(self._folder, tasks, self._started, killed=killed)

    def _task(self, point: Point, run: int, crash: str | None) -> Task:
        return Task(str(self._pipelines[point].file), str(self._journal(point)), run, crash)

    def _journal(self, point: Point) -> Path:
        return self._folder / f"{point.name}.jsonl"

    def _say(self, text: str) -> None:
        self._out.print(f"[dim]{time.time() - self._started:5.0f} s[/]  {text}", highlight=False)
