"""Whether a second worker of a Spark cluster doubles the records per second.

The cluster is a standalone one, a master and workers with one core each, all on this machine. As in `warm`, the third
of three equal epochs counts, because the executors' JVMs start with the first one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from conftest import wait_until
from standalone import standalone

from benchmarks.data import Content, Topic
from benchmarks.kinds import APPEND, UPSERT, Kind
from benchmarks.measure import Figures, Ratio, Run, Work, alternating
from benchmarks.session import measured_session
from benchmarks.sizes import PARTITIONS
from benchmarks.stage import Stage, in_a_process
from benchmarks.works.warm import EPOCHS, lakelock

ONE, TWO = "1 worker", "2 workers"
KINDS = (APPEND, UPSERT)


def settings(master: str) -> Mapping[str, str]:
    return {
        "spark.master": master,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "1g",
        "spark.pyspark.python": sys.executable,
        "spark.ui.enabled": "false",
        # The same for every number of workers, and enough for both to have the same share.
        "spark.sql.shuffle.partitions": str(PARTITIONS),
    }


def third(
    kind: Kind, workers: int, master: str, topic: Topic, folder: Path, records: int,
    should: Mapping[str, Content], begun: float,
) -> Figures:  # fmt: skip
    with measured_session(folder, begun, settings(master)) as (spark, _):
        executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus  # the driver is one of them
        wait_until(lambda: executors().size() > workers, 120, f"{workers} executors")
        seconds = lakelock(kind, spark, topic, folder, records)
        kind.check(spark, folder, should)
    return {"records_per_second": records / seconds[2], "epoch_seconds": seconds[2], "first_seconds": seconds[0]}


def measure(stage: Stage) -> list[Run]:
    sizes = stage.sizes
    topic, should = stage.topic(sizes.records * EPOCHS, sizes.keys)

    def once(kind: Kind, workers: int) -> Figures:
        with stage.new_folder() as folder, standalone(folder, workers=workers, memory="1536m") as cluster:
            return in_a_process(third, kind, workers, cluster.master, topic, folder, sizes.records, should, time.time())

    contenders = {
        f"{name}, {kind.name}": partial(once, kind, workers) for kind in KINDS for name, workers in ((ONE, 1), (TWO, 2))
    }
    return alternating(contenders, stage.repetitions)


WORK = Work(
    "cluster",
    "records per second on a Spark cluster, with one worker and with two",
    "records_per_second",
    tuple(
        Ratio(
            f"speed, 2 workers / 1, {kind.name}",
            (f"{TWO}, {kind.name}", "records_per_second"),
            (f"{ONE}, {kind.name}", "records_per_second"),
            at_least=1.8,
        )
        for kind in KINDS
    ),
    measure,
)
