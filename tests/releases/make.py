"""What a release leaves behind, kept for those that come after it: ``python tests/releases/make.py NAME [CODE]``.

Three pipelines of one topic, in a folder that becomes ``NAME.tar.gz``: ``append.yaml`` and ``latest.yaml`` have moved
the first records, ``both.yaml`` was killed right after it had decided its second epoch. ``records.json`` are the
topic's records, the last of which nobody has read; ``topic_id`` is the id that the tables know the topic by. ``CODE``:
a checkout of the release, if it isn't this one. A kept file is never made again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import yaml
from kafka import KafkaAdminClient, KafkaProducer

from connector.lab.bench.broker import Broker

HERE = Path(__file__).parent
TOPIC = "readings"
READ, UNREAD = 12, 6
KEPT = {"retention.ms": "-1"}  # the records have times of their own, which pass
_RUN = """
import os, signal, sys
from connector import Pipeline
if len(sys.argv) == 3:
    import sinks.delta.metadata as metadata
    metadata._MUCH = 0  # as of a topic with thousands of partitions: packed
def kill(event):
    if sys.argv[1].startswith("both") and event.step.name == "DECIDED" and event.epoch.number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
Pipeline.from_file(sys.argv[1]).run(observers=[kill])
"""


def options(name: str, bootstrap: str) -> dict[str, object]:
    append = {"type": "delta_append", "path": f"lake/{name}"}
    latest = {"type": "delta_upsert", "path": f"lake/{name}", "key": "k"}
    found: dict[str, object] = {
        "name": name,
        "source": {"topics": [TOPIC], "kafka": {"bootstrap.servers": bootstrap}},
        "value": {"format": "json", "schema": "k STRING, n INT"},
        "epoch": {"max_records": READ // 2},
    }
    if name == "both":
        sinks = [{**append, "path": "lake/both_rows"}, {**latest, "path": "lake/both_latest"}]
        return {**found, "sinks": sinks, "coordinator": {"path": "lake/both_log"}}
    return {**found, "sinks": [append if name == "append" else latest]}


def records(first: int, count: int) -> list[tuple[int, str, str, int]]:
    """Partition, key, value, timestamp."""
    return [
        (number % 2, f"k{number % 4}", json.dumps({"k": f"k{number % 4}", "n": number}), 1_760_000_000_000 + number)
        for number in range(first, first + count)
    ]


def send(bootstrap: str, rows: list[tuple[int, str, str, int]], topic: str = TOPIC) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    for partition, key, value, timestamp in rows:
        producer.send(topic, value.encode(), key.encode(), partition=partition, timestamp_ms=timestamp)
    producer.flush()
    producer.close()


def make(folder: Path, code: Path, names: list[str], *, packed: bool) -> None:
    with Broker() as broker:
        broker.create_topic(TOPIC, 2, KEPT)
        send(broker.bootstrap, records(0, READ))
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        (topic,) = admin.describe_topics([TOPIC])
        admin.close()
        (folder / "topic_id").write_text(str(topic["topic_id"]))
        for name in names:
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(options(name, broker.bootstrap), sort_keys=False))
            command = [sys.executable, "-c", _RUN, f"{name}.yaml", *(["packed"] if packed else [])]
            done = subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(code)})
            assert done.returncode == (-9 if name == "both" else 0), done
        send(broker.bootstrap, records(READ, UNREAD))
    (folder / "records.json").write_text(json.dumps(records(0, READ + UNREAD)))


if __name__ == "__main__":
    name, code = sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else HERE.parents[1])
    several = any((code / "connector").rglob("coordinator.py"))
    with tempfile.TemporaryDirectory() as made:
        make(Path(made), code, ["append", "latest", *(["both"] if several else [])], packed="packed" in name)
        with tarfile.open(HERE / f"{name}.tar.gz", "x:gz") as kept:
            for file in sorted(Path(made).rglob("*")):
                if file.is_file() and "warehouse" not in file.parts:
                    kept.add(file, file.relative_to(made))
    print(f"{name}: {time.strftime('%Y-%m-%d')}, {(HERE / f'{name}.tar.gz').stat().st_size:,} bytes")
