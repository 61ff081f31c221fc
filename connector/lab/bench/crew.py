"""A process of the crash lab: runs pipelines side by side, each up to its crash point, and then dies by SIGKILL.

``python -m connector.lab.bench.crew TASKS.json``. A pipeline that is to crash parks at the announced step. When every
pipeline is parked or done, one SIGKILL ends the process and its JVM, with each pipeline at its own step. So one process
and one restart serve many cells of the matrix, and each cell's crash is real.

A pipeline's events are written to a journal before the pipeline continues, so they survive the SIGKILL.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from connector.lab.check.history import Happened
from connector.protocol.steps import Event, Observer, Step
from sinks.errors import LakelockError
from sinks.offsets import OffsetRange

AT_ONCE = 4
"""The most pipelines that work at the same time. Parked pipelines don't count."""
CRASH_IN_BATCH = 2


@dataclass(frozen=True)
class Task:
    """One pipeline of the process. ``crash``: the announced step at which it parks, None to run to the end."""

    file: str
    journal: str
    run: int
    """0 is the first process, 1 the first restart."""
    crash: str | None = None
    batch: int = CRASH_IN_BATCH
    """The batch of the run in which the pipeline parks, counted from 1."""


def write_tasks(file: Path, tasks: Sequence[Task], started: float) -> None:
    """Write the file of a crew. ``started``: when the lab began, in seconds since 1970. Journals count from then."""
    document = {"started": started, "tasks": [asdict(task) for task in tasks]}
    file.write_text(json.dumps(document), encoding="utf-8")


class Journal:
    """Appends the events of one cell to a file. `read_journal` reads them back."""

    def __init__(self, path: str, run: int, started: float) -> None:
        self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115  (the kill closes it)
        self._run, self._started = run, started

    def write(self, what: str, ranges: Sequence[Sequence[object]] = (), note: str = "") -> None:
        """Append one line. The line is in the file on return, so a kill can't lose it."""
        seconds = round(time.time() - self._started, 3)
        line = {"run": self._run, "seconds": seconds, "what": what, "ranges": list(ranges), "note": note}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def observe(self, event: Event) -> None:
        """Write a step that a pipeline announces. Serves as an observer of a run."""
        if event.epoch.ranges or event.step is Step.RESUMED:
            ranges = [[range_.topic, range_.partition, range_.start, range_.end] for range_ in event.epoch.ranges]
            what = event.step.value if event.step is not Step.PLANNED else "polled"
            self.write(what, ranges, event.note)


def read_journal(path: Path) -> tuple[Happened, ...]:
    """All events of a journal, in order."""
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return tuple(
        Happened(
            line["run"],
            line["seconds"],
            line["what"],
            tuple(OffsetRange(*fields) for fields in line["ranges"]),
            line["note"],
        )
        for line in lines
    )


def park_at(crash: str, parked: Callable[[], None], batch: int = CRASH_IN_BATCH) -> Observer:
    """An observer that calls ``parked`` and then blocks forever, at a step of a batch.

    ``crash``: the step. At ``resumed``, the observer blocks before the first batch. ``batch``: counted from 1.
    """
    step = Step(crash)
    met: set[int] = set()

    def observe(event: Event) -> None:
        if event.step is not step:
            return
        if event.epoch.ranges:
            met.add(event.epoch.number)
        if step is Step.RESUMED or len(met) == batch:
            parked()
            threading.Event().wait()

    return observe


def main() -> None:
    """Run the tasks of the file in ``sys.argv``. Ends by SIGKILL if one of them is to crash."""
    from connector.config import load
    from connector.pipeline import Pipeline
    from connector.spark.session import session

    document = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    tasks, started = [Task(**task) for task in document["tasks"]], document["started"]
    at_work = threading.Semaphore(AT_ONCE)

    def work(task: Task) -> None:
        """Run a pipeline until it has ended or is parked."""
        journal = Journal(task.journal, task.run, started)
        at_work.acquire()
        parked = threading.Event()

        def run() -> None:
            observers: list[Observer] = [journal.observe]
            if task.crash is not None:
                observers.append(park_at(task.crash, parked.set, task.batch))
            journal.write("started")
            try:
                Pipeline(load(task.file)).run(observers=observers)
                journal.write("done")
            except LakelockError as error:
                journal.write("failed", note=error.message)
            except Exception as error:
                journal.write("failed", note=f"{type(error).__name__}: {error}"[:500])
            parked.set()

        threading.Thread(target=run, daemon=True).start()
        parked.wait()
        at_work.release()

    with session(load(tasks[0].file).spark_options, name="crash lab"):
        with ThreadPoolExecutor(len(tasks)) as pool:
            list(pool.map(work, tasks))
        crashes = [task for task in tasks if task.crash is not None]
        if crashes:
            for task in crashes:
                Journal(task.journal, task.run, started).write("crashed", note=f"SIGKILL after {task.crash}")
            os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
