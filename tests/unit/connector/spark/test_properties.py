"""Starting a JVM, which a script plays: it tells what it ignores, and ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# In a process of its own: PySpark keeps the JVM that it has started.
STARTED = """
import contextlib, signal, subprocess, sys
from pyspark.errors import PySparkRuntimeError
from connector.spark.properties import start_jvm
with contextlib.suppress(PySparkRuntimeError):
    start_jvm({"spark.app.name": "x"}, debug="debug" in sys.argv)
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
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
