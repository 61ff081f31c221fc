"""A standalone Spark cluster on this machine: a master and workers with one core each, every one a process."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyspark
from conftest import wait_until

from connector.lab.bench.faults import kill_group
from connector.spark import java

HOME = Path(pyspark.__file__).parent
_DAEMON = (str(HOME / "bin/spark-class"), "org.apache.spark.deploy")
_PORTS = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
_SAID = (r"Starting Spark master at (spark://\S+)", r"Bound MasterWebUI to \S+ and started at (http://\S+)")


def get(url: str) -> Any:
    """None where nobody answers, or not yet."""
    with suppress(OSError, ValueError), urlopen(url, timeout=5) as answer:
        return json.load(answer)
    return None


@contextmanager
def started(command: list[str], log: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=environment, start_new_session=True)
    try:
        yield process
    finally:
        kill_group(process)


@dataclass
class Worker:
    process: subprocess.Popen[bytes]
    folder: Path

    def runs(self, app: str, executor: str) -> bool:
        return (self.folder / app / executor).is_dir()


@dataclass
class Standalone:
    master: str
    page: str
    workers: list[Worker]


@contextmanager
def standalone(folder: Path, *, workers: int, memory: str = "1g") -> Iterator[Standalone]:
    """The workers know nothing of this process's Python. ``memory``: of each worker, for its executors."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))},
        "SPARK_HOME": str(HOME),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": java.QUICK_START,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with ExitStack() as stack:
        log = folder / "master.log"
        stack.enter_context(started([_DAEMON[0], f"{_DAEMON[1]}.master.Master", *_PORTS], log, environment))

        def said() -> list[str]:
            return [found[1] for each in _SAID if (found := re.search(each, log.read_text()))]

        wait_until(lambda: len(said()) == 2, 60, f"the master, see {log}")
        master, page = said()
        running = []
        for number in range(workers):
            work = folder / f"worker-{number}"
            command = [_DAEMON[0], f"{_DAEMON[1]}.worker.Worker", *_PORTS, "--cores", "1", "--memory", memory]
            command += ["--work-dir", str(work), master]
            process = stack.enter_context(started(command, folder / f"worker-{number}.log", environment))
            running.append(Worker(process, work))
        wait_until(lambda: (get(f"{page}/json/") or {}).get("aliveworkers") == workers, 60, f"{workers} workers")
        yield Standalone(master, page, running)
