"""Starting a JVM, which a script plays: it tells what it ignores, and ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from connector.spark import java, properties

# In a process of its own: PySpark keeps the JVM that it has started.
STARTED = """
import contextlib, os, signal, subprocess, sys
from pyspark.errors import PySparkRuntimeError
from connector.spark.properties import start_jvm
before = dict(os.environ)
with contextlib.suppress(PySparkRuntimeError):
    start_jvm({"spark.app.name": "x"}, debug="debug" in sys.argv)
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
assert dict(os.environ) == before
print(subprocess.run(["sh", "-c", "kill -TERM $$"], preexec_fn=lambda: None).returncode)
"""


@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_a_signal_to_the_whole_group_is_not_the_jvms(name: str, tmp_path: Path) -> None:
    jvm = tmp_path / "bin" / "spark-submit"
    jvm.parent.mkdir()
    jvm.write_text(f"#!/bin/sh\nkill -{name} $$\necho lives > {tmp_path / 'jvm'}\nexit 3\n", encoding="utf-8")
    jvm.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", STARTED],
        env={**os.environ, "SPARK_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (tmp_path / "jvm").read_text() == "lives\n"
    # This process, and what else it starts, are ended by it as ever.
    assert done.stdout.split() == [str(-signal.SIGTERM)]


NOISE = "WARNING: Using incubator modules: jdk.incubator.vector"


@pytest.mark.parametrize("arguments", [[], ["debug"]])
def test_what_the_jvm_says_is_passed_on_but_for_the_warning_at_every_start(
    arguments: list[str], tmp_path: Path
) -> None:
    jvm = tmp_path / "bin" / "spark-submit"
    jvm.parent.mkdir()
    said = "\n".join(["Picked up JAVA_TOOL_OPTIONS: -Dx", NOISE, "WARNING: a real one", "without an end of line"])
    jvm.write_text(f"#!/bin/sh\nprintf '%s' '{said}' >&2\nexit 3\n", encoding="utf-8")
    jvm.chmod(0o755)
    # A thread passes on what the JVM wrote, also after its end.
    ended = "\nimport threading\nfor each in threading.enumerate()[1:]:\n    each.join(30)\n"
    done = subprocess.run(
        [sys.executable, "-c", STARTED.rstrip() + ended, *arguments],
        env={**os.environ, "SPARK_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    expected = said if arguments else said.replace(f"{NOISE}\n", "")
    assert done.stderr.strip() == expected


def launcher_options(folder: Path, **environment: str) -> str:
    """What the scripts of a Spark in this folder get as options of the launcher."""
    jvm = folder / "bin" / "spark-submit"
    jvm.parent.mkdir()
    jvm.write_text(
        f"#!/bin/sh\nprintf '%s' \"$SPARK_LAUNCHER_OPTS\" > {folder / 'options'}\nexit 3\n", encoding="utf-8"
    )
    jvm.chmod(0o755)
    inherited = {
        name: value for name, value in os.environ.items() if name not in (*java._OUTSIDE, properties._LAUNCHER)
    }
    env = {**inherited, "SPARK_HOME": str(folder), **environment}
    subprocess.run([sys.executable, "-c", STARTED], env=env, capture_output=True, text=True, check=True)
    return (folder / "options").read_text()


@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ({}, java.QUICK_START),
        ({"SPARK_LAUNCHER_OPTS": "-Xmx1g"}, "-Xmx1g"),
        ({"JAVA_TOOL_OPTIONS": "-XX:+UseG1GC"}, ""),
    ],
)
def test_the_launcher_is_quick_unless_the_environment_chooses(
    environment: dict[str, str], options: str, tmp_path: Path
) -> None:
    assert launcher_options(tmp_path, **environment) == options


@pytest.mark.parametrize(
    ("there", "given", "told"),
    [
        (["jars"], None, True),
        (["jars"], "/opt/spark", False),
        ([], None, False),  # a client of Spark Connect
        (["jars", "spark-distribution"], None, False),
    ],
)
def test_the_scripts_are_told_where_spark_is(
    there: list[str], given: str | None, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in there:
        (tmp_path / name).mkdir()
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    if given is not None:
        monkeypatch.setenv("SPARK_HOME", given)
    assert properties._sooner().get("SPARK_HOME") == (str(tmp_path) if told else None)


def test_the_scripts_would_find_the_same_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    script = Path(pyspark.__file__).with_name("find_spark_home.py")
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert properties._sooner()["SPARK_HOME"] == found.stdout.strip()
