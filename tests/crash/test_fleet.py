"""A folder of pipelines in one process that is killed again and again, with broken ones among them, and a broker that
is killed too."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from conftest import Topic, wait_until
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from connector.cli.app import app
from connector.lab.bench.broker import Broker
from connector.lab.bench.pipelines import SHORT_LIVED

GOOD, RECORDS, KILLS = 12, 2_000, 8
AWAY_SECONDS = 3.0
"""The fault itself: how long there is no broker."""
SCHEMA = "k STRING, n BIGINT"
SINKS = (
    {"type": "delta_append"},
    {"type": "delta_upsert", "key": "k"},
    {"type": "delta_aggregate", "group_by": "k", "aggregates": {"total": "sum(n)"}},
)


def written(folder: Path, broker: Broker, name: str, sink: Mapping[str, object], schema: str = SCHEMA) -> None:
    options = {
        "name": name,
        "source": {"topics": [name], "kafka": {"bootstrap.servers": broker.bootstrap}},
        "value": {"format": "json", "schema": schema},
        "epoch": {"max_records": 300},
        "sinks": [{**sink, "path": f"../lake/{name}"}],
        "spark": SHORT_LIVED,
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(options))


def sent(broker: Broker, name: str) -> Topic:
    broker.create_topic(name, 2)
    topic = Topic(broker, name)
    topic.send_rows((f"k{number % 97}", number) for number in range(RECORDS))
    return topic


def commits(lake: Path) -> int:
    return len(list(lake.glob("*/_delta_log/*.json")))


def away_for_a_moment(broker: Broker, lake: Path) -> None:
    broker.kill()
    time.sleep(AWAY_SECONDS)
    broker.start()
    before = commits(lake)
    wait_until(lambda: commits(lake) > before, 60, "a commit after the broker is back")


def started(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "connector", "run", str(folder), "--at-once", "3"]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


@pytest.mark.fleet
@pytest.mark.classic("its runs are processes of their own")
@pytest.mark.timeout(900)
def test_a_folder_of_pipelines_is_exact_after_kills_and_a_dead_broker(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    chance = random.Random(7)
    with Broker() as broker:
        good = [f"p{number}" for number in range(GOOD)]
        for number, name in enumerate(good):
            sent(broker, name)
            written(folder, broker, name, SINKS[number % len(SINKS)])
        (folder / "no_yaml.yaml").write_text("source: [")
        sent(broker, "misspelled")
        written(folder, broker, "misspelled", SINKS[0], "k STRING, nn BIGINT")
        sent(broker, "bad").send(("k", b"no JSON"), partition=0)
        written(folder, broker, "bad", SINKS[0])

        for round_ in range(KILLS):
            run = started(folder)
            time.sleep(chance.uniform(8, 20))
            if round_ == KILLS // 2:
                away_for_a_moment(broker, tmp_path / "lake")
                assert run.poll() is None, "the run outlives the broker"
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate()
        last = started(folder)
        said = last.communicate(timeout=400)[0].decode().splitlines()
        assert last.returncode == 1
        assert said[-1] == f"{GOOD + 3} pipelines: {GOOD} done, 1 failed, 2 refused; exit code 1."

        (folder / "no_yaml.yaml").unlink()
        (folder / "misspelled.yaml").unlink()
        assert not (tmp_path / "lake" / "misspelled").exists()
        verified = CliRunner().invoke(app, ["verify", "--json", str(folder)])
        assert verified.exit_code == 0, verified.stderr
        found = {each["pipeline"]: each for each in map(json.loads, verified.stdout.splitlines())}
        assert found.keys() == {*good, "bad"}
        for name in good:
            claimed = found[name]["claim"]["offsets"][name]
            assert sum(claimed.values()) == RECORDS, f"{name} has read everything"
