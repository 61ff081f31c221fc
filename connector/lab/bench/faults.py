"""Real faults for real processes: SIGKILL, or SIGSTOP, at a named moment of an epoch.

Two ways to the moment. The steps that an epoch announces:
``python -m connector.lab.bench.faults FILE STEP EPOCH SIGKILL`` runs a pipeline with an observer that sends its own
process group the signal there. What happens inside Delta's write shows in the table's folder: a second process watches
it, and sends the signal from outside.
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

    MID_WRITE = "a data file is there, the commit isn't"
    BEFORE_COMMIT = "the commit is written, but not yet under its name"
    AFTER_COMMIT = "the commit is there, and the run has not seen it yet"


def signal_at(step: Step, epoch: int, number: signal.Signals) -> Observer:
    """An observer that sends a signal to its own process group: Python and its JVM at once."""

    def observe(event: Event) -> None:
        if event.step is step and event.epoch.number == epoch:
            os.killpg(0, number)

    return observe


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a process that has a session of its own, and to all of its children: Python and its JVM at once."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(moment: Moment, table: Path, version: int, *, going_on: Callable[[], bool]) -> bool:
    """Return at this moment of the write of ``version``; False when ``going_on`` turned false before.

    Polls without a pause: the commit's last moments take a millisecond.
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
        return set(os.listdir(folder))  # noqa: PTH208  (half the time of Path.iterdir, and time is what counts)
    except FileNotFoundError:
        return set()


def main() -> None:
    """Run a pipeline and send the signal at the step that ``sys.argv`` names. Ends with the run's exit code."""
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
