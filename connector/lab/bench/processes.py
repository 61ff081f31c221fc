"""Processes of the lab. Each has its own session, so that one SIGKILL ends Python and its JVM together."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from connector.lab.bench.crew import CRASH_IN_BATCH, Task, write_tasks
from connector.lab.bench.faults import kill_group
from sinks.errors import LakelockError

_SECONDS = 600.0


@contextmanager
def started(module: str, *arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start ``python -m module arguments``, and kill it at the end of the block. ``log``: receives its output."""
    with log.open("ab") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], start_new_session=True, stdout=said, stderr=said
        )
    try:
        yield process
    finally:
        kill_group(process)


def wait_for_end(process: subprocess.Popen[bytes], log: Path, *, killed: bool) -> None:
    """Wait for a process to end by itself, or by SIGKILL if ``killed``.

    Raises `LakelockError` if the process ends in another way, or not within ten minutes.
    """
    try:
        code = process.wait(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise LakelockError(f"A process of the lab did not end in {_SECONDS:.0f} seconds. See {log}.") from None
    if code != (-signal.SIGKILL if killed else 0):
        said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise LakelockError(f"A process of the lab ended with exit code {code}: {said}")


def kill_at(step: str, file: Path, log: Path) -> None:
    """Run a pipeline file in a process of its own, which is killed at a step of its second batch, wherever its other
    threads are. Raises `LakelockError` if it ends in another way."""
    arguments = (str(file), step, str(CRASH_IN_BATCH), "SIGKILL")
    with started("connector.lab.bench.faults", *arguments, log=log) as process:
        wait_for_end(process, log, killed=True)


@contextmanager
def crew(folder: Path, tasks: Sequence[Task], begun: float) -> Iterator[subprocess.Popen[bytes]]:
    """Start one process for all tasks, see ``connector.lab.bench.crew``.

    ``begun``: when the lab began, in seconds since 1970.
    """
    file = folder / "tasks.json"
    write_tasks(file, tasks, begun)
    with started("connector.lab.bench.crew", str(file), log=crew_log(folder)) as process:
        yield process


def run_crew(folder: Path, tasks: Sequence[Task], begun: float, *, killed: bool) -> None:
    """Run a `crew` to its end. Raises `LakelockError` if the process ends in another way, see `wait_for_end`."""
    with crew(folder, tasks, begun) as process:
        wait_for_end(process, crew_log(folder), killed=killed)


def crew_log(folder: Path) -> Path:
    """The file with the output of a crew's process."""
    return folder / "crew.log"
