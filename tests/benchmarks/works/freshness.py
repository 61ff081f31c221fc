"""The time from a record's sending until it is in the table, with records that keep coming.

A process sends records at a steady rate, and each contender commits as often as it can: as a process of its own, one
epoch or trigger after another. When a record is in the table is read from the table's log, see `benchmarks.landed`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from pyspark.sql import functions as F

from benchmarks import commands, ours, streaming
from benchmarks.data import COLUMNS, Topic, check, content, latest_per_key, produce, read
from benchmarks.landed import Landings
from benchmarks.measure import OURS, Figures, Ratio, Run, Work, WrongResult, alternating
from benchmarks.session import measured_session
from benchmarks.sizes import PARTITIONS, Sizes
from benchmarks.stage import Stage, in_a_process
from benchmarks.streaming import TUNED
from benchmarks.tables import current, full_table, merging

FOLD = 50
"""Epochs between folds: Lakelock's default."""
LIMIT_SECONDS = 120.0


@dataclass(frozen=True)
class Contender:
    kind: str
    """append or upsert."""
    merge: str = "on_write"
    peer: bool = False

    def options(self, topic: Topic, folder: Path) -> dict[str, object]:
        table = folder / "table"
        sink = ours.append(table) if self.kind == "append" else ours.upsert(table, **merging(self.merge, FOLD))
        return ours.options(topic, "bench", sink, trigger={"interval": 0})

    def command(self, topic: Topic, folder: Path) -> list[str]:
        if self.peer:
            return commands.streaming(self.kind, topic, folder, endless=True)
        return commands.lakelock(ours.as_file(self.options(topic, folder), folder))


CONTENDERS = {
    f"{OURS}, append": Contender("append"),
    f"{OURS}, on_write": Contender("upsert"),
    f"{OURS}, on_read": Contender("upsert", "on_read"),
    f"{TUNED}, append": Contender("append", peer=True),
    f"{TUNED}, upsert": Contender("upsert", peer=True),
}


def prepared(contender: Contender, topic: Topic, folder: Path, keys: int) -> None:
    """The table, and one record in each partition: their commit says that the contender is ready."""
    with measured_session(folder, time.time()) as (spark, _):
        if contender.kind == "append":
            streaming.create(spark, folder, COLUMNS)
        else:
            full_table(spark, topic, folder, keys)
        produce(spark, topic, PARTITIONS, "id")


def judged(
    contender: Contender, topic: Topic, folder: Path, base: Path, begun: float, warm_up: int, landings: Landings
) -> Figures:
    """Compare the table with the topic, and find each record's wait. The records from ``begun`` on count, without those
    of the first ``warm_up`` seconds."""
    with measured_session(folder, time.time()) as (spark, _):
        rows = read(spark, topic)
        found = current(spark, contender.options(topic, folder), folder)
        if contender.kind == "append":
            check(found, content(rows))
        else:
            check(found, content(latest_per_key(spark.read.format("delta").load(str(base)).unionByName(rows))))
        sent = rows.select("_partition", "_offset", F.expr("unix_micros(_timestamp) / 1e6").alias("sent")).toPandas()
    first = sent["sent"][sent["sent"] >= begun].min()
    sent = sent[sent["sent"] >= first + warm_up]
    waits = np.concatenate(
        [
            landings.waits(int(number), of["_offset"].to_numpy(), of["sent"].to_numpy())
            for number, of in sent.groupby("_partition")
        ]
    )
    return {
        "p50_seconds": float(np.quantile(waits, 0.5)),
        "p99_seconds": float(np.quantile(waits, 0.99)),
        "highest_seconds": float(waits.max()),
        "records": len(waits),
        "commits": len(landings.read()),
    }


def once(stage: Stage, contender: Contender) -> Figures:
    sizes, topic = stage.sizes, stage.empty_topic("freshness")
    with stage.new_folder() as folder:
        in_a_process(prepared, contender, topic, folder, sizes.fresh_keys)
        base = folder / "base"
        subprocess.run(["cp", "-r", str(folder / "table"), str(base)], check=True)
        landings = Landings(folder / "table")
        with commands.running(contender.command(topic, folder), folder) as process:
            _wait(landings, [0] * PARTITIONS, process, folder)
            begun = time.time()
            _produce(topic, sizes)
            _wait(landings, [end - 1 for end in topic.ends()], process, folder)
            process.send_signal(signal.SIGTERM)
            process.wait(LIMIT_SECONDS)
        return in_a_process(judged, contender, topic, folder, base, begun, sizes.fresh_warm_up, landings)


def _produce(topic: Topic, sizes: Sizes) -> None:
    arguments = (PARTITIONS, sizes.fresh_keys, sizes.fresh_rate, sizes.fresh_warm_up + sizes.fresh_seconds)
    script = str(commands.SCRIPTS / "producer.py")
    done = subprocess.run(
        [sys.executable, script, topic.bootstrap, topic.name, *map(str, arguments)],
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise WrongResult(f"the producer failed: {done.stderr[-500:]}")


def _wait(landings: Landings, until: list[int], process: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until the table has these offsets."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while any(reached < offset for reached, offset in zip(landings.reached(), until, strict=True)):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the table has only {landings.reached()} of {until}: {commands.said(folder)}")
        time.sleep(0.2)


def measure(stage: Stage) -> list[Run]:
    return alternating({name: partial(once, stage, each) for name, each in CONTENDERS.items()}, stage.repetitions)


def _bounds(contender: str, p50: float, p99: float) -> tuple[Ratio, ...]:
    name = f"{OURS}, {contender}"
    return tuple(
        Ratio(f"{figure}, seconds, {contender}", (name, f"{figure}_seconds"), None, at_most=bound)
        for figure, bound in (("p50", p50), ("p99", p99))
    )


def _against(contender: str, peer: str) -> Ratio:
    return Ratio(
        f"p50 / {TUNED}, {contender}", (f"{OURS}, {contender}", "p50_seconds"), (f"{TUNED}, {peer}", "p50_seconds")
    )


WORK = Work(
    "freshness",
    "from a record's sending to the commit that has it, at a steady rate",
    "p50_seconds",
    (
        *_bounds("append", 0.7, 2.0),
        *_bounds("on_write", 2.5, 5.0),
        *_bounds("on_read", 0.7, 2.0),
        _against("append", "append"),
        _against("on_write", "upsert"),
        _against("on_read", "upsert"),
    ),
    measure,
)
