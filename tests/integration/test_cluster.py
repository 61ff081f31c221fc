"""On a standalone cluster: a master and two workers, each a process, and on the workers nothing of Lakelock."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Store, Topic, wait_until
from standalone import HOME, Worker, get, standalone, started

from connector.lab.bench.faults import kill_group
from connector.lab.bench.pipelines import SHORT_LIVED
from connector.lab.check.evidence import sent_records
from connector.lab.trials import together
from connector.spark import jars, java

EPOCH = 2000
EPOCHS = 4
RUN = "from connector.cli.app import main\n\nmain()\n"


@dataclass
class Cluster:
    folder: Path
    master: str
    workers: list[Worker]
    python: Path
    """The workers'."""

    @contextmanager
    def submitted(self, file: Path) -> Iterator[Submitted]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        script, log = self.folder / "run.py", file.with_suffix(".log")
        script.write_text(RUN)
        command = [str(HOME / "bin/spark-submit"), "--master", self.master, "--name", "theirs"]
        command += ["--jars", ",".join(map(str, [*jars.find("spark"), *jars.own()]))]
        command += ["--driver-memory", "1g", "--executor-memory", "700m", "--driver-java-options", java.QUICK_START]
        for setting in (
            f"spark.executor.extraJavaOptions={java.QUICK_START}",
            f"spark.pyspark.driver.python={sys.executable}",
            f"spark.pyspark.python={self.python}",
            f"spark.ui.port={port}",
            "spark.sql.shuffle.partitions=2",
            "spark.databricks.delta.snapshotPartitions=1",
            "spark.driver.host=127.0.0.1",
        ):
            command += ["--conf", setting]
        with started([*command, str(script), "run", str(file)], log, {**os.environ, "SPARK_HOME": str(HOME)}) as driver:
            yield Submitted(driver, log, f"http://127.0.0.1:{port}/api/v1/applications")


@dataclass
class Submitted:
    driver: subprocess.Popen[bytes]
    log: Path
    api: str

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def busy(self) -> tuple[str, str] | None:
        """(application, executor) that has a task at work."""
        for app in get(self.api) or ():
            for executor in get(f"{self.api}/{app['id']}/executors") or ():
                if executor["id"] != "driver" and executor["activeTasks"]:
                    return app["id"], executor["id"]
        return None

    def wait_for_task(self) -> tuple[str, str]:
        deadline = time.monotonic() + 120
        while (found := self.busy()) is None:
            assert self.driver.poll() is None, self.said[-3000:]
            assert time.monotonic() < deadline, "no task within two minutes"
        return found

    def wait_for_epoch(self, table: Path, version: int) -> None:
        commit = table / "_delta_log" / f"{version:020d}.json"
        wait_until(lambda: commit.exists() or self.driver.poll() is not None, 180, f"version {version}")
        assert commit.exists(), self.said[-3000:]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    # A Python with all packages of this one, but those that a .pth file brings: an editable install among them.
    venv.create(folder / "python", symlinks=True)
    (packages,) = (folder / "python/lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    with standalone(folder, workers=2) as running:
        yield Cluster(folder, running.master, running.workers, folder / "python/bin/python")


@pytest.fixture
def pipeline(topic: Topic, s3: Store, tmp_path: Path) -> together.Together:
    store = together.Store(s3.endpoint, s3.bucket)
    made = together.Together(topic.name, tmp_path, topic.name, store, topic.broker.bootstrap)
    topic.broker.create_topic(made.target, 2)
    made.write(max_records=EPOCH)
    return made


def verdict(pipeline: together.Together) -> together.Verdict:
    return together.judge(pipeline, sent_records(pipeline.bootstrap, pipeline.source))


IN_PYTHON = """
import sys
from connector import Pipeline
from connector.spark.session import session
from pyspark.sql import SparkSession

def knows(batches):
    import importlib.util, pyarrow as pa
    list(batches)
    known = [name for name in ("connector", "sinks") if importlib.util.find_spec(name)]
    yield pa.RecordBatch.from_pydict({"known": [known], "by": [sys.executable]})

def asked():
    return spark.range(1).mapInArrow(knows, "known ARRAY<STRING>, by STRING").collect()[0]

with session(json.loads(sys.argv[1]), name="cluster") as spark:
    before = asked()
    done = Pipeline.from_file(sys.argv[2]).run()
    print(json.dumps([spark.sparkContext.master, before.by, before.known, asked().known, done.epochs]))
"""


@pytest.mark.cluster
def test_code_reaches_workers_on_which_nothing_is_installed(
    cluster: Cluster, pipeline: together.Together, topic: Topic
) -> None:
    topic.send_rows((f"k{number % 7}", number) for number in range(20))
    options = {**SHORT_LIVED, "spark.master": cluster.master, "spark.executor.memory": "700m"}
    options |= {
        "spark.executor.extraJavaOptions": java.QUICK_START,
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    done = subprocess.run(
        [sys.executable, "-c", f"import json{IN_PYTHON}", json.dumps(options), str(pipeline.file)],
        capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, "PYSPARK_PYTHON": str(cluster.python)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [cluster.master, str(cluster.python), [], ["sinks"], 1]
    assert verdict(pipeline).held


@pytest.mark.cluster
def test_a_driver_and_then_a_worker_killed_in_mid_epoch_leave_four_sinks_exact(
    cluster: Cluster, pipeline: together.Together, topic: Topic
) -> None:
    topic.send_rows((f"k{number % 97}", number) for number in range(EPOCH * EPOCHS))
    with cluster.submitted(pipeline.file) as run:
        run.wait_for_epoch(pipeline.table("append"), 1)
        killed_in_mid_epoch(pipeline, run)
    assert not verdict(pipeline).held
    with cluster.submitted(pipeline.file) as run:
        # After an epoch of its own: the recovery has tasks, too.
        run.wait_for_epoch(pipeline.table("append"), 2)
        lost = killed_at_work(pipeline, cluster, run)
        assert run.driver.wait(timeout=240) == 0, run.said[-3000:]
        assert f"Lost executor {lost} on" in run.said
        # By whichever comes first, the worker's end or the executor's.
        assert re.search(r"ExecutorLostFailure|while it was being computed, its executor exited", run.said)
    now = verdict(pipeline)
    assert now.held, now
    assert now.sinks["append"].rows == EPOCH * EPOCHS


def in_mid_epoch(pipeline: together.Together) -> bool:
    return verdict(pipeline).states[-1][1] != "done"


def killed_in_mid_epoch(pipeline: together.Together, run: Submitted) -> None:
    """SIGKILL to the driver, spark-submit and Python, while a task of an epoch is at work."""
    while True:
        run.wait_for_task()
        # Stopped, it can't finish the epoch before the kill.
        os.killpg(run.driver.pid, signal.SIGSTOP)
        if in_mid_epoch(pipeline):
            return kill_group(run.driver)
        os.killpg(run.driver.pid, signal.SIGCONT)


def killed_at_work(pipeline: together.Together, cluster: Cluster, run: Submitted) -> str:
    """SIGKILL to a worker, and to its executor, while that one is at a task of an epoch. Which executor it was."""
    while True:
        app, executor = run.wait_for_task()
        (worker,) = (each for each in cluster.workers if each.runs(app, executor))
        os.killpg(worker.process.pid, signal.SIGSTOP)
        # What it had said before it was stopped arrives while the driver answers: a task that is at work after ten
        # answers is at work when it dies.
        if {run.busy() for _ in range(10)} == {(app, executor)} and in_mid_epoch(pipeline):
            kill_group(worker.process)
            return executor
        os.killpg(worker.process.pid, signal.SIGCONT)
