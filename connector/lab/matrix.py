"""The matrix: delivery x sink x crash point, each really crashed, really restarted, and judged.

Most cells share their processes (see ``crew``): one in which every pipeline is parked at its crash point when the
SIGKILL comes, one restart for all of them, and one more for those that crash in the middle of their recovery. What
happens inside Delta's write can't be parked: for these cells a process of its own is watched, and killed, from outside.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from connector.lab.broker import Broker
from connector.lab.checker import Report, judge, must_show
from connector.lab.crew import Journal, Task, read_journal, write_tasks
from connector.lab.data import produce
from connector.lab.faults import Moment, kill_group, wait_for
from connector.lab.history import History, Row, Sent, Sink, Version
from connector.lab.pipelines import write_pipeline
from connector.lab.verdict import PROMISES
from connector.lab.words import POINTS
from sinks.delta.metadata import CommitMetadata
from sinks.errors import LakelockError

RECORDS, KEYS, BATCH, PARTITIONS = 120, 60, 40, 2
TOPIC = "matrix"
_MID_WRITE_TRIES = 5
_PROCESS_SECONDS = 600.0

DELIVERIES = tuple(PROMISES)
SINKS: tuple[Sink, ...] = ("append", "upsert")
CRASH_POINTS = tuple(POINTS)
_STEPS = {
    "after_poll": "planned",
    "after_auto_commit": "offsets_committed",
    "before_write": "writing",
    "after_write": "committed",
    "after_offset_commit": "offsets_committed",
    # The first crash; the second one comes when the next run knows where to go on.
    "in_recovery": "committed",
}


@dataclass(frozen=True)
class Cell:
    delivery: str
    sink: Sink
    crash_point: str

    @property
    def name(self) -> str:
        return f"{self.delivery}-{self.sink}-{self.crash_point}"

    @property
    def label(self) -> str:
        return f"{self.delivery} x {self.sink} x {self.crash_point}"

    @property
    def crash(self) -> str:
        """The announced step of the first crash."""
        return _STEPS[self.crash_point]


def cells(deliveries: Sequence[str] = (), sinks: Sequence[str] = (), points: Sequence[str] = ()) -> list[Cell]:
    """Every cell there is, or those of the given deliveries, sinks and crash points."""
    return [
        Cell(delivery, sink, point)
        for delivery in DELIVERIES
        for sink in SINKS
        for point in CRASH_POINTS
        if (not deliveries or delivery in deliveries)
        and (not sinks or sink in sinks)
        and (not points or point in points)
        # refused: an append has nothing to compare with
        and (delivery, sink) != ("idempotent", "append")
        # who commits the offsets: the client by itself, or the run
        and point != ("after_offset_commit" if delivery == "auto_commit" else "after_auto_commit")
    ]


def run_matrix(chosen: Sequence[Cell], folder: Path, out: Console) -> list[tuple[History, Report]]:
    """Crash and judge every cell. Tables, journals and histories stay in ``folder``."""
    for sub in ("pipelines", "tables", "journals", "histories"):
        (folder / sub).mkdir(parents=True, exist_ok=True)
    with Broker() as broker:
        bench = _Bench(chosen, folder, broker, out)
        bench.crash()
        return bench.judged()


class _Bench:
    def __init__(self, chosen: Sequence[Cell], folder: Path, broker: Broker, out: Console) -> None:
        self._cells, self._folder, self._out = chosen, folder, out
        self._started = time.time()
        self._sent = _send(broker)
        for cell in chosen:
            write_pipeline(
                self._file(cell),
                name=cell.name,
                delivery=cell.delivery,
                sink=cell.sink,
                table=self._table(cell),
                topic=TOPIC,
                max_records=BATCH,
                kafka={
                    "bootstrap.servers": broker.bootstrap,
                    "heartbeat.interval.ms": "1000",
                    "auto.commit.interval.ms": "300",
                },
            )
            self._journal(cell).unlink(missing_ok=True)

    def crash(self) -> None:
        parked = [cell for cell in self._cells if cell.crash_point != "mid_write"]
        twice = [cell for cell in parked if cell.crash_point == "in_recovery"]
        once = [cell for cell in self._cells if cell not in twice]
        if parked:
            self._say(f"{len(parked)} pipelines, each up to its crash point, then one SIGKILL")
            self._crew([self._task(cell, 0, cell.crash) for cell in parked], killed=True)
        for cell in self._cells:
            if cell.crash_point == "mid_write":
                self._say(f"{cell.delivery} x {cell.sink}: SIGKILL in the middle of the write")
                self._kill_in_mid_write(cell)
        self._say(f"restart of all {len(self._cells)}" + (f", {len(twice)} crash again in recovery" if twice else ""))
        tasks = [self._task(cell, 1, None) for cell in once] + [self._task(cell, 1, "resumed") for cell in twice]
        self._crew(tasks, killed=bool(twice))
        if twice:
            self._say(f"second restart of {len(twice)}")
            self._crew([self._task(cell, 2, None) for cell in twice], killed=False)

    def judged(self) -> list[tuple[History, Report]]:
        found = []
        for cell in self._cells:
            history = self._history(cell)
            history.save(self._folder / "histories" / f"{cell.name}.json")
            found.append((history, judge(history, expects=must_show(cell.delivery, cell.sink, cell.crash_point))))
        return found

    def _crew(self, tasks: Sequence[Task], *, killed: bool) -> None:
        with self._process(tasks) as process:
            try:
                code = process.wait(timeout=_PROCESS_SECONDS)
            except subprocess.TimeoutExpired:
                raise LakelockError(f"A process of the lab is not done after {_PROCESS_SECONDS:.0f} seconds.") from None
        if code != (-signal.SIGKILL if killed else 0):
            raise LakelockError(f"A process of the lab ended with exit code {code}: {self._said()}")

    def _kill_in_mid_write(self, cell: Cell) -> None:
        table = self._table(cell)
        # The second batch's commit: version 0 made the table, and a consumer group's pipeline begins with a handover.
        first = 2 if cell.delivery == "transactional" else 3
        for version in range(first, first + _MID_WRITE_TRIES):
            with self._process([self._task(cell, 0, None)]) as process:
                caught = wait_for(Moment.MID_WRITE, table, version, going_on=_alive(process))
                kill_group(process)
            if caught and not (table / "_delta_log" / f"{version:020d}.json").exists():
                self._note(cell, "crashed", "SIGKILL in mid-write: data files are there, no commit")
                return
            # It came too late: the commit had just landed. Then the next batch is tried.
            self._note(cell, "missed", "SIGKILL, a moment after the commit")
        raise LakelockError(f"{cell.label}: {_MID_WRITE_TRIES} kills, and none hit the middle of a write.")

    @contextmanager
    def _process(self, tasks: Sequence[Task]) -> Iterator[subprocess.Popen[bytes]]:
        file = self._folder / "tasks.json"
        write_tasks(file, tasks, self._started)
        with (self._folder / "crew.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "connector.lab.crew", str(file)], start_new_session=True, stdout=log, stderr=log
            )
        try:
            yield process
        finally:
            kill_group(process)

    def _said(self) -> str:
        return (self._folder / "crew.log").read_text(encoding="utf-8", errors="replace")[-2000:]

    def _note(self, cell: Cell, what: str, note: str) -> None:
        Journal(str(self._journal(cell)), 0, self._started).write(what, note=note)

    def _history(self, cell: Cell) -> History:
        events = read_journal(self._journal(cell))
        failed = [event.note for event in events if event.what == "failed"]
        return History(
            delivery=cell.delivery,
            sink=cell.sink,
            crash_point=cell.crash_point,
            sent=self._sent,
            events=events,
            versions=tuple(_versions(self._table(cell), cell)),
            drained=bool(events) and events[-1].what == "done",
            error=failed[-1] if failed else None,
        )

    def _task(self, cell: Cell, run: int, crash: str | None) -> Task:
        return Task(str(self._file(cell)), str(self._journal(cell)), run, crash)

    def _file(self, cell: Cell) -> Path:
        return self._folder / "pipelines" / f"{cell.name}.yaml"

    def _journal(self, cell: Cell) -> Path:
        return self._folder / "journals" / f"{cell.name}.jsonl"

    def _table(self, cell: Cell) -> Path:
        return self._folder / "tables" / cell.name

    def _say(self, text: str) -> None:
        self._out.print(f"[dim]{time.time() - self._started:5.0f} s[/]  {text}", highlight=False)


def _alive(process: subprocess.Popen[bytes]) -> Callable[[], bool]:
    return lambda: process.poll() is None


def _send(broker: Broker) -> tuple[Sent, ...]:
    """Each key twice, its newest update in the second half; as Kafka then holds them."""
    send_records(broker, TOPIC)
    return sent_records(broker, TOPIC)


def send_records(broker: Broker, topic: str) -> None:
    broker.create_topic(topic, PARTITIONS)
    keys = [f"k{number % KEYS}" for number in range(RECORDS)]
    records = ((key.encode(), json.dumps({"k": key, "n": number}).encode()) for number, key in enumerate(keys))
    produce(broker.bootstrap, topic, records)


def sent_records(broker: Broker, topic: str) -> tuple[Sent, ...]:
    """All of a topic, as Kafka holds it."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None, auto_offset_reset="earliest")
    try:
        assigned = [TopicPartition(topic, partition) for partition in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(assigned)
        ends = consumer.end_offsets(assigned)
        found: list[Sent] = []
        deadline = time.monotonic() + 120
        while any(consumer.position(at) < ends[at] for at in assigned):
            if time.monotonic() > deadline:
                raise LakelockError(f"Of {sum(ends.values())} records in {topic}, {len(found)} could be read.")
            for records in consumer.poll(timeout_ms=500).values():
                found += [
                    Sent(each.topic, each.partition, each.offset, each.key.decode(), json.loads(each.value)["n"])
                    for each in records
                ]
    finally:
        consumer.close()
    return tuple(sorted(found, key=lambda each: (each.topic, each.partition, each.offset)))


def _versions(table: Path, cell: Cell) -> Iterable[Version]:
    """Every version of the table, by time travel, with another engine than the one that wrote it."""
    from deltalake import DeltaTable, QueryBuilder

    if not (table / "_delta_log").exists():
        return
    metadata = {
        int(commit["version"]): CommitMetadata.from_json(commit.get("userMetadata"), pipeline=cell.name)
        for commit in DeltaTable(str(table)).history()
    }
    claims = None
    for number in sorted(metadata):
        own = metadata[number]
        if own is not None and own.delivery == "transactional":
            claims = own.offsets
        query = "SELECT k, n, _topic, _partition, _offset FROM t"
        read = QueryBuilder().register("t", DeltaTable(str(table), version=number)).execute(query).read_all()
        columns = [column.to_pylist() for column in read.columns]
        rows = tuple(Row(topic, at, offset, key, value) for key, value, topic, at, offset in zip(*columns, strict=True))
        yield Version(number, rows, claims)
