"""What each delivery costs: records per second and the time of one batch, side by side in one run.

One broker, one topic, one warm Spark session; the same bound on a batch for every delivery, so that each makes the same
number of Delta commits. Rounds alternate. Every table is counted: a fast wrong result ends the benchmark.
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
from rich.table import Table

from connector import Pipeline
from connector.lab.broker import Broker
from connector.lab.data import produce
from connector.protocol.steps import Event, Step
from connector.spark import session

WAYS = [
    ("append", "auto_commit", {}),
    ("append", "manual_commit", {}),
    ("append", "transactional", {}),
    ("upsert", "auto_commit", {}),
    ("upsert", "manual_commit", {}),
    ("upsert", "idempotent", {}),
    ("upsert", "transactional", {}),
]
KEYS = 5_000
progress = Console(stderr=True, highlight=False)


class Batches:
    """An observer that times each batch: from one batch's end to the next's, so all that it costs is in it."""

    def __init__(self) -> None:
        self._last: float | None = None
        self.seconds: list[float] = []

    def __call__(self, event: Event) -> None:
        if event.step is Step.RESUMED and self._last is None:
            self._last = time.perf_counter()
        if event.step is self._end(event) and event.epoch.ranges and self._last is not None:
            now = time.perf_counter()
            self.seconds.append(now - self._last)
            self._last = now

    def _end(self, event: Event) -> Step:
        return Step.COMMITTED if event.epoch.delivery == "auto_commit" else Step.OFFSETS_COMMITTED


def run(broker: Broker, topic: str, folder: Path, kind: str, delivery: str, options: dict[str, object]) -> Batches:
    sink: dict[str, object] = {"type": f"delta_{kind}", "path": str(folder / "table")}
    if kind == "upsert":
        sink["key"] = "k"
    batches = Batches()
    Pipeline.from_options(
        {
            "name": f"bench_{folder.name}",
            "delivery": delivery,
            "source": {
                "topics": [topic],
                "kafka": {"bootstrap.servers": broker.bootstrap, "auto.commit.interval.ms": "1000"},
            },
            "value": {"format": "json", "schema": "k STRING, n INT, note STRING"},
            "sinks": [sink],
            **options,
        }
    ).run(observers=[batches])
    return batches


def check(spark: SparkSession, folder: Path, kind: str, records: int) -> None:
    rows = spark.read.format("delta").load(str(folder / "table"))
    found, expected = rows.count(), records if kind == "append" else min(KEYS, records)
    if found != expected:
        raise SystemExit(f"WRONG RESULT: {kind}: {found} rows, and should be {expected}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=10_000, help="records in a batch, in every delivery")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--single", type=int, default=20, help="records to commit one by one")
    parser.add_argument("--only", nargs="*", default=[], help="only these deliveries")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    ways = [(*way[:2], {"epoch": {"max_records": options.batch}}, options.records) for way in WAYS]
    single = {"commit_every": "record"}
    ways += [(kind, "manual_commit", single, options.single) for kind in ("append", "upsert")]
    ways = [way for way in ways if not options.only or way[1] in options.only]
    seconds: dict[tuple[str, str, str], list[float]] = {}
    latency: dict[tuple[str, str, str], list[float]] = {}
    with Broker() as broker, session({}, name="benchmark") as spark, tempfile.TemporaryDirectory() as place:
        topics = {}
        for count in {way[3] for way in ways}:
            topics[count] = f"t{count}"
            broker.create_topic(topics[count], 4)
            values = (
                (f"k{n % KEYS}".encode(), json.dumps({"k": f"k{n % KEYS}", "n": n, "note": "x" * 40}).encode())
                for n in range(count)
            )
            produce(broker.bootstrap, topics[count], values)
        for number in range(-1, options.repeat):  # the first is for warming up
            for kind, delivery, changes, count in ways if number % 2 else reversed(ways):
                folder = Path(place) / f"{number + 1}-{kind}-{delivery}-{count}"
                label = (kind, delivery, "one record" if "commit_every" in changes else "batch")
                batches = run(broker, topics[count], folder, kind, delivery, changes)
                check(spark, folder, kind, count)
                progress.print(f"round {number}: {label}: {sum(batches.seconds):.1f} s, {len(batches.seconds)} commits")
                if number >= 0:
                    seconds.setdefault(label, []).append(count / sum(batches.seconds))
                    latency.setdefault(label, []).append(statistics.median(batches.seconds))
    out = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    table = Table(box=None, pad_edge=False)
    for heading in ("sink", "delivery", "commits per", "records/s", "batch, s", "rounds, s", "batch / manual_commit"):
        table.add_column(heading)
    listed = []
    for label, rates in seconds.items():
        base = latency.get((label[0], "manual_commit", "batch"))
        median = statistics.median(latency[label])
        ratio = median / statistics.median(base) if base else float("nan")
        rounds = " ".join(f"{each:.2f}" for each in latency[label])
        table.add_row(*label, f"{statistics.median(rates):,.0f}", f"{median:.2f}", rounds, f"{ratio:.2f}")
        listed.append({"label": label, "records_per_second": rates, "batch_seconds": latency[label], "ratio": ratio})
    out.print(table)
    if options.json:
        options.json.write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
