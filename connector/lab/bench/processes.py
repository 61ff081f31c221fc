"""Processes of the lab. Each has a session of its own, so that one SIGKILL ends Python and its JVM at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from connector.lab.bench.crew import Task, write_tasks
from connector.lab.bench.faults import kill_group
from sinks.errors import LakelockError

_SECONDS = 600.0


@contextmanager
def started(module: str, *arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start ``python -m module arguments``, and kill it at the end of the block. Its output is added to ``log``."""
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

    Raises `LakelockError` if it ends in another way, or not within ten minutes.
    """
    try:
        code = process.wait(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise LakelockError(f"A process of the lab is not done after {_SECONDS:.0f} seconds; see {log}.") from None
    if code != (-signal.SIGKILL if killed else 0):
        said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise LakelockError(f"A process of the lab ended with exit code {code}: {said}")


@contextmanager
def crew(folder: Path, tasks: Sequence[Task], begun: float) -> Iterator[subprocess.Popen[bytes]]:
    """One process for all these tasks, see ``connector.lab.bench.crew``; ``begun``: when the lab did."""
    file = folder / "tasks.json"
    write_tasks(file, tasks, begun)
    with started("connector.lab.bench.crew", str(file), log=crew_log(folder)) as process:
        yield process


def run_crew(folder: Path, tasks: Sequence[Task], begun: float, *, killed: bool) -> None:
    """Run a `crew` to its end. Raises `LakelockError` if it doesn't end as it should, see `wait_for_end`."""
    with crew(folder, tasks, begun) as process:
        wait_for_end(process, crew_log(folder), killed=killed)


def crew_log(folder: Path) -> Path:
    """The file to which a crew's process prints."""
    return folder / "crew.log"
