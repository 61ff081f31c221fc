"""Of a delivery that replays batches, the records that the groups hold already are left out, by one condition."""

from __future__ import annotations

import re
from typing import Any

import pytest

from connector.derive.aggregate import _without_applied
from sinks.offsets import Offsets, TopicPartition


class Frame:
    """Counts what is put around it."""

    def __init__(self, *conditions: str) -> None:
        self.conditions = conditions

    def where(self, condition: str) -> Frame:
        return Frame(*self.conditions, condition)


class Table:
    """One whose groups hold records of some partitions."""

    def __init__(self, applied: dict[TopicPartition, int]) -> None:
        self.applied = Offsets(applied)

    def coordinates(self, _: Any) -> Offsets:
        return self.applied


def left_out(applied: dict[TopicPartition, int]) -> tuple[str, ...]:
    frame: Any = _without_applied(Frame(), Table(applied), {"t", "u"})  # type: ignore[arg-type]
    return frame.conditions  # type: ignore[no-any-return]


@pytest.mark.parametrize("partitions", [1, 2, 5000])
def test_the_plan_of_a_batch_does_not_grow_with_the_partitions(partitions: int) -> None:
    (condition,) = left_out({TopicPartition(name, at): 7 + at for name in "tu" for at in range(partitions)})
    assert [int(text) for text in re.findall(r"CAST\((\d+) AS BIGINT\)", condition)] == 2 * [*range(7, 7 + partitions)]


def test_a_table_without_groups_leaves_nothing_out() -> None:
    assert left_out({}) == ()
