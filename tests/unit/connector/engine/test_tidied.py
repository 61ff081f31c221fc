"""Before a run removes deletes that nobody has committed, it fences the run whose epoch may be on its way."""

from types import SimpleNamespace
from typing import Any

import pytest

from connector.engine.one_table import OneTable
from sinks.contract import Committed, Epoch, Position
from sinks.errors import Fenced
from sinks.offsets import Offsets, TopicPartition

AT = TopicPartition("t", 0)
STOOD = Position(10, Offsets({AT: 70}), owner="before")


def destination(did: list[str], *, left: bool = True) -> OneTable:
    over = SimpleNamespace(number=1, delete=lambda at: did.append(f"delete at {at}"))
    tombstones = SimpleNamespace(left_over=lambda *_: over if left else None)
    table: Any = SimpleNamespace(derivation=SimpleNamespace(tombstones=tombstones), label="t")
    config: Any = SimpleNamespace(name="p", spark_options=(), source=SimpleNamespace(topics=["t"]))
    unused: Any = None
    return OneTable(config, "me", unused, unused, table, unused, None, lambda _: None)


def test_the_deletes_go_after_an_epoch_without_records(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []

    def run_epoch(_: OneTable, epoch: Epoch, behind: int) -> Any:
        assert (epoch.ranges, epoch.offsets, epoch.expected, epoch.owner) == ((), STOOD.offsets, STOOD, "me")
        did.append(f"epoch {epoch.number}")
        return Committed(epoch.position(), 0)

    monkeypatch.setattr(OneTable, "run_epoch", run_epoch)
    position = destination(did).tidied(STOOD)
    assert position is not None
    assert (did, position.epoch) == (["epoch 11", "delete at 11"], 11)


def test_where_the_other_run_was_sooner_nothing_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletes are those of its epoch, which has passed their records by now."""
    did: list[str] = []

    def run_epoch(*_: object) -> None:
        raise Fenced("it was sooner", owner="other", epoch=11)

    monkeypatch.setattr(OneTable, "run_epoch", run_epoch)
    with pytest.raises(Fenced):
        destination(did).tidied(STOOD)
    assert did == []


def test_where_nothing_was_left_there_is_no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []
    monkeypatch.setattr(OneTable, "run_epoch", lambda *_: did.append("epoch"))
    assert destination(did, left=False).tidied(STOOD) is STOOD
    assert destination(did).tidied(None) is None
    assert did == ["delete at None"]
