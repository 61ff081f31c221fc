"""The demo: flights move through a broker into two tables, each pipeline is killed once, and the rows are counted.

The count shares no code with the pipelines: it reads the CSV itself, and the tables with delta-rs.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from connector.lab.bench.broker import Broker
from connector.lab.bench.data import FLIGHTS_SCHEMA, flight_key, flight_value, flights, flights_csv, produce
from connector.lab.bench.faults import Moment, kill_group, wait_for
from sinks.errors import ConfigurationError, LakelockError
from sinks.plurals import plural

FLIGHTS = 336_776
EPOCH = 100_000
KILLED_VERSION = 2
"""This version is the second epoch, because version 0 created the table."""
_MARK = "made-by-lakelock-demo"

Row = tuple[object, ...]


def demo(lake: Path, data: Path | None, out: Console) -> bool:
    """Run the demo. Returns whether both tables are exact. Raises `LakelockError` if a step can't run.

    ``lake``: the folder of tables and pipeline files; ``data``: the broker's folder, None for a temporary one.
    """
    started = time.monotonic()
    _make_room(lake)
    with Broker(data) as broker:
        out.rule("1  A Kafka broker")
        out.print(f"one JVM, KRaft, bootstrap.servers {broker.bootstrap}")
        topic = _fresh_topic(broker)
        out.rule("2  The flights of 2013 from New York, as JSON")
        sent = _produce(broker, topic, out)
        files = {
            name: _write_pipeline(lake, name, topic, broker.bootstrap, sink)
            for name, sink in {
                "flights": "{type: delta_append, path: %s}",
                "latest_flights": "{type: delta_upsert, path: %s, key: [carrier, flight]}",
            }.items()
        }
        for number, (name, file) in enumerate(files.items(), start=3):
            out.rule(f"{number}  Pipeline {name}: run, kill -9 in mid-epoch, run again")
            _run_and_kill(file, lake / name, out)
            _run(file)
    out.rule("5  Counted against the CSV")
    exact = _report(sent, lake, out)
    out.print(f"[bold]{'exact' if exact else 'NOT EXACT'}[/], {time.monotonic() - started:.0f} s in all")
    return exact


def _make_room(lake: Path) -> None:
    """Remove the tables of an earlier demo. Tables that no demo made stay, and raise `ConfigurationError`."""
    there = [name for name in ("flights", "latest_flights") if (lake / name).exists()]
    if there and not (lake / _MARK).exists():
        raise ConfigurationError(
            f"{lake / there[0]} exists, and no demo made it. The demo doesn't replace it.",
            hint="Choose another folder with --lake.",
        )
    for name in there:
        shutil.rmtree(lake / name)
    lake.mkdir(parents=True, exist_ok=True)
    (lake / _MARK).touch()


def _fresh_topic(broker: Broker) -> str:
    """Create the topic ``flights``. Deletes one that the broker's data folder holds from an earlier demo."""
    try:
        broker.create_topic("flights", 4)
    except LakelockError:
        broker.delete_topic("flights")
        broker.create_topic("flights", 4)
    return "flights"


