"""What a table of several does in a rewind beside the RESTORE, and to which versions it doesn't go back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from connector.operations.rewind_together import _versions
from connector.protocol.decided import Row, State
from connector.protocol.rewind import Goal
from sinks.contract import Epoch, Position
from sinks.delta.taken_back import TakesBack
from sinks.errors import ConfigurationError
from sinks.offsets import Offsets, TopicPartition

AT = TopicPartition("t", 0)


def epoch(number: int) -> Epoch:
    return Epoch("p", number, "r", (), Offsets({AT: number}), {}, None, Position(number - 1, Offsets()))


def test_deletes_are_forgotten_also_if_a_crash_came_after_the_commit() -> None:
    deleted: list[tuple[Offsets, object]] = []

    def left_over(position: Offsets, topics: object) -> Any:
        return SimpleNamespace(delete=lambda: deleted.append((position, topics)))

    commits: Any = SimpleNamespace(position=lambda: Position(4, Offsets(), owner="r"), topics=["t"])
    tombstones: Any = SimpleNamespace(left_over=left_over)
    table: Any = SimpleNamespace(label="lake/t")
    assert TakesBack(table, commits, [], tombstones).take(epoch(4), 1).already
    assert deleted == [(Offsets({AT: 4}), ["t"])]


@pytest.mark.parametrize(("last", "right"), [(None, True), (5, True), (6, False), (8, False)])
def test_a_version_of_a_later_epoch_is_no_version_before_the_first_one(last: int | None, right: bool) -> None:
    """As of a table that was merged on read before: the log has no version of the epochs that were folded."""
    stood = SimpleNamespace(metadata=SimpleNamespace(epoch=last)) if last is not None else None
    commits: Any = SimpleNamespace(at=lambda version: stood if version == 3 else None)
    found: Any = SimpleNamespace(collect=list)
    table: Any = SimpleNamespace(
        detail=lambda: SimpleNamespace(append_only=False), sql="t", spark=SimpleNamespace(sql=lambda _: found)
    )
    wrong = TakesBack(table, commits, []).wrong(3, None, most=5)
    assert wrong == (None if right else f"version 3, for which the log has no epoch, is of epoch {last}")


def test_the_epoch_that_is_given_up_is_taken_back_by_its_own_commit_not_by_the_newest_version() -> None:
    """OPTIMIZE may have committed since."""
    asked: list[int] = []

    def table(*commits: tuple[int, int]) -> Any:
        lineage = [(SimpleNamespace(version=version), SimpleNamespace(epoch=of)) for version, of in commits]
        back = SimpleNamespace(wrong=lambda version, _, most: asked.append(version))
        stands = Position(7, Offsets({AT: 7}), owner="r", version=9)
        return SimpleNamespace(commits=SimpleNamespace(position=lambda: stands, lineage=lambda: lineage), back=back)

    decided = Row(State.DECIDED, epoch(7), "r")
    goal = Goal(6, epoch(6).position(), epoch(6).position())
    assert _versions(goal, [], decided, {"t": table((3, 7))}, of_route=True) == {"t": 2}
    assert asked == [2]
    with pytest.raises(ConfigurationError, match="t: its history has no version before epoch 7"):
        _versions(goal, [], decided, {"t": table()}, of_route=True)
