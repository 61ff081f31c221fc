"""A retry of dead letters that is paused while somebody takes its table back: the letters' own SQL, run in SQLite."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from connector.engine.left_letters import LeftLetters
from sinks.contract import Position
from sinks.delta.dead_letters import DeadLetters
from sinks.offsets import OffsetRange, Offsets, TopicPartition

AT = TopicPartition("t", 0)
PASSED = Offsets({AT: 100})
NOBODY_KNOWS: Mapping[int, str] = MappingProxyType({})
Letter = tuple[int, str | None, int | None]


class Letters(DeadLetters):
    """Letters at these offsets, of epoch 5; ``tables``: whose they are, by offset; ``of``: whose file this is."""

    def __init__(self, *offsets: int, tables: Mapping[int, str] = NOBODY_KNOWS, of: str = "mine") -> None:
        table: Any = SimpleNamespace(sql="t", exists=lambda: True, label="t")
        super().__init__(table, pipeline="p", of=lambda: [of] if of else [])
        self._ready = True
        self.rows = sqlite3.connect(":memory:")
        self.rows.create_function("startswith", 2, lambda text, start: text and text.startswith(start))
        columns = "pipeline, epoch, _topic, _partition, _offset, _retry, _retried_epoch, _retried_at, _table"
        self.rows.execute(f"CREATE TABLE t ({columns})")
        for offset in offsets:
            values = [offset, tables.get(offset)]
            self.rows.execute("INSERT INTO t VALUES ('p', 5, 't', 0, ?, NULL, NULL, NULL, ?)", values)

    def _run(self, sql: str) -> int:
        return self.rows.execute(re.sub(r"(\d)L\b", r"\1", sql.replace("current_timestamp()", "'now'"))).rowcount

    def _count(self, where: str) -> int:
        return int(self.rows.execute(f"SELECT count(*) FROM t WHERE {where}").fetchone()[0])

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


@pytest.mark.parametrize("of", ["mine", ""], ids=["a clone", "nobody knows which table this is"])
def test_a_clone_that_is_taken_back_leaves_the_letters_of_its_source_alone(of: str) -> None:
    """Its position is behind that of its source: it says nothing of the source's letters."""
    letters = Letters(200, 300, 400, 500, tables={200: "source", 300: "mine", 400: ""}, of=of)
    letters.take_back(PASSED, restored_to=3, highest=10)
    left = [offset for offset, _, closed in letters.held if closed is None]
    assert left == ([200, 400] if of else [])
    again = Letters(7, tables={7: "source"}, of="source")
    again.begin("retry", PASSED)
    again.close("retry", 9)
    again._of = lambda: ["mine"]
    again.take_back(PASSED, restored_to=3, highest=10)
    assert again.held == [(7, "retry", 9)], "nor does it open them again"


def test_a_retry_into_a_clone_leaves_the_letters_of_its_source_to_the_source() -> None:
    letters = Letters(5, 6, 7, 8, 200, tables={5: "source", 6: "mine", 7: "", 200: "source"})
    assert letters.of_others(PASSED) == 1
    assert letters.begin("retry", PASSED) == 3
    assert letters.close("retry", 9) == 3
    assert [offset for offset, _, closed in letters.held if closed is None] == [5, 200]
    assert Letters(5, tables={5: "source"}, of="").of_others(PASSED) == 0


def test_letters_of_an_epoch_that_failed_are_closed_once_their_records_have_got_in() -> None:
    letters = Letters(7, 150, 200, 300, tables={7: "mine", 150: "mine", 200: "source", 300: "mine"})
    assert letters.mark_ahead("me", PASSED) == 2
    letters.rows.execute("UPDATE t SET _retry = NULL WHERE _offset = 300")  # it is set aside again
    assert letters.marked_ahead("me", PASSED) == 1
    assert letters.close_ahead("another", Offsets({AT: 400}), 6, unread=()) == 0
    assert letters.close_ahead("me", Offsets({AT: 120}), 6, unread=()) == 0
    lost = [OffsetRange("t", 0, 140, 151)]
    assert letters.close_ahead("me", Offsets({AT: 400}), 6, unread=lost) == 0, "the letter is all that is left of it"
    assert letters.close_ahead("me", Offsets({AT: 400}), 6, unread=[OffsetRange("t", 0, 151, 200)]) == 1
    assert letters.marked_ahead("me", PASSED) == 0
    assert letters.held == [(7, None, None), (150, None, 6), (200, None, None), (300, None, None)]


def test_letters_that_may_be_anothers_are_not_marked() -> None:
    """A replay writes its letters where the old table's are, and earlier versions named no table."""
    assert Letters(150).mark_ahead("me", PASSED) == 0
    assert Letters(150, tables={150: "another"}, of="").mark_ahead("me", PASSED) == 0


def test_a_mark_of_letters_ahead_is_no_retry_of_theirs() -> None:
    """A run that was killed right before it closed one."""
    letters, forgotten = Letters(150, tables={150: "mine"}), []
    letters.mark_ahead("me", PASSED)
    letters.take_back(Offsets({AT: 200}), restored_to=5, highest=11, forget=forgotten.append)
    assert not forgotten
    assert [closed for *_, closed in letters.held] == [None]


SINCE_10, LOST = Offsets({AT: 10}), (OffsetRange("t", 0, 40, 60),)


@pytest.mark.parametrize("killed", [False, True], ids=["it closes them itself", "the next run does"])
def test_letters_of_records_that_nobody_has_read_stay_open(killed: bool) -> None:
    """They may be all that is left of these records: of those before the start, and of those that Kafka has lost."""
    letters = Letters(5, 20, 40, 59, 60, 200, tables=dict.fromkeys((5, 20, 40, 59, 60, 200), "mine"))
    run = LeftLetters(letters, "run")
    run.mark(None)
    committed = Position(6, PASSED, owner="run", since=SINCE_10, lost=LOST)
    if killed:
        LeftLetters(letters, "next").mark(committed)
    else:
        run.close(committed)
    assert {offset for offset, _, closed in letters.held if closed is None} == {5, 40, 59, 200}
    assert [closed for _, _, closed in letters.held if closed is not None] == [6, 6]
