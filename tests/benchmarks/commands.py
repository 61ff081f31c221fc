"""Contenders that are processes of their own: their commands, and the time from a start to the exit."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from benchmarks.data import SCHEMA, Topic
from connector.spark import jars

SCRIPTS = Path(__file__).parent / "scripts"
DELTA_RS = "plain Python with delta-rs"
LIMIT_SECONDS = 3600.0
_BENCH = ("confluent_kafka", "deltalake", "orjson")


def lakelock(*files: Path) -> list[str]:
    return [sys.executable, "-m", "connector", "run", *map(str, files)]


def bare(topic: Topic, folder: Path) -> list[str]:
    return _script("bare.py", _jars(), topic.bootstrap, topic.name, SCHEMA, str(folder / "table"))


def streaming(kind: str, topic: Topic, folder: Path, *, endless: bool = False) -> list[str]:
    """``kind``: append or upsert. ``endless``: start a trigger as soon as the one before has ended, until SIGTERM."""
    trigger = "endless" if endless else "available_now"
    return _script("streaming.py", _jars(), topic.bootstrap, topic.name, SCHEMA, str(folder), kind, trigger)


def many(kind: str, topics: Sequence[Topic], folder: Path) -> list[str]:
    """``kind``: queries or loop."""
    names = ",".join(topic.name for topic in topics)
    return _script("many.py", _jars(), topics[0].bootstrap, names, SCHEMA, str(folder), kind)


def routes(topic: Topic, folder: Path, tables: int) -> list[str]:
    return _script("routes.py", _jars(), topic.bootstrap, topic.name, SCHEMA, str(folder), str(tables))


def delta_rs(kind: str, topic: Topic, folder: Path) -> list[str]:
    """``kind``: append or upsert."""
    require_delta_rs()
    return _script("delta_rs.py", topic.bootstrap, topic.name, str(folder / "table"), kind)


def require_delta_rs() -> None:
    """Raises RuntimeError without the extra ``bench``. Asked before a workload begins, because one takes minutes."""
    missing = [name for name in _BENCH if find_spec(name) is None]
    if missing:
        raise RuntimeError(
            f"the contender {DELTA_RS!r} needs {', '.join(missing)}: pip install 'lakelock[bench]', or `make bench`"
        )


def seconds(command: Sequence[str], folder: Path) -> float:
    """The seconds of a whole process, from its start to its exit."""
    begun = time.perf_counter()
    with running(command, folder) as process:
        code = process.wait(LIMIT_SECONDS)
        ended = time.perf_counter()
        if code:
            raise RuntimeError(f"{command[1:3]} ended with exit code {code}: {said(folder)}")
    return ended - begun


@contextmanager
def running(command: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process, and kill it at the end of the block. Its output goes into a file of the folder."""
    with _output(folder).open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def said(folder: Path) -> str:
    """The end of the output of the folder's processes."""
    return _output(folder).read_text(errors="replace")[-2000:]


def _output(folder: Path) -> Path:
    return folder / "output"


def _script(name: str, *arguments: str) -> list[str]:
    return [sys.executable, str(SCRIPTS / name), *arguments]


def _jars() -> str:
    return ",".join(map(str, jars.find("spark")))
