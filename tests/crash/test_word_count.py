"""The shipped example, killed: Kafka -> split -> sum, and every word counts once."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest
import yaml
from another_engine import query
from conftest import Topic

from connector import Pipeline
from connector.lab.bench.faults import Moment, wait_for
from connector.lab.bench.pipelines import SHORT_LIVED


@pytest.mark.kills
@pytest.mark.parametrize(
    "moments", [[Moment.MID_WRITE], [Moment.MID_WRITE, Moment.AFTER_COMMIT]], ids=["once", "twice"]
)
def test_the_word_count_is_exact_after_crashes(moments: list[Moment], topic: Topic, tmp_path: Path) -> None:
    chance = random.Random(5)
    lines = [
        " ".join(chance.choices(["to", "be", "or", "not", "that", "is", "the", "question"], k=9)) for _ in range(3000)
    ]
    topic.send(*((None, {"line": line}) for line in lines))
    options = yaml.safe_load(files("connector").joinpath("examples", "word_count.yaml").read_text())
    table = tmp_path / "word_count"
    options["source"] = {"topics": [topic.name], "kafka": {"bootstrap.servers": topic.broker.bootstrap}}
    options["sinks"][0]["path"] = str(table)
    file = tmp_path / "word_count.yaml"
    small = {"epoch": {"max_records": 500}, "spark": SHORT_LIVED}
    file.write_text(yaml.safe_dump({**options, **small}))
    for version, moment in enumerate(moments, start=2):
        run = subprocess.Popen([sys.executable, "-m", "connector", "run", str(file)], start_new_session=True)
        assert wait_for(moment, table, version, going_on=lambda run=run: run.poll() is None)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    Pipeline.from_options(options).run()
    assert dict(query(table, "SELECT word, count FROM t")) == Counter(word for line in lines for word in line.split())
