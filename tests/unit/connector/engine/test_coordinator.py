"""The coordinator with sinks in memory: what it tells of an epoch, whoever finishes it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from fakes import Group, Log, Topic

from connector.delivery.ports import Work
from connector.delivery.retries import Patience
from connector.delivery.transactional import deliver
from connector.engine.coordinator import Coordinator
from connector.protocol.decided import Row, State
from connector.protocol.steps import Event, Step
from connector.telemetry.run_report import RunReport
from sinks.contract import Epoch, Position, Prepared
from sinks.errors import PositionMismatch, StoreUnreachable
from sinks.memory import MemoryPlace, MemoryTwoPhase


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


class SilentOnce(Log):
    """Doesn't answer, once, where an epoch's end is to be appended with the beginning of the next one."""

    silent = True

    def append(self, number: int, rows: Sequence[Row]) -> None:
        if self.silent and len(rows) > 1:
            self.silent = False
            raise StoreUnreachable("for a moment")
        super().append(number, rows)


def test_an_epoch_is_told_as_committed_once() -> None:
    topic, place = Topic([[("a", number) for number in range(10)]], deleted_up_to={}), MemoryPlace()
    sinks = {"a": MemoryTwoPhase("a", place)}
    told: list[int] = []

    def prepare(epoch: Epoch, _names: Sequence[str], _again: bool, _behind: int) -> Any:
        return epoch, {"a": sinks["a"].prepare(epoch, topic.read(epoch))}

    def heard(event: Event) -> None:
        if event.step is Step.COMMITTED:
            told.append(event.epoch.number)  # type: ignore[union-attr]

    it: Any = Coordinator(SilentOnce(), lambda _: sinks, run="run", config="c", prepare=prepare, observe=heard)  # type: ignore[arg-type]
    work = Work("p", "run", topic, it, 5, Group(), heard, patience=Patience(3, timedelta(milliseconds=1)))
    deliver(work, interval=None, stop=threading.Event())
    assert told == [1, 2]
    assert len(place.rows) == 10


def test_what_belongs_to_a_commit_is_done_before_the_log_says_that_it_is_done_and_again_after_a_crash() -> None:
    """Else letters that went through could stay open, or be closed while a table lacks their rows."""
    topic, places, log = Topic([[("a", 1), ("b", 2)]], deleted_up_to={}), [MemoryPlace(), MemoryPlace()], Log()
    sinks = {"a": MemoryTwoPhase("a", places[0]), "b": AwayOnce("b", places[1])}
    told: list[tuple[int, int, list[State]]] = []

    def committed(epoch: Epoch) -> None:
        told.append((epoch.number, sum(len(place.rows) for place in places), [row.state for row in log.entries[-1]]))
        if len(told) == 1:
            raise StoreUnreachable("the letters, for a moment")

    def prepare(epoch: Epoch, *_: object) -> tuple[Epoch, Mapping[str, Prepared]]:
        return epoch, {name: sink.prepare(epoch, topic.read(epoch)) for name, sink in sinks.items()}

    def run(owner: str) -> Any:
        given: Any = lambda _: sinks  # noqa: E731
        return Coordinator(
            log, given, run=owner, config="c", prepare=prepare, observe=lambda _: None, committed=committed
        )

    work = Work("p", "one", topic, run("one"), 100, Group(), lambda _: None, patience=Patience(1, timedelta(0)))
    with pytest.raises(StoreUnreachable):  # of b: not all sinks hold the epoch, and nothing is told
        deliver(work, interval=None, stop=threading.Event())
    assert told == []
    with pytest.raises(StoreUnreachable):
        run("two").recover()
    run("three").recover()
    assert told == [(1, 4, [State.DECIDED])] * 2
    assert log.entries[-1][0].state is State.DONE
    run("four").recover()
    assert len(told) == 2


class Forgets(MemoryTwoPhase):
    """As a topic, whose position is in the offsets of a group. ``place`` keeps the rows."""

    def __init__(self, name: str, place: MemoryPlace) -> None:
        super().__init__(name, place)
        self.place, self.told = place, []  # type: ignore[var-annotated]

    def remind(self, epoch: Epoch, reads: Mapping[str, Any], *, done: bool) -> Position | None:
        self.told.append((epoch.number, dict(reads), done))
        self.place.position = epoch.position() if done or self.place.rows else None
        return self.place.position


def _run_of(log: Log, sinks: Mapping[str, Any], topic: Topic) -> Any:
    def prepare(epoch: Epoch, *_: object) -> tuple[Epoch, Mapping[str, Prepared]]:
        return epoch, {name: sink.prepare(epoch, topic.read(epoch)) for name, sink in sinks.items()}

    given: Any = lambda _: sinks  # noqa: E731
    return Coordinator(log, given, run="run", config="c", prepare=prepare, observe=lambda _: None)


def test_a_sink_that_has_forgotten_its_position_is_told_it_by_the_log() -> None:
    """A group without commits loses its offsets after 7 days: without this the pipeline would be stuck for good."""
    topic, log = Topic([[("a", 1), ("b", 2)]], deleted_up_to={}), Log()
    sinks = {"a": MemoryTwoPhase("a", MemoryPlace()), "b": Forgets("b", MemoryPlace())}
    it = _run_of(log, sinks, topic)
    work = Work("p", "run", topic, it, 100, Group(), lambda _: None, patience=Patience(1, timedelta(0)))
    deliver(work, interval=None, stop=threading.Event())
    assert sinks["b"].told == [], "before its first epoch a sink has forgotten nothing"
    sinks["b"].place.position = None
    recovered = _run_of(log, sinks, topic).recover()
    assert sinks["b"].told == [(1, {"epoch": 1}, True)]
    assert recovered.positions["b"].holds(recovered.stands)
    assert len(sinks["b"].place.rows) == 2
    sinks["a"]._place.position = None  # a table that was emptied isn't told that it holds its rows
    with pytest.raises(PositionMismatch, match="a no epoch"):
        _run_of(log, sinks, topic).recover()


@pytest.mark.parametrize(("days", "told"), [(0, False), (3, True)])
def test_a_first_epoch_in_doubt_is_asked_about_once_its_offsets_may_be_forgotten(days: int, told: bool) -> None:
    topic, log, place = Topic([[("a", 1), ("b", 2)]], deleted_up_to={}), Log(), MemoryPlace()
    sinks = {"a": AwayOnce("a", MemoryPlace()), "b": Forgets("b", place)}
    it = _run_of(log, sinks, topic)
    work = Work("p", "run", topic, it, 100, Group(), lambda _: None, patience=Patience(1, timedelta(0)))
    with pytest.raises(StoreUnreachable):
        deliver(work, interval=None, stop=threading.Event())
    log.appended = datetime.now(timezone.utc) - timedelta(days=days)
    assert len(place.rows) == 2
    if told:
        place.position = None
    else:
        place.rows, place.position = (), None  # it never got the epoch, as after a crash
    _run_of(log, sinks, topic).recover()
    assert sinks["b"].told == ([(1, {}, False)] if told else [])
    assert len(place.rows) == 2
