"""The time of ``lakelock run`` from the start of its process to its first commit, against a bare PySpark script."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks import commands, ours
from benchmarks.commands import SCRIPTS
from benchmarks.data import Topic
from benchmarks.measure import OURS, Figures, Ratio, Run, Work, alternating
from benchmarks.stage import Stage

BARE, APART = "bare PySpark script", "lakelock, taken apart"
LIMIT_SECONDS = 120.0


def lakelock(topic: Topic, folder: Path) -> Figures:
    file = ours.as_file(_options(topic, folder), folder)
    return {"seconds": _to_first_commit(commands.lakelock(file), folder)}


def bare(topic: Topic, folder: Path) -> Figures:
    return {"seconds": _to_first_commit(commands.bare(topic, folder), folder)}


def taken_apart(topic: Topic, folder: Path) -> Figures:
    file = ours.as_file(_options(topic, folder), folder)
    command = [sys.executable, str(SCRIPTS / "taken_apart.py"), str(file), str(time.time())]
    parts: Figures = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return parts


def _options(topic: Topic, folder: Path) -> dict[str, object]:
    return ours.options(topic, "bench", ours.append(folder / "table"))


def _to_first_commit(command: Sequence[str], folder: Path) -> float:
    """Seconds until the table's log holds a commit with rows, whoever wrote it."""
    log = folder / "table" / "_delta_log"
    started = time.perf_counter()
    with commands.running(command, folder) as process:
        while not _holds_rows(log):
            if process.poll() not in (None, 0) or time.perf_counter() - started > LIMIT_SECONDS:
                raise RuntimeError(f"{command[:4]} has committed nothing: {commands.said(folder)}")
            time.sleep(0.01)
        seconds = time.perf_counter() - started
        process.wait(LIMIT_SECONDS)
        return seconds


def _holds_rows(log: Path) -> bool:
    return any('"add":' in commit.read_text() for commit in log.glob("*.json"))


def measure(stage: Stage) -> list[Run]:
    topic, _ = stage.topic(stage.sizes.start_records, stage.sizes.start_records)

    def once(how: Callable[[Topic, Path], Figures]) -> Figures:
        with stage.new_folder() as folder:
            return how(topic, folder)

    contenders = {OURS: lakelock, BARE: bare, APART: taken_apart}
    return alternating({name: partial(once, how) for name, how in contenders.items()}, stage.repetitions)


WORK = Work(
    "start",
    "from the start of the process to the first commit of a few records",
    "seconds",
    (Ratio("time / bare PySpark script", (OURS, "seconds"), (BARE, "seconds"), 1.2),),
    measure,
)
