"""What can be found out of docker/ without Docker: files and names fit together, and its pipeline runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Store, wait_until

from connector.lab.bench.broker import Broker

DOCKER = Path(__file__).parents[2] / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
IMAGE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")


def test_images_are_pinned_and_files_are_there() -> None:
    stages = set(re.findall(r"^FROM .* AS ([\w-]+)$", IMAGE, flags=re.M))
    for name, service in COMPOSE["services"].items():
        if "build" in service:
            assert service["build"]["target"] in stages, name
            assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        else:
            assert re.fullmatch(r"[\w/-]+:v?\d+\.\d+\.\d+", service["image"]), name
        for volume in service.get("volumes", ()):
            assert (DOCKER / volume.split(":")[0]).exists(), volume
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{name} is open to the network"
        assert set(service.get("depends_on", ())) <= COMPOSE["services"].keys()
    for source in re.findall(r"^COPY (?!--from)(?:--\S+ )*(.+) \S+$", IMAGE, flags=re.M):
        for each in source.split():
            assert (DOCKER.parent / each).exists(), each


def test_the_job_runs_as_nobody_in_particular() -> None:
    job = IMAGE.split(" AS job\n")[1].split("\nFROM ")[0]
    assert "USER lakelock" in job
    assert not re.search(r"^USER root", job, flags=re.M)


@pytest.mark.breadth
@pytest.mark.spark4("S3A's conditional writes")
def test_the_pipeline_of_the_compose_file_runs(broker: Broker, s3: Store, tmp_path: Path) -> None:
    """The commands of ``prepare`` and ``connector``, on this machine."""
    environment = {**os.environ, "KAFKA": broker.bootstrap, "S3_ENDPOINT": s3.endpoint, "RECORDS": "2000"}
    told = [name for name in COMPOSE["x-job"]["environment"] if name not in environment]
    assert not told, "the test has to set them"
    prepared = [sys.executable, DOCKER / "prepare.py"]
    for sent in ("2,000 flights sent", ""):
        done = subprocess.run(prepared, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert sent in done.stdout
    run = subprocess.Popen(
        [sys.executable, "-m", "connector", "run", DOCKER / "pipeline.yaml"],
        env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert run.stderr is not None
        wait_until(lambda: '"epoch": 1' in run.stderr.readline(), seconds=120, what="the first epoch")
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 0
    finally:
        run.kill()
        broker.delete_topic("flights")
    found = s3.client.list_objects_v2(Bucket="lake", Prefix="latest_flights/_delta_log/")["Contents"]
    assert {Path(each["Key"]).name for each in found} >= {"00000000000000000000.json", "00000000000000000001.json"}


@pytest.mark.parametrize("file", sorted(DOCKER.rglob("*.y*ml")), ids=lambda file: file.name)
def test_every_file_is_valid_yaml(file: Path) -> None:
    assert yaml.safe_load(file.read_text(encoding="utf-8"))


@pytest.mark.spark4("the images have another Spark")
def test_the_images_have_the_versions_that_are_tested() -> None:
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", (DOCKER / "locks" / "notebooks.txt").read_text(), flags=re.M))
    for name in ("pyspark", "delta-spark", "deltalake"):
        assert pinned[name] == version(name)
    assert COMPOSE["services"]["s3"]["image"] == f"motoserver/moto:{pinned['moto']}"
