"""Before a run removes deletes that nobody has committed, it fences the run whose epoch may be on its way."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from connector.engine.left_letters import LeftLetters
from connector.engine.one_table import OneTable
from sinks.contract import Committed, Epoch, Position
from sinks.errors import Fenced
from sinks.offsets import Offsets, TopicPartition

AT = TopicPartition("t", 0)
STOOD = Position(10, Offsets({AT: 70}), {"t": "A"}, owner="before")
NAMES = {"t": "#A/t"}


def destination(did: list[str], *, left: bool = True, renamed: bool = False, letters: Any = None) -> OneTable:
    over = SimpleNamespace(number=1, delete=lambda at: did.append(f"delete at {at}"))
    tombstones = SimpleNamespace(
        left_over=lambda *_: over if left else None,
        not_retired=lambda _, names: over if renamed and names == NAMES else None,
        name_back=lambda _, names, at: did.append(f"deletes named {[*names]} at {at}"),
    )
    table: Any = SimpleNamespace(derivation=SimpleNamespace(tombstones=tombstones), label="t")
    config: Any = SimpleNamespace(name="p", spark_options=(), source=SimpleNamespace(topics=["t"]))
    unused: Any = None
    left_letters = LeftLetters(letters, "me")
    return OneTable(config, "me", unused, unused, table, unused, None, lambda _: None, left=left_letters)


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


class Letters:
    """Dead letters that were renamed for a retirement."""

    def __init__(self, did: list[str]) -> None:
        self.did = did

    def exists(self) -> bool:
        return True

    def not_retired(self, _: Offsets, names: object) -> bool:
        return names == NAMES

    def name_back(self, *_: object) -> None:
        self.did.append("letters named")

    def close_ahead(self, run: str, *_: object, **__: object) -> int:
        self.did.append(f"closed those of {run}")
        return 0

    def mark_ahead(self, *_: object) -> int:
        self.did.append("marked")
        return 0


def test_what_was_renamed_for_a_retirement_that_was_not_committed_gets_its_name_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before letters of records that are still to be read are marked: they are found by their name. And those that the
    run of the last epoch has marked are closed before another epoch is the last."""
    did: list[str] = []

    def run_epoch(_: OneTable, epoch: Epoch, behind: int) -> Any:
        did.append(f"epoch {epoch.number}")
        return Committed(replace(epoch.position(), delivery="transactional"), 0)

    monkeypatch.setattr(OneTable, "run_epoch", run_epoch)
    letters: Any = Letters(did)
    position = destination(did, left=False, renamed=True, letters=letters).tidied(STOOD)
    assert position is not None
    assert position.epoch == 11
    named = ["closed those of before", "epoch 11", "deletes named ['t'] at 11", "letters named"]
    assert did == [*named, "closed those of me", "marked"]


def test_where_the_retirement_is_sooner_nothing_is_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []

    def run_epoch(*_: object) -> None:
        raise Fenced("it was sooner", owner="other", epoch=11)

    monkeypatch.setattr(OneTable, "run_epoch", run_epoch)
    with pytest.raises(Fenced):
        destination(did, left=False, renamed=True).tidied(STOOD)
    assert did == []


def test_names_of_retirements_say_nothing_where_a_group_has_the_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OneTable, "run_epoch", lambda *_: pytest.fail("no epoch"))
    of_group = replace(STOOD, delivery="idempotent")
    assert destination([], renamed=True).named(of_group) is of_group
