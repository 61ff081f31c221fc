"""In somebody's own Spark session, with Spark's own log: Lakelock's questions leave no stack traces there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Lake, Topic

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from connector.spark import jars
from connector.spark.session import DELTA
from lakelock import LakelockError, Pipeline

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.extraClassPath", ":".join(map(str, (*jars.find("spark"), *jars.own()))))
for name, value in DELTA.items():
    if "logStore" not in name:
        builder = builder.config(name, value)
builder.getOrCreate()
pipeline = Pipeline.from_file(sys.argv[1])
checked, shown = pipeline.check(), pipeline.preview()
print(pipeline.status().position, len(pipeline.history()), checked.sinks[0].exists, len(shown.faults))
try:
    pipeline.verify()
except LakelockError as error:
    print(type(error).__name__)
pipeline.run()
print(pipeline.status().position.epoch, len(pipeline.history()), pipeline.snapshot().epoch, pipeline.verify().ok)
"""


@pytest.mark.classic("its session is one of its own")
@pytest.mark.breadth
def test_a_table_that_is_not_there_yet_leaves_no_stack_trace(lake: Lake, topic: Topic, tmp_path: Path) -> None:
    topic.send_rows([("a", 1), ("b", 2)])
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program, lake.file(sink={"path": "lake/new"})],
        capture_output=True, text=True, cwd=tmp_path, timeout=180, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["None 0 False 0", "NotADeltaTable", "1 1 1 True"], done.stderr
    traces = [
        line for line in done.stderr.splitlines() if line.startswith(("\tat ", "java.", "Traceback")) or '"msg"' in line
    ]
    assert traces == [], done.stderr
