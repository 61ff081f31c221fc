"""Nothing is planned on an epoch as long as nobody knows whether its topics changed while it was read."""

import threading
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import Group, To, Topic

from connector.delivery.ports import Work
from connector.delivery.retries import Patience
from connector.delivery.transactional import deliver
from connector.engine import one_table
from connector.engine.one_table import OneTable
from connector.protocol.steps import Event, Step
from sinks.contract import Committed, Epoch, Position
from sinks.errors import BrokerUnreachable, Fenced, OffsetsLost, TopicRecreated
from sinks.offsets import OffsetRange, Offsets, TopicPartition

AT = TopicPartition("t", 0)
STOOD = Position(10, Offsets({AT: 100}))
EPOCH = Epoch("p", 11, "me", (OffsetRange("t", 0, 100, 200),), Offsets({AT: 200}), {"t": "id"}, None, STOOD)


@pytest.mark.parametrize("later", [None, TopicRecreated("new"), OffsetsLost("cut")], ids=["same", "recreated", "cut"])
def test_an_epoch_that_kafka_was_not_asked_about_is_compared_before_the_next_is_planned(
    later: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Exception | None] = [BrokerUnreachable("away"), BrokerUnreachable("away"), later]
    did: list[object] = []

    def refuse_changed(epoch: Epoch) -> None:
        assert epoch is EPOCH
        error = answers.pop(0)
        if error is not None:
            raise error

    def observe(event: Event) -> None:
        did.append(event.step)

    sink = SimpleNamespace(appends=False, write=None, position=lambda: did.append("position"))
    unused: Any = None
    table: Any = SimpleNamespace(derivation=SimpleNamespace(sink=sink), table="table", commits="commits", label="t")
    config: Any = SimpleNamespace(name="p", spark_options=())
    source: Any = SimpleNamespace(refuse_changed=refuse_changed)
    destination = OneTable(config, "me", unused, source, table, unused, None, observe)
    committed = Committed(EPOCH.position(), 100)
    monkeypatch.setattr(one_table, "write_epoch", lambda *_, **__: (EPOCH, committed))
    monkeypatch.setattr(one_table, "tuned", lambda *_, **__: nullcontext())
    monkeypatch.setattr(one_table, "for_few", lambda *_, **__: nullcontext())
    monkeypatch.setattr(one_table, "undo", lambda *_: did.append("undone"))
    monkeypatch.setattr(one_table, "look_back", lambda *_: None)
    for call in (lambda: destination.run_epoch(EPOCH, 0), destination.position):
        with pytest.raises(BrokerUnreachable):
            call()
    assert did == []
    if isinstance(later, OffsetsLost):
        with pytest.raises(OffsetsLost, match="cut"):  # as right after the commit: the next run goes on
            destination.position()
    else:
        destination.position()
    destination.position()
    positions = ["position"] * (1 if isinstance(later, OffsetsLost) else 2)
    assert (did, answers) == (["undone" if later else Step.COMMITTED, *positions], [])


@pytest.mark.parametrize(("went_back_to", "fenced"), [(1, False), (2, True)])
def test_a_run_whose_first_epoch_was_taken_back_was_not_replaced(went_back_to: int, fenced: bool) -> None:
    """The position then has the epoch before, of another run, and the number of the one that was taken back. A RESTORE
    to an epoch that another run has committed since shows that run."""
    topic = Topic([[("a", number) for number in range(3)]])
    stood = Position(1, Offsets({AT: 1}), {"t": "first"}, owner="yesterday")
    restored = replace(stood, epoch=3, source="restored", restored_to=went_back_to, version=7)
    positions, numbers = [stood, restored], list[int]()

    def run_epoch(epoch: Epoch, behind: int) -> Committed:
        numbers.append(epoch.number)
        if len(numbers) == 1:
            raise BrokerUnreachable("away")
        positions.append(epoch.position())
        return Committed(epoch.position(), epoch.span)

    to = To(lambda: positions.pop(0) if len(positions) > 1 else positions[0], run_epoch)
    quick = Patience(attempts=2, longest_wait=timedelta(milliseconds=1))
    work = Work("p", "today", topic, to, 10, Group(), lambda event: None, patience=quick)
    if fenced:
        with pytest.raises(Fenced, match="run yesterday has committed epoch 3"):
            deliver(work, interval=None, stop=threading.Event())
    else:
        deliver(work, interval=None, stop=threading.Event())
    assert numbers == ([2] if fenced else [2, 4])
