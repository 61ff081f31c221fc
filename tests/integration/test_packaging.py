"""Wheel and sdist: what is in them, and that they work in an environment of their own, away from the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import Lake, Topic

from connector.spark import jars

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, and the wheel that was made of it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT], check=True, capture_output=True
    )
    return folder


@pytest.fixture(scope="module")
def python(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a new environment with the wheel. What it depends on is lent by this one: to fetch Spark takes minutes."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel], check=True
    )
    (site,) = folder.glob("lib/python*/site-packages")
    # Paths in such a file are taken as they are: the editable install in there isn't found.
    (site / "lent.pth").write_text(sysconfig.get_path("purelib"))
    return python


def told(python: Path, *command: str | Path) -> str:
    """What a command of the new environment says, started where no checkout is, and without a path to one."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [python.parent / command[0], *command[1:]], cwd="/", env=clean, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_but_the_three_packages_lands_in_site_packages(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"lakelock", "connector", "sinks", "lakelock-0.2.0.dist-info"}
    for needed in (
        "lakelock/py.typed",
        "connector/py.typed",
        "sinks/py.typed",
        "connector/cli/pipeline.yaml",
        "connector/examples/word_count.yaml",
        "connector/spark/jars/spark-4.1.xml",
        "connector/spark/jars/spark-4.2.sha256",
        "connector/spark/jars/s3-4.2.sha256",
        "connector/spark/jars/spark-3.5.sha256",
        "connector/spark/jars/kafka.sha256",
        "connector/spark/log4j2.properties",
        "connector/ui/templates/pipelines.html",
        "connector/display/templates/base.html",
        "connector/display/static/style.css",
        "connector/lab/show/templates/matrix.html",
        "connector/lab/show/templates/filter.js",
        "connector/ui/static/refresh.js",
    ):
        assert needed in names
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        kept = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {"connector", "sinks", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= kept
    assert not kept & {"tests", "docs", "notebooks", ".venv"}


@pytest.mark.breadth
def test_a_pipeline_of_options_in_python_needs_nothing_but_the_wheel(python: Path) -> None:
    program = """
import lakelock
from lakelock.options import Text
source = lakelock.Kafka(topics=("t",), kafka={"bootstrap.servers": "127.0.0.1:9092"})
print(lakelock.Pipeline(name="p", source=source, value=Text(), sinks=[lakelock.Append(path="lake/t")]).to_yaml())
print(lakelock.__file__)
"""
    said = told(python, "python", "-c", program)
    assert said.startswith("name: p\nsource:\n  topics: [t]\n")
    assert str(python.parents[1]) in said


def test_the_command_works_away_from_the_checkout(python: Path, tmp_path: Path) -> None:
    assert told(python, "lakelock", "--version") == "lakelock 0.2.0\n"
    assert json.loads(told(python, "lakelock", "schema"))["title"] == "A Lakelock pipeline"
    written = tmp_path / "pipeline.yaml"
    told(python, "lakelock", "init", written)
    assert "lakelock run" in written.read_text()


def test_the_metadata_names_pythons_and_extras(python: Path) -> None:
    program = "from importlib.metadata import metadata as m; d = m('lakelock'); "
    program += "print(d['Requires-Python'], *d.get_all('Provides-Extra'), *d.get_all('Classifier'))"
    said = told(python, "python", "-c", program)
    assert said.startswith(">=3.10")
    extras = ("s3", "avro", "protobuf", "telemetry", "ui", "notebooks", "dev")
    for named in (*extras, *(f"Python :: 3.{minor}" for minor in range(10, 14))):
        assert named in said


@pytest.mark.breadth
@pytest.mark.classic("its runs are processes of their own")
def test_it_runs_a_pipeline_away_from_the_checkout(python: Path, lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1), ("b", 2)])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["LAKELOCK_JARS"] = str(jars.folder("spark").parent)
    lakelock = python.parent / "lakelock"
    done = subprocess.run(
        [lakelock, "run", lake.file()], cwd=lake.folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "1 epoch, 2 rows" in done.stdout
    assert str(python.parents[1]) in told(python, "python", "-c", "import connector; print(connector.__file__)")
    assert lake.rows() == [("a", 1), ("b", 2)]
