"""The matrix: each delivery x sink x crash point is really crashed, restarted, and judged.

Most cells share their processes (see ``crew``). In the first, every pipeline is parked at its crash point before the
SIGKILL. The second is the restart of all pipelines. The third is one more restart for those that crash during their
recovery. A pipeline can't be parked inside Delta's write. The cells of that crash point have their own processes,
which are watched and killed from outside.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from connector.lab.bench.broker import Broker
from connector.lab.bench.crew import Journal, Task, read_journal
from connector.lab.bench.data import produce
from connector.lab.bench.faults import Moment, kill_group, wait_for
from connector.lab.bench.pipelines import QUICK_MEMBER, write_pipeline
from connector.lab.bench.processes import crew, kill_at, run_crew
from connector.lab.check.checker import Report, judge, must_show
from connector.lab.check.evidence import sent_records, versions_together
from connector.lab.check.history import SINKS, History, Sent, Sink
from connector.lab.check.verdict import PROMISES
from connector.lab.show.explanations import POINTS, STEPS
from sinks.errors import LakelockError
from sinks.plurals import plural

RECORDS, KEYS, BATCH, PARTITIONS = 120, 60, 40, 2
TOPIC = "matrix"
_MID_WRITE_TRIES = 5

DELIVERIES = tuple(PROMISES)
_BY = "if(n % 2 = 0, 'even', 'odd')"
_VALUE = "route"
"""In braces it stands for the value, in a path."""
ROUTED = ("even", "odd")
"""The tables of a routed pipeline. Each batch has rows of both."""
CRASH_POINTS = tuple(POINTS)


@dataclass(frozen=True)
class Cell:
    """One delivery into one sink, killed at one crash point."""

    delivery: str
    sink: Sink
    crash_point: str

    @property
    def name(self) -> str:
        """The name of the cell's pipeline and files."""
        return f"{self.delivery}-{self.sink}-{self.crash_point}"

    @property
    def label(self) -> str:
        """The cell in words, for messages."""
        return f"{self.delivery} x {self.sink} x {self.crash_point}"

    @property
    def crash(self) -> str:
        """The announced step at which the first crash happens."""
        return STEPS[self.crash_point]


def cells(deliveries: Sequence[str] = (), sinks: Sequence[str] = (), points: Sequence[str] = ()) -> list[Cell]:
    """The cells of the given deliveries, sinks and crash points. An empty argument selects all."""
    return [
        Cell(delivery, sink, point)
        for delivery in DELIVERIES
        for sink in SINKS
        for point in CRASH_POINTS
        if (not deliveries or delivery in deliveries)
        and (not sinks or sink in sinks)
        and (not points or point in points)
        # Refused, because an append has no stored offsets to compare with.
        and (delivery, sink) != ("idempotent", "append")
        # Either the client commits the offsets, or the run does.
        and point != ("after_offset_commit" if delivery == "auto_commit" else "after_auto_commit")
        and (sink != "routed" or delivery == "transactional")
        and (sink == "routed" or point != "between_tables")
    ]


