"""An append to the coordinator log that lands late decides an epoch that the run has meanwhile planned anew."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from fakes import Group, Topic

from connector.delivery.ports import Work
from connector.delivery.retries import Patience
from connector.delivery.transactional import deliver
from connector.engine.coordinator import Coordinator
from connector.protocol.decided import LogHeld, Row, State
from sinks.contract import Committed, Epoch, Position, Prepared
from sinks.delta.unstaged import Unstaged
from sinks.errors import CommitUnknown, StoreUnreachable


class Table:
    """The sink, and what it needs of its table."""

    id = "made once"
    label = "a"
    appends = True

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.stands: Position | None = None

    def position(self) -> Position | None:
        return self.stands

    def committed_after(self, _: int) -> bool:
        return False

    def write(self, epoch: Epoch, rows: list[Any]) -> Committed:
        self.rows += rows
        self.stands = epoch.position()
        return Committed(self.stands, len(rows))


class Log:
    """The first append gets no answer, and lands when the second one is made."""

    def __init__(self) -> None:
        self.entries: list[Sequence[Row]] = []
        self.on_its_way: Sequence[Row] = ()
        self.appends = 0

    def read(self) -> LogHeld:
        rows = [row for entry in self.entries for row in entry]
        decided = next((row for row in reversed(rows) if row.state is State.DECIDED), None)
        return LogHeld(len(self.entries), rows[-1] if rows else None, decided)

    def append(self, number: int, rows: Sequence[Row]) -> None:
        self.appends += 1
        if self.appends == 1:
            self.on_its_way = rows
            raise StoreUnreachable("no answer in time")
        if self.appends == 2:
            self.entries.append(self.on_its_way)
            raise CommitUnknown("an earlier append of this run was committed late")
        assert number == len(self.entries) + 1
        self.entries.append(rows)


def test_a_table_of_a_route_gets_the_rows_of_the_ranges_that_were_decided() -> None:
    partition = [("a", number) for number in range(10)]
    topic, table, log = Topic([partition]), Table(), Log()
    sink = Unstaged("a", table, table, pipeline="p")  # type: ignore[arg-type]
    lengths: list[int] = []

    def prepare(epoch: Epoch, *_: object) -> tuple[Epoch, dict[str, Prepared]]:
        rows: Any = topic.read(epoch)
        lengths.append(len(rows))
        if len(lengths) == 1:  # more records come before the run tries again
            partition.extend(("a", number) for number in range(10, 15))
        return epoch, {"a": sink.hold(epoch, rows, len(rows))}

    coordinator = Coordinator(
        log, lambda _: {"a": sink}, run="run", config="c", prepare=prepare, observe=lambda _: None, stages=False
    )
    work = Work("p", "run", topic, coordinator, 100, Group(), lambda _: None, patience=Patience(5, timedelta(0)))
    deliver(work, interval=None, stop=threading.Event())
    assert lengths == [10, 15, 10, 5]
    assert [record.value for record in table.rows] == list(range(15))
