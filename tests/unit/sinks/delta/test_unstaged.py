"""A table of a route whose change log no longer counts."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from sinks.contract import Position
from sinks.delta.merge_on_read import MergeOnRead
from sinks.delta.standing import Standing
from sinks.delta.unstaged import Unstaged
from sinks.errors import PositionMismatch
from sinks.offsets import Offsets, TopicPartition

AT = TopicPartition("t", 0)


def position(epoch: int, source: str = "commit") -> Position:
    return Position(epoch, Offsets({AT: epoch}), owner="r", version=epoch, source=source)


def of(table: Position | None, log: Position | None) -> Unstaged:
    it: Any = SimpleNamespace(position=lambda: table, spark=None, label="lake/a", path="lake/a")
    changes: Any = SimpleNamespace(looked_for=nullcontext, position=lambda: log)
    sink = MergeOnRead(it, it, changes, it, it, pipeline="p")
    return Unstaged("a", it, sink, pipeline="p")


@pytest.mark.parametrize(
    ("table", "log", "stands"),
    [
        (position(3), position(5), 5),
        (position(5), position(5), 5),
        (position(5, "rows"), position(5), 5),
        (position(6), position(5), 6),
        (position(6), None, 6),
    ],
)
def test_it_stands_where_its_change_log_says_or_the_table(table: Position, log: Position | None, stands: int) -> None:
    found = of(table, log).position()
    assert found is not None
    assert found.epoch == stands


@pytest.mark.parametrize("source", ["rows", "restored"])
def test_epochs_of_a_change_log_that_no_longer_counts_are_never_taken_for_held(source: str) -> None:
    """The coordinator log compares numbers: it would go on behind epochs that the table lacks."""
    table, log = position(3, source), position(5)
    assert Standing(table, log).given_up == 2
    with pytest.raises(PositionMismatch, match="2 epochs that the table lacks, and no longer counts"):
        of(table, log).position()


def test_a_folder_with_the_change_log_of_a_removed_table_takes_no_table_of_a_route() -> None:
    """By number the coordinator log would take the log's epochs for its own."""
    with pytest.raises(PositionMismatch, match="has the change log of a table that was removed, up to epoch 5"):
        of(None, position(5)).position()
    assert of(None, None).position() is None
