"""A run that is disturbed again and again, watched through its metrics alone: they name every fault, and no other."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import Lake, Topic, wait_until
from prometheus_client.parser import text_string_to_metric_families
from sent import Sent, receiver

from connector.audit import audit
from connector.config import load
from connector.lab.bench.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STUCK_SECONDS = 45.0
"""With records to commit, no failure and no epoch, or without a look: longer than an epoch takes on a busy machine, and
than a run waits for a broker that is away, twice 10 s: to publish the group's offsets, and to look."""


def samples(text: str) -> dict[str, float]:
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {
        " ".join([each.name.removeprefix("lakelock_"), *(v for k, v in each.labels.items() if k != "pipeline")]): (
            each.value
        )
        for each in found
    }


@dataclass
class Watcher:
    """Knows a port and a Pushgateway. Its rules are those of docker/alerts.yml, with the patience of a test."""

    port: int
    gateway: Sent
    last: dict[str, float] = field(default_factory=dict)
    epochs_at: float = field(default_factory=time.monotonic)
    pushed: int = 0

    def scraped(self) -> dict[str, float] | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
                return samples(answer.read().decode())
        except OSError:
            return None

    def look(self) -> set[str]:
        """What is wrong since the last look."""
        found = self.scraped()
        pushes, self.pushed = self.gateway.requests[self.pushed :], len(self.gateway.requests)
        if any(samples(each.body.decode()).get("run_state fenced") for each in pushes):
            return {"fenced"}
        if found is None:
            self.last = {}
            return {"down"}
        wrong = set()
        for counter, name in (("dead_letters_total", "bad record"), ("offsets_lost_total", "data lost")):
            if found.get(counter, 0) > self.last.get(counter, 0):
                wrong.add(name)
        if found.get("consecutive_failures", 0) > 0:
            wrong |= {each for each in found if each.startswith("last_error ")}
        now = time.monotonic()
        if found.get("epochs_total") != self.last.get("epochs_total") or not found.get("behind_offsets"):
            self.epochs_at = now
        elif now - self.epochs_at > STUCK_SECONDS and not wrong:
            wrong.add("no commits")
        if time.time() - found.get("last_look_timestamp_seconds", time.time()) > STUCK_SECONDS:
            wrong.add("no commits")
        self.last = found
        return wrong

    def first(self, seconds: float) -> set[str]:
        """What is wrong as soon as anything is; nothing if nothing is for so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if wrong := self.look():
                return wrong
            time.sleep(0.2)
        return set()

    def well(self) -> bool:
        """An epoch more, nothing left to commit, nothing wrong."""
        before = self.last.get("epochs_total", 0)
        return not self.look() and self.last.get("epochs_total", 0) > before and not self.last.get("behind_offsets")


class Disturbed:
    def __init__(self, folder: Path, broker: Broker, file: Path, topic: Topic) -> None:
        self.broker, self.file, self.topic = broker, file, topic
        self.log = folder / "run.log"
        self.sent = self.bad = self.lost = 0
        self.run = self.start()

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as said:
            command = [sys.executable, "-m", "connector", "run", str(self.file), *options]
            return subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)

    def send(self, count: int = 1) -> None:
        self.topic.send_rows((f"k{self.sent}", self.sent + n) for n in range(count))
        self.sent += count

    # Each does its harm, waits at ``yield`` until it was found, and mends it.

    @contextmanager
    def bad_record(self) -> Iterator[None]:
        self.topic.send(("b", b"{"))
        self.bad += 1
        yield

    @contextmanager
    def retention(self) -> Iterator[None]:
        java = self.stopped()  # or it would be quicker
        self.topic.send_rows([("gone", 0)] * 3)
        self.lost += 3
        self.topic.delete_before(0, self.sent + self.bad + self.lost)
        os.kill(java, signal.SIGCONT)
        yield

    @contextmanager
    def broker_away(self) -> Iterator[None]:
        self.broker.kill()
        yield
        self.broker.start()

    @contextmanager
    def killed(self) -> Iterator[None]:
        os.killpg(self.run.pid, signal.SIGKILL)
        self.run.wait()
        yield
        self.run = self.start()

    @contextmanager
    def replaced(self) -> Iterator[None]:
        os.killpg(self.run.pid, signal.SIGSTOP)
        self.send()
        other = self.start("--set", "trigger=available_now", "--set", "metrics=null")
        assert other.wait(120) == 0
        os.killpg(self.run.pid, signal.SIGCONT)
        yield
        self.run.wait(60)
        self.run = self.start()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        java = self.stopped()
        self.send(5)
        yield
        os.kill(java, signal.SIGCONT)

    def stopped(self) -> int:
        """The run's JVM, once none of its threads goes on."""
        children = subprocess.run(["pgrep", "-P", str(self.run.pid)], capture_output=True, text=True, check=True)
        java = int(children.stdout.split()[0])
        os.kill(java, signal.SIGSTOP)

        def halted() -> bool:
            states = subprocess.run(["ps", "-L", "-o", "state=", "-p", str(java)], capture_output=True, text=True)
            return set(states.stdout.split()) == {"T"}

        wait_until(halted, 10, "the JVM to be stopped")
        return java


FAULTS: dict[str, tuple[Callable[[Disturbed], object], set[str]]] = {
    "a bad record": (Disturbed.bad_record, {"bad record"}),
    "retention": (Disturbed.retention, {"data lost"}),
    "the broker is away": (Disturbed.broker_away, {"last_error BrokerUnreachable"}),
    "kill -9": (Disturbed.killed, {"down"}),
    "another run": (Disturbed.replaced, {"fenced"}),
    "Spark hangs": (Disturbed.hanging, {"no commits"}),
}


@pytest.fixture
def own() -> Iterator[Broker]:
    """A broker that a test may take down."""
    with Broker() as started:
        started.create_topic("flights", 1)
        yield started


@pytest.mark.watched
def test_every_fault_is_found_in_the_metrics_alone(own: Broker, spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path, Topic(own, "flights"), spark)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    order = random.sample(list(FAULTS), len(FAULTS))
    print("in this order:", order)
    with receiver() as gateway:
        file = lake.file(
            source={
                "kafka": {
                    "bootstrap.servers": own.bootstrap,
                    "request.timeout.ms": "3000",
                    "default.api.timeout.ms": "4000",
                },
                "on_data_loss": "continue",
            },
            on_bad_record="dead_letter",
            dead_letters={"path": str(tmp_path / "letters")},
            trigger={"interval": "0.5 seconds"},
            retry={"attempts": 1000, "longest_wait": "1 second"},
            metrics={"port": port, "push": gateway.url},
        )
        it = Disturbed(tmp_path, own, file, lake.topic)
        watcher = Watcher(port, gateway)
        try:
            for name in order:
                it.send()
                wait_until(watcher.well, 120, f"all to be well before: {name}")
                assert watcher.first(1) == set(), f"all is well before: {name}"
                disturb, told = FAULTS[name]
                with disturb(it):
                    assert watcher.first(120) == told, name
            it.send()
            wait_until(watcher.well, 120, "all to be well in the end")
            it.run.send_signal(signal.SIGTERM)
            assert it.run.wait(60) == 0
            # The epoch that was waited for may be one of what waited before the last record.
            assert it.start("--set", "trigger=available_now").wait(120) == 0
        finally:
            it.run.kill()
            print(it.log.read_text()[-5000:])
    found = audit(load(file))
    assert found.ok
    assert [number for _, number in sorted(lake.rows(), key=lambda row: row[1])] == list(range(it.sent))
    assert sum(gap.end - gap.start for gap in found.claim.lost) == it.lost
