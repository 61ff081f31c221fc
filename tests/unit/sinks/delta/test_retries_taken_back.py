"""A retry of dead letters that is paused while somebody takes its table back: the letters' own SQL, run in SQLite."""

from __future__ import annotations

import re
import sqlite3
from types import SimpleNamespace
from typing import Any

import pytest

from sinks.delta.dead_letters import DeadLetters
from sinks.offsets import Offsets, TopicPartition

AT = TopicPartition("t", 0)
PASSED = Offsets({AT: 100})
Letter = tuple[int, str | None, int | None]


class Letters(DeadLetters):
    """Letters at these offsets, of epoch 5."""

    def __init__(self, *offsets: int) -> None:
        table: Any = SimpleNamespace(sql="t", exists=lambda: True, label="t")
        super().__init__(table, pipeline="p")
        self._ready = True
        self.rows = sqlite3.connect(":memory:")
        columns = "pipeline, epoch, _topic, _partition, _offset, _retry, _retried_epoch, _retried_at"
        self.rows.execute(f"CREATE TABLE t ({columns})")
        for offset in offsets:
            self.rows.execute("INSERT INTO t VALUES ('p', 5, 't', 0, ?, NULL, NULL, NULL)", [offset])

    def _run(self, sql: str) -> int:
        return self.rows.execute(re.sub(r"(\d)L\b", r"\1", sql.replace("current_timestamp()", "'now'"))).rowcount

    @property
    def held(self) -> list[Letter]:
        """Offset, mark, and the epoch that has closed it."""
        return list(self.rows.execute("SELECT _offset, _retry, _retried_epoch FROM t ORDER BY _offset"))


@pytest.mark.parametrize("closes_before", [False, True], ids=["one table", "a route, settled by the rewind"])
def test_a_retry_that_wakes_after_a_rewind_closes_no_letter_whose_row_is_gone(closes_before: bool) -> None:
    letters = Letters(7)
    assert letters.begin("retry", PASSED) == 1
    if closes_before:
        letters.close("retry", 11)
    letters.take_back(PASSED, restored_to=10, highest=11)  # epoch 11, which the retry has committed, is gone
    assert letters.held == [(7, None, None)]
    assert letters.close("retry", 11) == 0
    letters.take_back(PASSED, restored_to=10, highest=11)
    assert letters.held == [(7, None, None)]
    assert letters.begin("next", PASSED) == 1
    assert (letters.close("next", 13), letters.held) == (1, [(7, "next", 13)])


def test_letters_that_went_through_before_the_epoch_stay_closed_and_those_that_are_read_again_are_closed() -> None:
    letters = Letters(7, 200)
    letters.begin("retry", PASSED)
    letters.close("retry", 9)
    letters.take_back(PASSED, restored_to=10, highest=11)
    assert letters.held == [(7, "retry", 9), (200, None, 12)]
