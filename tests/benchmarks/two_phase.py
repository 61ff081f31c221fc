"""What two-phase commit costs: two tables that move together, against the same two written by a pipeline each.

One broker, one topic, one warm Spark session; epochs of the same size, alternating rounds. Every table is counted and
compared by its sums: a fast wrong result ends the benchmark.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from connector import Pipeline
from connector.lab.broker import Broker
from connector.lab.data import produce
from connector.protocol.steps import Event, Step
from connector.spark import session

KEYS = 20_000
progress = Console(stderr=True, highlight=False)


class Timer:
    """An observer that times each epoch, from the end of one to the end of the next, and each step of it."""

    def __init__(self) -> None:
        self.started = self._last = time.perf_counter()
        self.epochs: list[float] = []
        self.steps: dict[str, list[float]] = {}

    def __call__(self, event: Event) -> None:
        now = time.perf_counter()
        if event.step is Step.RESUMED:
            self.started = now
        self.steps.setdefault(event.step.value, []).append(now - self._last)
        self._last = now
        if event.step is Step.COMMITTED:
            self.epochs.append(now - self.started)
            self.started = now


def run(broker: Broker, folder: Path, sinks: list[str], epoch: int) -> Timer:
    options = [{"type": f"delta_{sink}", "path": str(folder / sink)} for sink in sinks]
    for sink in options:
        if sink["type"] == "delta_upsert":
            sink["key"] = "k"
    timer = Timer()
    Pipeline.from_options(
        {
            "name": f"bench_{folder.name}_{'_'.join(sinks)}",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": broker.bootstrap}},
            "value": {"format": "json", "schema": "k STRING, n INT, note STRING"},
            "epoch": {"max_records": epoch},
            "sinks": options,
            **({"coordinator": {"path": str(folder / "log")}} if len(sinks) > 1 else {}),
        }
    ).run(observers=[timer])
    return timer


def check(spark: SparkSession, folder: Path, records: int) -> None:
    wanted = {
        "append": (records, records * (records - 1) // 2),
        "upsert": (KEYS, sum(range(records - KEYS, records))),
    }
    for sink, expected in wanted.items():
        found = spark.read.format("delta").load(str(folder / sink)).selectExpr("count(*)", "sum(n)").first()
        if found is None or tuple(found) != expected:
            raise SystemExit(f"WRONG RESULT: {sink}: {found}, and should be {expected}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epoch", type=int, default=100_000, help="records in an epoch")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--steps", action="store_true", help="show where the time goes")
    options = parser.parse_args()
    records = options.epoch * options.epochs
    with Broker() as broker, session({}, name="benchmark") as spark, tempfile.TemporaryDirectory() as place:
        broker.create_topic("t", 4)
        values = (
            (f"k{n % KEYS}".encode(), json.dumps({"k": f"k{n % KEYS}", "n": n, "note": "x" * 40}).encode())
            for n in range(records)
        )
        produce(broker.bootstrap, "t", values)
        apart: list[float] = []
        together: list[float] = []
        for number in range(-1, options.repeat):  # the first is for warming up
            for way in ("apart", "together") if number % 2 else ("together", "apart"):
                folder = Path(place) / f"{number + 1}_{way}"
                if way == "apart":
                    timers = [run(broker, folder, [sink], options.epoch) for sink in ("append", "upsert")]
                else:
                    timers = [run(broker, folder, ["append", "upsert"], options.epoch)]
                check(spark, folder, records)
                # The first epoch of a run finds everything cold.
                seconds = sum(statistics.median(timer.epochs[1:]) for timer in timers)
                progress.print(f"round {number}: {way}: {seconds:.2f} s an epoch")
                if options.steps:
                    for timer in timers:
                        shown = {step: round(statistics.median(each), 2) for step, each in timer.steps.items()}
                        progress.print(f"  {shown}")
                if number >= 0:
                    (apart if way == "apart" else together).append(seconds)
    out = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    out.print(f"two pipelines, one table each  {statistics.median(apart):.2f} s an epoch  {apart}")
    out.print(f"one pipeline, two-phase        {statistics.median(together):.2f} s an epoch  {together}")
    out.print(f"ratio of the medians           {statistics.median(together) / statistics.median(apart):.2f}")


if __name__ == "__main__":
    main()
