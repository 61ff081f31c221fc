"""A run in a consumer group outlives what passes: each attempt is a new member. No broker and no Spark."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connector.delivery.ports import Work
from connector.delivery.retries import Patience
from connector.engine import in_group
from connector.protocol.steps import Event, Step
from sinks.contract import Committed, Epoch, Position
from sinks.errors import BadRecord, BrokerUnreachable, LakelockError, StoreUnreachable
from sinks.offsets import OffsetRange, Offsets

AWAY, THROTTLED = BrokerUnreachable("No Kafka broker answered"), StoreUnreachable("slow down")


class World:
    """A topic of ten records, read two at a time; its group; what was written; and what fails at which step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **failures: list[LakelockError | None]) -> None:
        self.failures, self.stored = failures, 0
        self.handed_over, self.due = 0, [datetime.max.replace(tzinfo=timezone.utc)]
        self.written: list[int] = []
        self.members: list[FakeMember] = []
        self.events: list[Event] = []
        monkeypatch.setattr(in_group, "GroupMember", lambda _, **named: FakeMember(self, named["observe"]))
        monkeypatch.setattr(in_group, "hand_over", self._hand_over)
        monkeypatch.setattr(in_group, "run_epoch", self._write)
        monkeypatch.setattr(in_group, "polled", lambda _, records: records)
        monkeypatch.setattr(in_group, "these", lambda records: records)
        monkeypatch.setattr(in_group, "replace", lambda value, **_: value)

    def step(self, name: str) -> None:
        failures = self.failures.get(name, [])
        failure = failures.pop(0) if failures else None
        if failure is not None:
            raise failure

    def _hand_over(self, *_: object) -> Position:
        self.step("hand_over")
        self.handed_over += 1
        return Position(self.handed_over, Offsets(), refresh_after=self.due.pop(0) if self.due else None)

    def _write(self, batch: Epoch, *_: object, **__: object) -> Committed:
        self.step("write")
        self.written += range(batch.ranges[0].start, batch.ranges[0].end)
        return Committed(batch.position(), rows=2)

    def run(self, delivery: str, attempts: int = 3) -> Any:
        patience = Patience(attempts, longest_wait=timedelta(milliseconds=1))
        work = SimpleNamespace(pipeline="p", owner="me", observe=self.events.append, patience=patience)
        plain = SimpleNamespace(write=None)
        assembly: Any = SimpleNamespace(
            source=None, group=None, spark=None, reading=lambda _: None,
            table=SimpleNamespace(label="t", derivation=SimpleNamespace(plain=plain)),
        )  # fmt: skip
        config: Any = SimpleNamespace(delivery=delivery)
        return in_group.run_in_group(config, cast(Work, work), assembly, threading.Event())

    @property
    def retries(self) -> int:
        return sum(event.step is Step.RETRYING for event in self.events)


class FakeMember:
    def __init__(self, world: World, observe: Any) -> None:
        self._world, self._observe, self._next = world, observe, world.stored
        self.behind, self.closed = 0, False
        self.records = ["two"]
        world.members.append(self)

    def batches(self) -> Iterator[Epoch]:
        while self._next < 10:
            self._world.step("poll")
            start, self._next = self._next, self._next + 2
            self._batch = Epoch("p", 1, "me", (OffsetRange("t", 0, start, start + 2),), Offsets(), {}, None, None)
            yield self._batch

    def auto_committed(self) -> Epoch:
        self.commit(self._batch)
        return self._batch

    def commit(self, batch: Epoch) -> None:
        self._world.step("commit")
        self._world.stored = batch.ranges[0].end
        self._observe(Event(Step.OFFSETS_COMMITTED, batch))

    def close(self) -> None:
        self.closed = True
        self._world.step("close")


@pytest.mark.parametrize("delivery", ["manual_commit", "idempotent", "auto_commit"])
@pytest.mark.parametrize("at", ["hand_over", "poll", "commit"])
def test_what_passes_is_tried_again_as_a_new_member(at: str, delivery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, **{at: [None, AWAY, None, AWAY] if at != "hand_over" else [AWAY, AWAY]})
    done = world.run(delivery)
    assert sorted({*world.written}) == list(range(10))
    assert (world.retries, world.stored) == (2, 10)
    assert (done.epochs, done.rows) == (len(world.written) // 2, len(world.written))
    assert world.written.count(2) == (2 if at == "commit" and delivery != "auto_commit" else 1), "at least once"
    assert all(member.closed for member in world.members)


def test_a_batch_that_the_client_has_committed_and_that_was_not_written_is_lost_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At most once: whether the failed write has written it, nobody knows."""
    world = World(monkeypatch, write=[None, THROTTLED])
    with caplog.at_level(logging.WARNING, "lakelock.delivery"):
        world.run("auto_commit")
    assert world.written == [0, 1, 4, 5, 6, 7, 8, 9]
    assert [record.getMessage() for record in caplog.records if record.name == "lakelock.delivery"] == [
        "the Kafka client has committed t-0 [2, 4), and they may be lost"
    ]


@pytest.mark.parametrize(
    ("delivery", "at"), [("manual_commit", "commit"), ("manual_commit", "write"), ("auto_commit", "write")]
)
def test_there_is_a_limit_to_batches_that_are_half_done(
    delivery: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a batch would be written again and again, or all of them lost."""
    world = World(monkeypatch, **{at: [None, AWAY, AWAY, AWAY]})
    with pytest.raises(BrokerUnreachable):
        world.run(delivery)
    assert (len(world.members), world.retries) == (3, 2)


def test_what_does_not_pass_stops_the_run_and_what_its_end_says_besides_is_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, write=[None, BadRecord("broken")], close=[AWAY])
    with pytest.raises(BadRecord):
        world.run("manual_commit")
    assert (len(world.members), world.retries) == (1, 0)


@pytest.mark.parametrize("delivery", ["manual_commit", "auto_commit"])
def test_a_run_that_stays_up_writes_again_whose_offsets_count(delivery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Delta removes the commit that says so."""
    world = World(monkeypatch)
    world.run(delivery)
    assert world.handed_over == 1
    again = World(monkeypatch)
    again.due = [datetime.min.replace(tzinfo=timezone.utc), *world.due]
    again.run(delivery)
    assert (again.handed_over, again.written) == (2, [*range(10)])
