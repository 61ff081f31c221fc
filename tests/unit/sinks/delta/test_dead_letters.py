"""What becomes of dead letters when the table is taken back: the statements' own text, in SQLite."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from spark_in_sqlite import database

from connector.engine import letters_again, one_table
from connector.engine.left_letters import LeftLetters
from connector.engine.letters_again import open_undone
from sinks.contract import Position
from sinks.delta.dead_letters import DeadLetters
from sinks.delta.past_restores import PastRestore
from sinks.offsets import Offsets
from sinks.recreated import with_retired_names

COLUMNS = "pipeline, epoch, _topic, _partition, _offset, _retry, _retried_epoch, _retried_at"


class Letters(DeadLetters):
    """A table of dead letters in SQLite."""

    def __init__(self, *rows: tuple[int, str, int, str | None, int | None]) -> None:
        """``rows``: epoch, topic, offset, retry and the epoch of the retry."""
        spark = SimpleNamespace(sql=lambda sql: SimpleNamespace(first=lambda: self._db.execute(sql).fetchone()))
        table: Any = SimpleNamespace(sql="t", exists=lambda: True, label="t", spark=spark)
        super().__init__(table, pipeline="p")
        self._ready = True
        self._db = database()
        self._db.row_factory = sqlite3.Row
        self._db.execute(f"CREATE TABLE t ({COLUMNS})")
        self._db.executemany("INSERT INTO t VALUES ('p', ?, ?, 0, ?, ?, ?, NULL)", rows)

    def _run(self, sql: str) -> int:
        return self._db.execute(re.sub(r"(\d+)L\b", r"\1", sql.replace("current_timestamp()", "'now'"))).rowcount

    @property
    def stand(self) -> list[tuple[str, int, int | None]]:
        """Topic, offset and the epoch that closed it, of each letter."""
        return [tuple(row) for row in self._db.execute("SELECT _topic, _offset, _retried_epoch FROM t ORDER BY 1, 2")]

    def forgotten(self, records: str) -> list[tuple[str, int, int]]:
        return [tuple(row) for row in self._db.execute(f"SELECT * FROM {records}")]


def test_letters_of_epochs_that_were_undone_are_closed_and_those_that_they_closed_reopened() -> None:
    retried = [(8, "t", 50, "r", 11), (8, "t", 60, "r", 9), (8, "t", 80, "r", 14)]
    letters = Letters(*retried, (8, "t", 70, None, None), (11, "t", 150, None, None))
    forgotten: list[tuple[str, int, int]] = []
    for _ in range(2):
        letters.take_back(
            Offsets.from_dict({"t": {"0": 100}}), 10, 12, forget=lambda sql: forgotten.extend(letters.forgotten(sql))
        )
        stand = [("t", 50, None), ("t", 60, 9), ("t", 70, None), ("t", 80, 14), ("t", 150, 13)]
        assert letters.stand == stand, "a retry of a later epoch stays as it is"
    assert forgotten == [("t", 0, 50)], "before it is open again"


@pytest.mark.parametrize("taken_in", [{"t"}, set()], ids=["the new topic was taken in", "it wasn't yet"])
def test_a_restore_to_before_a_retirement_leaves_the_old_topics_letters_as_they_were_then(taken_in: set[str]) -> None:
    """Their records are gone. Those of the new topic are read again from its beginning, whatever their offsets."""
    old = [(8, "#a/t", 50, None, None), (8, "#a/t", 60, "r", 12), (8, "#a/t", 1500, None, None)]
    new = [(12, "t", 50, None, None), (12, "t", 70, "r", 13), (12, "t", 2000, None, None)]
    letters = Letters(*old, *(new if taken_in else ()), (7, "#x/t", 5, None, None))
    offsets = Offsets.from_dict({"t": {"0": 1000}, "#x/t": {"0": 10}})
    for _ in range(2):
        letters.take_back(with_retired_names(offsets, {"t": "a"}), 10, 13, taken_in=taken_in)
    of_new = [("t", 50, 14), ("t", 70, 13), ("t", 2000, 14)] if taken_in else []
    assert letters.stand == [("#a/t", 50, None), ("#a/t", 60, None), ("#a/t", 1500, None), ("#x/t", 5, None), *of_new]


def test_a_restore_under_a_consumer_groups_offsets_closes_nothing_and_reopens_what_a_retry_has_closed() -> None:
    """No record is read again, so a closed letter would be a lost record. A batch's number says nothing of epochs."""
    letters = Letters((1, "t", 50, None, None), (7, "t", 900, None, None), (1, "t", 60, "r", 3))
    for _ in range(2):
        letters.take_back(None, 1, 3)
        assert letters.stand == [("t", 50, None), ("t", 60, None), ("t", 900, None)]