def _produce(broker: Broker, topic: str, out: Console) -> int:
    records = ((flight_key(flight), flight_value(flight)) for flight in flights())
    columns = (TextColumn("producing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out) as progress:
        task = progress.add_task("producing", total=FLIGHTS)
        sent = produce(broker.bootstrap, topic, records, on_progress=lambda done: progress.update(task, completed=done))
        progress.update(task, completed=sent)
    out.print(
        f"{plural(sent, 'record')} to topic {topic}, 4 partitions, key = carrier + flight number, idempotent producer"
    )
    return sent


def _write_pipeline(lake: Path, name: str, topic: str, bootstrap: str, sink: str) -> Path:
    file = lake / f"{name}.yaml"
    file.write_text(
        f"name: {name}\n"
        f"source:\n  topics: [{topic}]\n  kafka: {{bootstrap.servers: {json.dumps(bootstrap)}}}\n"
        f"value: {{format: json, schema: {json.dumps(FLIGHTS_SCHEMA)}}}\n"
        f"epoch: {{max_records: {EPOCH}}}\n"
        # In a short run, quick compilation matters more than fast code.
        "spark: {spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1}\n"
        f"sinks:\n  - {sink % json.dumps(str(lake.absolute() / name))}\n",
        encoding="utf-8",
    )
    return file


def _run_and_kill(file: Path, table: Path, out: Console) -> None:
    """Start ``lakelock run``. SIGKILL its process and JVM when an epoch's files are written, but not its commit."""
    run = subprocess.Popen(_command(file), start_new_session=True)
    try:
        caught = wait_for(Moment.MID_WRITE, table, KILLED_VERSION, going_on=lambda: run.poll() is None)
    finally:
        kill_group(run)
    if not caught:
        raise LakelockError(f"The run of {file} ended before it could be killed (exit code {run.returncode}).")
    committed = len(list((table / "_delta_log").glob("*.json")))
    uncommitted = _uncommitted_files(table)
    out.print(
        f"[bold red]kill -9[/] {run.pid} in epoch {KILLED_VERSION}: data files written: {len(uncommitted)}, "
        f"commits of them: none; the table stands at version {committed - 1}"
    )


def _uncommitted_files(table: Path) -> list[str]:
    named = set()
    for commit in (table / "_delta_log").glob("*.json"):
        actions = (json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines())
        named |= {action["add"]["path"] for action in actions if "add" in action}
    return [file.name for file in table.glob("*.parquet") if file.name not in named]


def _run(file: Path) -> None:
    done = subprocess.run(_command(file), check=False)
    if done.returncode != 0:
        raise LakelockError(f"The run of {file} failed with exit code {done.returncode}.")


def _command(file: Path) -> list[str]:
    return [sys.executable, "-m", "connector", "run", str(file), "--log-format", "text"]


@dataclass(frozen=True)
class Count:
    """How many rows a table holds, compared with the CSV. ``wrong``: rows that the table should not hold."""

    expected: int
    found: int
    lost: int
    duplicated: int
    wrong: int

    @property
    def exact(self) -> bool:
        """Whether the table holds every expected row once, and nothing else."""
        return self.found == self.expected and self.lost == self.duplicated == self.wrong == 0


def count(expected: Iterable[Row], found: Iterable[Row]) -> Count:
    """Compare two multisets of rows."""
    should, there = Counter(expected), Counter(found)
    return Count(
        expected=should.total(),
        found=there.total(),
        lost=(should - there).total(),
        duplicated=sum(times - should[row] for row, times in there.items() if 0 < should[row] < times),
        wrong=sum(times for row, times in there.items() if row not in should),
    )


_TEXT = ("carrier", "tailnum", "origin", "dest")
_COLUMNS = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute",
)  # fmt: skip


def _expected() -> tuple[list[Row], list[Row]]:
    """Every flight of the CSV, and the latest flight per carrier and flight number."""
    with zipfile.ZipFile(flights_csv()) as archive, archive.open("flights.csv") as file:
        rows = [_row(line) for line in csv.DictReader(io.TextIOWrapper(file, "utf-8"))]
    at = {name: index for index, name in enumerate(_COLUMNS)}
    scheduled = [at[name] for name in ("year", "month", "day", "sched_dep_time")]
    latest: dict[Row, Row] = {}
    for row in sorted(rows, key=lambda row: [row[index] for index in scheduled]):
        latest[row[at["carrier"]], row[at["flight"]]] = row
    return rows, list(latest.values())


def _row(line: dict[str, str]) -> Row:
    return tuple(
        None if line[name] in ("", "NA") else line[name] if name in _TEXT else int(float(line[name]))
        for name in _COLUMNS
    )


def _found(table: Path) -> list[Row]:
    from deltalake import DeltaTable, QueryBuilder

    batches = QueryBuilder().register("t", DeltaTable(str(table))).execute(f"SELECT {', '.join(_COLUMNS)} FROM t")
    columns = [column.to_pylist() for column in batches.read_all().columns]
    return list(zip(*columns, strict=True))


def _report(sent: int, lake: Path, out: Console) -> bool:
    every, latest = _expected()
    counts = {"flights": count(every, _found(lake / "flights"))}
    counts["latest_flights"] = count(latest, _found(lake / "latest_flights"))
    table = Table(box=None, pad_edge=False)
    for heading in ("table", "sent", "should hold", "in the lake", "lost", "duplicated", "wrong"):
        table.add_column(heading, justify="left" if heading == "table" else "right")
    for name, result in counts.items():
        numbers = (sent, result.expected, result.found, result.lost, result.duplicated, result.wrong)
        table.add_row(name, *(f"{number:,}" for number in numbers))
    out.print(table)
    for name in counts:
        _commits(lake / name, out)
    where = lake.absolute()
    out.print("\nThe tables are plain Delta tables. Query them with any engine, for example:", soft_wrap=True)
    out.print(f'  spark.read.format("delta").load("{where / "flights"}")', soft_wrap=True, markup=False)
    out.print(
        f"  {sys.executable} -c \"from deltalake import DeltaTable, QueryBuilder; print(QueryBuilder().register('t', "
        f"DeltaTable('{where / 'flights'}')).execute('SELECT carrier, count(*) AS flights FROM t GROUP BY carrier "
        "ORDER BY flights DESC').read_all())\"",
        soft_wrap=True,
        markup=False,
    )
    return sent == len(every) and all(result.exact for result in counts.values())


def _commits(table: Path, out: Console) -> None:
    from deltalake import DeltaTable

    shown = Table(title=f"commits of {table.name}", title_justify="left", box=None, pad_edge=False)
    for heading in ("version", "epoch", "by run", "next offsets"):
        shown.add_column(heading, overflow="fold")
    for commit in sorted(DeltaTable(str(table)).history(), key=lambda commit: int(commit["version"])):
        if "userMetadata" not in commit:
            continue
        metadata = json.loads(commit["userMetadata"])
        offsets = " ".join(f"{part}:{offset}" for part, offset in metadata["offsets"]["flights"].items())
        shown.add_row(str(commit["version"]), str(metadata["epoch"]), metadata["owner"][:8], offsets)
    out.print(shown)
