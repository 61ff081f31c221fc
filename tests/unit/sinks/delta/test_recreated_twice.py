"""Two runs go on with a recreated topic at once: the UPDATEs of its retirement, run in SQLite."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sinks.contract import Committed, Epoch, Position
from sinks.delta import dead_letters, recreated
from sinks.delta.dead_letters import DeadLetters
from sinks.delta.fence import fenced
from sinks.delta.recreated import retire
from sinks.errors import Fenced
from sinks.offsets import Offsets

STOOD = Position(10, Offsets(), version=4, committed_at=datetime.fromtimestamp(2, timezone.utc))
RETIREMENT = Epoch("p", 11, "me", (), Offsets(), {}, None, STOOD, Offsets())
NAMES = {"t": "#1/t"}
BEFORE, LATER = 1_999_999, 2_000_001
"""Microseconds: before, and after, the position was committed."""


class Notes:
    """A table of tombstones or of dead letters."""

    def __init__(self, columns: str, *rows: tuple[object, ...]) -> None:
        self.sql, self.label = "notes", "notes"
        self.schema = SimpleNamespace(names=columns.split(", "))
        self.rows = sqlite3.connect(":memory:")
        self.rows.create_function("substring_index", 3, lambda text, by, _: text and text.rpartition(by)[2])
        self.rows.create_function("timestamp_micros", 1, lambda micros: micros)
        self.rows.execute(f"CREATE TABLE notes ({columns})")
        for row in rows:
            self.rows.execute(f"INSERT INTO notes VALUES ({', '.join('?' for _ in row)})", row)
        self.spark = SimpleNamespace(sql=lambda sql: SimpleNamespace(collect=lambda: self.rows.execute(sql)))

    def exists(self) -> bool:
        return True

    @property
    def names(self) -> list[tuple[str, int]]:
        return list(self.rows.execute("SELECT _topic, _offset FROM notes ORDER BY rowid"))


def letters() -> Notes:
    """Of committed epochs, of one that wasn't committed, of another pipeline, and of a run that has gone on."""
    rows = [("t", 5, "p", 9), ("t", 99, "p", 11), ("t", 5, "q", 9), ("other", 1, "p", 3), ("t", 50, "p", 12)]
    return Notes("_topic, _offset, pipeline, epoch, _noted_at", *((*row, LATER) for row in rows))


def retiring(monkeypatch: pytest.MonkeyPatch, commits: Any, notes: Notes, of_letters: Notes) -> Committed:
    schema = SimpleNamespace(names=["_topic"])
    table: Any = SimpleNamespace(
        sql="t", spark=SimpleNamespace(table=lambda _: SimpleNamespace(schema=schema), range=lambda _: None)
    )
    monkeypatch.setattr(recreated, "merge_epoch", lambda *_: None)
    monkeypatch.setattr(recreated, "proven", lambda commits, epoch, write: Committed(epoch.position(), rows=0))
    tombstones: Any = notes
    shared: Any = of_letters
    letters = DeadLetters(shared, pipeline="p", of=lambda: ["mine"])
    return retire(table, commits, RETIREMENT, NAMES, tombstones=tombstones, letters=letters)


def test_what_a_run_that_was_sooner_notes_of_the_new_topic_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes("_topic, _offset, _noted_by", ("t", 5, "a/b/9"), ("t", 7, None), ("t", 99, "r/11"), ("t", 3, "r/12"))
    of_letters = letters()
    commits: Any = SimpleNamespace(already=lambda _: None)
    retiring(monkeypatch, commits, notes, of_letters)
    assert notes.names == [("#1/t", 5), ("#1/t", 7), ("#1/t", 99), ("t", 3)]
    assert of_letters.names == [("#1/t", 5), ("#1/t", 99), ("t", 5), ("other", 1), ("t", 50)]
    old = Notes("_topic, _offset", ("t", 5))
    retiring(monkeypatch, commits, old, letters())
    assert old.names == [("#1/t", 5)], "a table of before there was such a column"


def test_a_clone_that_shares_the_letters_and_has_gone_on_keeps_the_name_of_the_new_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The numbers of its epochs say nothing of these."""
    rows = [("t", 1, "p", 9, "mine"), ("t", 2, "p", 9, "a clone"), ("t", 3, "p", 9, None)]
    of_letters = Notes("_topic, _offset, pipeline, epoch, _table, _noted_at", *((*row, BEFORE) for row in rows))
    commits: Any = SimpleNamespace(already=lambda _: None)
    retiring(monkeypatch, commits, Notes("_topic, _offset"), of_letters)
    assert of_letters.names == [("#1/t", 1), ("t", 2), ("#1/t", 3)]


def test_a_run_that_was_replaced_renames_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def already(epoch: Epoch) -> None:
        raise fenced(epoch, "t", owner="other", number=11)

    notes, of_letters = Notes("_topic, _offset, _noted_by", ("t", 5, "r/9")), letters()
    commits: Any = SimpleNamespace(already=already)
    with pytest.raises(Fenced):
        retiring(monkeypatch, commits, notes, of_letters)
    assert notes.names == [("t", 5)]
    assert of_letters.names == letters().names


def test_a_letter_of_a_consumer_groups_batch_is_renamed_whatever_number_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 0.2 wrote the batch's number, which may be higher than the epoch's. Today's say 0."""
    rows = [("t", 1, "p", 5000, BEFORE), ("t", 2, "p", 0, LATER), ("t", 3, "p", 5000, LATER)]
    of_letters = Notes("_topic, _offset, pipeline, epoch, _noted_at", *rows)
    commits: Any = SimpleNamespace(already=lambda _: None)
    retiring(monkeypatch, commits, Notes("_topic, _offset"), of_letters)
    assert of_letters.names == [("#1/t", 1), ("#1/t", 2), ("t", 3)]


@pytest.mark.parametrize(("delivery", "number"), [("transactional", 7), ("manual_commit", 0)])
def test_a_letter_of_a_consumer_groups_batch_has_no_epochs_number(
    monkeypatch: pytest.MonkeyPatch, delivery: str, number: int
) -> None:
    written: list[str] = []
    rows: Any = SimpleNamespace(
        selectExpr=lambda *columns: written.extend(columns) or rows, createOrReplaceTempView=lambda _: None
    )
    monkeypatch.setattr(dead_letters, "identified", lambda rows: rows)
    noted = DeadLetters(cast(Any, letters()), pipeline="p")
    noted._ready = True
    monkeypatch.setattr(noted, "_run", lambda _: 0)
    noted.add(rows, Epoch("p", 7, "me", (), Offsets(), {}, None, None, delivery=delivery))
    assert f"{number}L AS epoch" in written
