"""The shipped example, killed: Kafka -> split -> sum, and every word counts once."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from importlib.resources import files
from pathlib import Path

import yaml
from conftest import Topic

from connector import Pipeline
from connector.lab.faults import Moment, wait_for
from connector.lab.pipelines import SHORT_LIVED


def test_the_word_count_is_exact_after_crashes(topic: Topic, tmp_path: Path) -> None:
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
    for version, moment in ((2, Moment.MID_WRITE), (3, Moment.AFTER_COMMIT)):
        run = subprocess.Popen([sys.executable, "-m", "connector", "run", str(file)], start_new_session=True)
        assert wait_for(moment, table, version, going_on=lambda run=run: run.poll() is None)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    Pipeline.from_options(options).run()
    from deltalake import DeltaTable, QueryBuilder

    sql = "SELECT word, count FROM t"
    found = QueryBuilder().register("t", DeltaTable(str(table))).execute(sql).read_all()
    counts = zip(*(column.to_pylist() for column in found.columns), strict=True)
    assert dict(counts) == Counter(word for line in lines for word in line.split())
