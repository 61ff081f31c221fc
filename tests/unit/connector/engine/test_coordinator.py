"""The coordinator with sinks in memory: what it tells of an epoch, whoever finishes it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from fakes import Group, Topic

from connector.delivery.ports import Work
from connector.delivery.retries import Patience
from connector.delivery.transactional import deliver
from connector.engine.coordinator import Coordinator
from connector.protocol.decided import LogHeld, Row, State
from connector.protocol.steps import Event, Step
from connector.telemetry.run_report import RunReport
from sinks.contract import Epoch, Prepared
from sinks.errors import Fenced, StoreUnreachable
from sinks.memory import MemoryPlace, MemoryTwoPhase


class Log:
    def __init__(self) -> None:
        self.entries: list[Sequence[Row]] = []

    def read(self) -> LogHeld:
        rows = [row for entry in self.entries for row in entry]
        decided = next((row for row in reversed(rows) if row.state is State.DECIDED), None)
        return LogHeld(len(self.entries), rows[-1] if rows else None, decided)

    def append(self, number: int, rows: Sequence[Row]) -> None:
        if number != len(self.entries) + 1:
            raise Fenced("", owner="", epoch=0)
        self.entries.append(rows)


class AwayOnce(MemoryTwoPhase):
    away = True

    def commit(self, epoch: Epoch, prepared: Prepared) -> Any:
        if self.away:
            self.away = False
            raise StoreUnreachable("for a moment")
        return super().commit(epoch, prepared)


def test_an_epoch_that_a_run_decided_and_finished_after_a_failure_is_told_as_committed() -> None:
    topic, places = Topic([[("a", number) for number in range(10)]], deleted_up_to={}), [MemoryPlace(), MemoryPlace()]
    sinks = [MemoryTwoPhase("a", places[0]), AwayOnce("b", places[1])]
    said: list[str] = []
    report = RunReport("p", said.append)

    def prepare(epoch: Epoch, names: Sequence[str], _again: bool, behind: int) -> tuple[Epoch, Mapping[str, Prepared]]:
        report(Event(Step.READ, epoch, behind=behind, letters=4))
        wanted = [sink for sink in sinks if not names or sink.name in names]
        return epoch, {sink.name: sink.prepare(epoch, topic.read(epoch)) for sink in wanted}

    by_name = {sink.name: sink for sink in sinks}
    it: Any = Coordinator(Log(), lambda _: by_name, run="run", config="c", prepare=prepare, observe=report)  # type: ignore[arg-type]
    work = Work(
        "p", "run", topic, it, 100, Group(), report, patience=Patience(3, timedelta(milliseconds=1)),
    )  # fmt: skip
    with report:
        report.ended(deliver(work, interval=None, stop=threading.Event()), table=None, stopped=False)
    assert [len(place.rows) for place in places] == [10, 10]
    assert (report.epochs, report.rows, report.records, report.set_aside) == (1, 20, 10, 4)
    assert said[0].startswith("p: done. 1 epoch, 20 rows written, 4 records set aside in ")
