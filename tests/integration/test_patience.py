"""A broker that goes away in the middle of a run, and comes back; or doesn't."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Lake, Topic, wait_until

from connector.lab.bench.broker import Broker


@pytest.fixture
def own() -> Iterator[Broker]:
    """A broker that a test may take down."""
    with Broker() as started:
        started.create_topic("flights", 1)
        yield started


def metrics(port: int) -> str:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())
    return ""


def lines(log: Path, event: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [each for each in found if each["event"] == event]


@pytest.mark.breadth
@pytest.mark.classic("the run is a process of its own")
def test_a_run_outlives_a_broker_that_is_away_and_ends_where_it_stays_away(
    own: Broker, spark: object, tmp_path: Path
) -> None:
    topic = Topic(own, "flights")
    lake = Lake(tmp_path, topic)
    quick = {
        "kafka": {
            "bootstrap.servers": own.bootstrap,
            "bootstrap.timeout.ms": "2000",
            "request.timeout.ms": "2000",
            "default.api.timeout.ms": "3000",
        }
    }
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = lake.file(
        source=quick,
        trigger={"interval": "1 second"},
        retry={"attempts": 3, "longest_wait": "2 seconds"},
        metrics={"port": port},
    )
    log = tmp_path / "run.log"
    topic.send_rows([("a", 0)])
    with log.open("wb") as said:
        command = [sys.executable, "-m", "connector", "run", str(file)]
        run = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
    try:
        wait_until(lambda: lines(log, "epoch") or run.poll() is not None, 120, "a first epoch")
        own.kill()
        wait_until(lambda: lines(log, "log") or run.poll() is not None, 120, "a first attempt that failed")
        tried_again = 'lakelock_retries_total{error="BrokerUnreachable",pipeline="append"}'
        wait_until(lambda: tried_again in metrics(port) or run.poll() is not None, 60, "the metrics to say so")
        own.start()
        topic.send_rows([("a", 1)])
        wait_until(lambda: len(lines(log, "epoch")) == 2 or run.poll() is not None, 120, "an epoch after that")
        assert run.poll() is None, log.read_text()
        assert 'lakelock_consecutive_failures{pipeline="append"} 0.0' in metrics(port)
        own.kill()
        retrying = 'lakelock_run_state{pipeline="append",state="retrying"} 1.0'
        wait_until(lambda: retrying in metrics(port) or run.poll() is not None, 120, "the state to be another")
        assert run.wait(180) == 1
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    told = [str(each["message"]) for each in lines(log, "log")]
    assert all("failed, the next is in" in each or "were not published" in each for each in told), told
    assert "attempt 2 of 3 failed" in told[-1]
    (error,) = lines(log, "error")
    assert error["error"] == "BrokerUnreachable"
    own.start()
    lake.spark = spark  # type: ignore[assignment]
    assert lake.rows() == [("a", 0), ("a", 1)]