def run_matrix(chosen: Sequence[Cell], folder: Path, out: Console) -> list[tuple[History, Report]]:
    """Crash and judge every cell. Returns the histories and reports. ``folder``: receives tables and journals too."""
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
                kafka={"bootstrap.servers": broker.bootstrap, **QUICK_MEMBER},
                **self._route(cell),
            )
            self._journal(cell).unlink(missing_ok=True)

    def crash(self) -> None:
        parked = [cell for cell in self._cells if cell.crash_point not in ("mid_write", "between_tables")]
        twice = [cell for cell in parked if cell.crash_point == "in_recovery"]
        once = [cell for cell in self._cells if cell not in twice]
        if parked:
            self._say(f"{plural(len(parked), 'pipeline runs', 'pipelines run')} to the crash point, then one SIGKILL")
            self._crew([self._task(cell, 0, cell.crash) for cell in parked], killed=True)
        for cell in self._cells:
            if cell.crash_point == "mid_write":
                self._say(f"{cell.delivery} x {cell.sink}: SIGKILL in the middle of the write")
                self._kill_in_mid_write(cell)
            if cell.crash_point == "between_tables":
                self._say(f"{cell.delivery} x {cell.sink}: SIGKILL when the first table has committed")
                self._kill_between_tables(cell)
        self._say(f"restart of all {len(self._cells)}" + (f", of which {len(twice)} crash again" if twice else ""))
        tasks = [self._task(cell, 1, None) for cell in once] + [self._task(cell, 1, "resumed") for cell in twice]
        self._crew(tasks, killed=bool(twice))
        if twice:
            self._say(f"second restart of {len(twice)}")
            self._crew([self._task(cell, 2, None) for cell in twice], killed=False)

    def judged(self) -> list[tuple[History, Report]]:
        judged = []
        for cell in self._cells:
            history = self._history(cell)
            history.save(self._folder / "histories" / f"{cell.name}.json")
            judged.append((history, judge(history, expects=must_show(cell.delivery, cell.sink, cell.crash_point))))
        return judged

    def _crew(self, tasks: Sequence[Task], *, killed: bool) -> None:
        run_crew(self._folder, tasks, self._started, killed=killed)

    def _kill_in_mid_write(self, cell: Cell) -> None:
        table = self._tables(cell)[0]
        # The version of the second batch. Version 0 creates the table, and a consumer delivery adds a handover.
        first = 2 if cell.delivery == "transactional" else 3
        for version in range(first, first + _MID_WRITE_TRIES):
            with crew(self._folder, [self._task(cell, 0, None)], self._started) as process:
                caught = wait_for(Moment.MID_WRITE, table, version, going_on=_alive(process))
                kill_group(process)
            if caught and not (table / "_delta_log" / f"{version:020d}.json").exists():
                self._note(cell, "crashed", "SIGKILL in mid-write: data files, but no commit")
                return
            # The SIGKILL came after the commit, so the next batch is tried.
            self._note(cell, "missed", "SIGKILL just after the commit")
        raise LakelockError(f"{cell.label}: none of {_MID_WRITE_TRIES} kills hit the middle of a write.")

    def _kill_between_tables(self, cell: Cell) -> None:
        kill_at(cell.crash, self._file(cell), self._folder / f"{cell.name}.log")
        self._note(cell, "crashed", "SIGKILL when one of two tables had committed")

    def _route(self, cell: Cell) -> dict[str, object]:
        """Options in place of the sink of a pipeline with a route."""
        if cell.sink != "routed":
            return {}
        route = {"by": _BY, "sink": {"type": "delta_append", "path": str(self._table(cell) / f"{{{_VALUE}}}")}}
        return {"route": route, "sinks": None, "coordinator": {"path": str(self._table(cell) / "log")}}

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
            versions=tuple(versions_together(self._tables(cell), cell.name)),
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

    def _tables(self, cell: Cell) -> Sequence[Path]:
        """The tables with the records."""
        table = self._table(cell)
        return [table / name for name in ROUTED] if cell.sink == "routed" else [table]

    def _say(self, text: str) -> None:
        self._out.print(f"[dim]{time.time() - self._started:5.0f} s[/]  {text}", highlight=False)


def _alive(process: subprocess.Popen[bytes]) -> Callable[[], bool]:
    return lambda: process.poll() is None


def _send(broker: Broker) -> tuple[Sent, ...]:
    """Send the lab's records. Returns them as Kafka holds them."""
    send_records(broker, TOPIC)
    return sent_records(broker.bootstrap, TOPIC)


def send_records(broker: Broker, topic: str) -> None:
    """Create a topic with the lab's records. Each key has two records, the newer one in the second half."""
    broker.create_topic(topic, PARTITIONS)
    keys = [f"k{number % KEYS}" for number in range(RECORDS)]
    records = ((key.encode(), json.dumps({"k": key, "n": number}).encode()) for number, key in enumerate(keys))
    produce(broker.bootstrap, topic, records)
