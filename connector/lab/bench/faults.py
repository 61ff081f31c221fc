"""Real faults for real processes: SIGKILL or SIGSTOP at a named moment of an epoch.

There are two ways to hit a moment. At a step that an epoch announces, an observer sends the signal to its own process
group: ``python -m connector.lab.bench.faults FILE STEP EPOCH SIGKILL``. Moments inside Delta's write show in the
table's folder, which a second process watches. It sends the signal from outside.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from connector.protocol.steps import Event, Observer, Step
from sinks.errors import LakelockError


class Moment(Enum):
    """A moment inside the write of one table version, seen from outside."""

    MID_WRITE = "a data file exists, but not the commit"
    BEFORE_COMMIT = "the commit is written, but not under its final name"
    AFTER_COMMIT = "the commit exists, and the run has not noticed"


def signal_at(step: Step, epoch: int, number: signal.Signals) -> Observer:
    """An observer that sends a signal to its own process group, which is Python and its JVM, at a step of an epoch."""

    def observe(event: Event) -> None:
        if event.step is step and event.epoch.number == epoch:
            os.killpg(0, number)

    return observe


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL a process and its children, which are Python and its JVM. The process must lead its own session."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(moment: Moment, table: Path, version: int, *, going_on: Callable[[], bool]) -> bool:
    """Wait for a moment of the write of ``version``. Returns False if it was missed or ``going_on`` turned False.

    Polls without a pause, because the commit's last moments take a millisecond.
    """
    log = table / "_delta_log"
    before: set[str] | None = None
    last = f"{version - 1:020d}.json"
    name = f"{version:020d}.json"
    while going_on():
        commits = _names(log)
        if name in commits:
            return moment is Moment.AFTER_COMMIT
        if last not in commits:
            time.sleep(0.005)
        elif moment is Moment.BEFORE_COMMIT:
            if any(name in commit and commit.endswith(".tmp") for commit in commits):
                return True
        elif moment is Moment.MID_WRITE:
            files = {file for file in _names(table) if file.endswith(".parquet") and not file.startswith(".")}
            before = files if before is None else before
            if files - before:
                return True
    return False


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))  # noqa: PTH208  (takes half the time of Path.iterdir)
    except FileNotFoundError:
        return set()


def main() -> None:
    """Run a pipeline, and send the signal at the step that ``sys.argv`` names. Exits with the run's exit code."""
    from connector.pipeline import Pipeline

    file, step, epoch, name = sys.argv[1:]
    fault = signal_at(Step(step), int(epoch), signal.Signals[name])
    try:
        Pipeline.from_file(file).run(observers=[fault])
    except LakelockError as error:
        sys.stderr.write(f"{error.message}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
