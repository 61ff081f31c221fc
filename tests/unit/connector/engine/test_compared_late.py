"""Nothing is planned on an epoch as long as nobody knows whether its topics changed while it was read."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from connector.engine import one_table
from connector.engine.one_table import OneTable
from connector.protocol.steps import Event, Step
from sinks.contract import Committed, Epoch, Position
from sinks.errors import BrokerUnreachable, OffsetsLost, TopicRecreated
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
    destination.position()
    destination.position()
    assert (did, answers) == (["undone" if later else Step.COMMITTED, "position", "position"], [])