PAST = PastRestore(Position(5, Offsets.from_dict({"t": {"0": 100}})), highest=10)


def opened(letters: Letters, *past: PastRestore) -> int:
    table: Any = SimpleNamespace(table=None, commits=None, derivation=SimpleNamespace(tombstones=None))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(letters_again, "past_restores", lambda *_, **__: past)
        return open_undone(letters, table, "p")


def test_a_letter_is_open_again_if_its_retry_is_not_in_the_table_whoever_looked_back_at_the_restore() -> None:
    """The run that followed the RESTORE had a file without `dead_letters`, for instance, and has committed epochs."""
    closed = [(3, "t", 50, "r", 8), (3, "t", 60, "r", 4), (3, "t", 70, "r", 12)]
    read_again = [(6, "t", 550, "r", 8), (3, "t", 80, None, 8)]
    letters = Letters(*closed, *read_again)
    for number in (1, 0):
        assert opened(letters, PAST) == number
        assert letters.stand == [("t", 50, None), ("t", 60, 4), ("t", 70, 12), ("t", 80, 8), ("t", 550, 8)]


def test_after_a_restore_under_a_consumer_groups_offsets_every_retry_that_it_has_undone_counts() -> None:
    letters = Letters((3, "t", 550, "r", 8))
    assert opened(letters, replace(PAST, to=replace(PAST.to, delivery="manual_commit"))) == 1


def test_letters_of_a_recreated_topic_that_is_read_again_stay_closed() -> None:
    letters = Letters((7, "t", 50, "r", 8), (3, "#a/t", 60, "r", 8))
    past = replace(PAST, to=replace(PAST.to, topics={"t": "a"}), taken_in={"t"})
    assert (opened(letters, past), letters.stand) == (1, [("#a/t", 60, None), ("t", 50, 8)])


def test_without_a_letter_that_a_retry_has_closed_no_history_is_read() -> None:
    letters = Letters((3, "t", 50, None, None), (3, "t", 60, None, 8))
    unread: Any = None
    assert (letters.oldest_retry(), open_undone(letters, unread, "p")) == (None, 0)


def test_after_a_restore_letters_get_the_id_that_it_brought_back_before_they_are_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`accept` had given them that of the table which somebody had put in its place."""
    did: list[str] = []
    letters: Any = SimpleNamespace(
        exists=lambda: True,
        take_along=lambda former: did.append(f"letters of {former}"),
        take_back=lambda *_, **__: did.append("take back"),
        close_ahead=lambda run, *_, **__: did.append(f"close those of {run}"),
    )
    monkeypatch.setattr(one_table, "letters_table", lambda *_: letters)
    monkeypatch.setattr(one_table, "former_ids", lambda *_: {"y"})
    table: Any = SimpleNamespace(
        derivation=SimpleNamespace(tombstones=None), commits=SimpleNamespace(taken_in_since=lambda _: ()), table=None
    )
    config: Any = SimpleNamespace(whole=SimpleNamespace(two_phase=False), name="p")
    unused: Any = None
    position = Position(4, PAST.to.offsets, owner="run", restored_to=3, source="restored")
    one_table.after_restore(config, unused, position, table)
    assert did == ["letters of y", "take back", "close those of run"]


@pytest.mark.parametrize(("owner", "closed"), [("killed", 6), ("another", None)])
def test_letters_that_a_killed_run_has_marked_are_closed_before_an_epoch_of_another_kind(
    owner: str, closed: int | None
) -> None:
    """The newest epoch is the only one that says whose marks count: the letter of a run that was replaced, which has
    marked it in vain, is rightly open."""
    letters = Letters((5, "t", 50, "ahead of killed", None))
    LeftLetters(letters, "accept").finish(Position(6, PAST.to.offsets, owner=owner))
    assert letters.stand == [("t", 50, closed)]


def test_what_a_killed_run_had_marked_stays_closed_when_its_epoch_is_restored_and_looked_back_at_twice() -> None:
    letters = Letters((5, "t", 50, "ahead of killed", None))
    for _ in range(2):
        letters.take_back(PAST.to.offsets, 6, 9)
        LeftLetters(letters, "").finish(replace(PAST.to, epoch=9, owner="killed", restored_to=6))
        assert letters.stand == [("t", 50, 6)]
