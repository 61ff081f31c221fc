"""An epoch that reads dead letters says which ones, wherever it is read back from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from connector.engine import one_table
from connector.engine.letters_again import RoutedLetters, letters_version, of_letters
from sinks.contract import Epoch, Position
from sinks.delta.metadata import CommitMetadata
from sinks.offsets import Offsets

STANDS = Position(4, Offsets.from_dict({"t": {"0": 7}}), owner="before")
RETRY = of_letters(Epoch.of_no_records(STANDS, pipeline="p", owner="me"), 12)


class Letters:
    def __init__(self) -> None:
        self.did: list[Any] = []

    def close(self, *what: Any) -> None:
        self.did.append(("close", *what))


def test_the_version_is_in_what_the_coordinator_log_keeps() -> None:
    kept = CommitMetadata.from_json(CommitMetadata.of(RETRY).to_json(), pipeline="p")
    assert kept is not None
    assert letters_version(Epoch.that_left(kept.position, pipeline="p").batch) == 12


@pytest.mark.parametrize("batch", ["", "0f5c/12", "dead letters/", "dead letters/12/3", "my dead letters/12"])
def test_other_epochs_read_no_letters(batch: str) -> None:
    assert letters_version(batch) is None


def test_an_epoch_after_a_retry_reads_kafka_again() -> None:
    assert letters_version(Epoch.of_no_records(RETRY.position(), pipeline="p", owner="next").batch) is None


@pytest.mark.parametrize(
    ("epoch", "did"),
    [(RETRY, [("close", "me", 5)]), (Epoch.of_no_records(STANDS, pipeline="p", owner="me"), [])],
    ids=["retry", "run"],
)
def test_letters_follow_what_all_tables_hold(epoch: Epoch, did: list[Any]) -> None:
    letters: Any = Letters()
    RoutedLetters(letters, "lake/{kind}").committed(epoch)
    assert letters.did == did


def test_a_table_that_joins_others_and_is_taken_back_leaves_their_letters_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stands behind them: what their position has passed is ahead of its own."""
    taken_back: list[int] = []
    letters = SimpleNamespace(take_back=lambda _, restored_to, *__, **___: taken_back.append(restored_to))
    monkeypatch.setattr(one_table, "letters_table", lambda *_: letters)
    table: Any = SimpleNamespace(
        derivation=SimpleNamespace(tombstones=None), commits=SimpleNamespace(taken_in_since=lambda _: ()), table=None
    )
    position, spark = Position(4, Offsets(), restored_to=3), cast(Any, None)
    for two_phase in (True, False):
        config: Any = SimpleNamespace(whole=SimpleNamespace(two_phase=two_phase), name="p")
        one_table.after_restore(config, spark, position, table)
    assert taken_back == [3]


@pytest.mark.parametrize(("delivery", "read_again"), [("transactional", True), ("manual_commit", False)])
def test_a_restore_closes_letters_only_where_their_records_are_read_again(
    monkeypatch: pytest.MonkeyPatch, delivery: str, read_again: bool
) -> None:
    """A consumer group's offsets stay where they are."""
    offsets: list[Offsets | None] = []
    letters = SimpleNamespace(take_back=lambda passed, *_, **__: offsets.append(passed))
    monkeypatch.setattr(one_table, "letters_table", lambda *_: letters)
    table: Any = SimpleNamespace(
        derivation=SimpleNamespace(tombstones=None), commits=SimpleNamespace(taken_in_since=lambda _: ()), table=None
    )
    config: Any = SimpleNamespace(whole=SimpleNamespace(two_phase=False), name="p")
    position = Position(1, STANDS.offsets, delivery=delivery, restored_to=1)
    one_table.after_restore(config, cast(Any, None), position, table)
    assert offsets == [STANDS.offsets if read_again else None]
