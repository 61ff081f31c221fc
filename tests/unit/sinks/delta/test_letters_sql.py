"""What a retry leaves of the letters of records that are still bad: the query's own text, in SQLite."""

from __future__ import annotations

import re

import pytest
from spark_in_sqlite import database

from sinks.delta.letters_sql import COLUMNS, IDENTITY, SOURCE, steps_sql

Letter = tuple[int, str, str | None, str | None]
"""Offset, reason, the run that has marked it, and the table that it is of."""
_MADE = ("detail", "key", "value", "headers", "_timestamp")


def kept(letters: list[Letter], still_bad: list[tuple[int, str]], *, times: int = 1) -> list[Letter]:
    """The letters after the run "r" of table "x" has found these records bad, for these reasons."""
    db = database()
    db.execute(f"CREATE TABLE t ({', '.join(COLUMNS)})")
    db.executemany(
        "INSERT INTO t (pipeline, _topic, _partition, _offset, reason, _retry, _table, epoch, _noted_at) "
        "VALUES ('p', 't', 0, ?, ?, ?, ?, 7, 'then')",
        letters,
    )
    db.execute(f"CREATE TABLE {SOURCE} ({', '.join((*IDENTITY, *_MADE))})")
    db.executemany(
        f"INSERT INTO {SOURCE} (_topic, _partition, _offset, reason, detail) VALUES ('t', 0, ?, ?, 'now')", still_bad
    )
    for _ in range(times):
        names = ["step", *IDENTITY, *_MADE, "epoch", "_noted_at", "_table"]
        sql = re.sub("<=>", "IS", steps_sql("t", "p", "r", ["x"]))
        steps = [dict(zip(names, row, strict=True)) for row in db.execute(sql).fetchall()]
        marked = "_offset = ? AND reason = ? AND _retry = 'r'"
        for step in sorted(steps, key=lambda step: step["step"] == "add"):
            at = (step["_offset"], step["reason"])
            if step["step"] == "keep":
                changed = db.execute(f"UPDATE t SET _retry = NULL, detail = 'now' WHERE {marked}", at)
                assert changed.rowcount == 1
            elif step["step"] == "drop":
                assert db.execute(f"DELETE FROM t WHERE {marked}", at).rowcount
            else:
                assert (step["epoch"], step["_noted_at"], step["detail"]) == (7, "then", "now")
                own = {"pipeline": "p", **{name: value for name, value in step.items() if name != "step"}}
                db.execute(f"INSERT INTO t ({', '.join(own)}) VALUES ({', '.join('?' * len(own))})", [*own.values()])
    return [tuple(row) for row in db.execute("SELECT _offset, reason, _retry, _table FROM t ORDER BY 1, 2, 3, 4")]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    ("before", "now"),
    [
        (["no_key", "no_sequence"], ["no_key", "no_sequence"]),
        (["no_key"], ["no_key", "unfit"]),
        (["no_key", "no_sequence"], ["no_sequence"]),
        (["no_key", "no_sequence"], ["unfit"]),
        (["no_key", "no_key"], ["no_key"]),
        (["no_key", "no_key"], ["no_key", "unfit"]),
    ],
    ids=["as before", "one more", "one less", "another", "twice", "twice, and one more"],
)
def test_a_record_that_is_still_bad_has_one_open_letter_of_each_reason_that_it_has_now(
    before: list[str], now: list[str], times: int
) -> None:
    other: list[Letter] = [(2, "no_key", "r", "x"), (3, "no_key", None, "x"), (5, "no_key", "r", "x")]
    letters: list[Letter] = [(1, reason, "r", "x") for reason in before]
    left = kept([*letters, *other], [*((1, reason) for reason in now), (5, "no_key")], times=times)
    assert left == [*((1, reason, None, "x") for reason in sorted(now)), *other[:2], (5, "no_key", None, "x")]


def test_letters_that_another_retry_has_taken_over_are_left_to_it() -> None:
    letters: list[Letter] = [(1, "no_key", "another", "x"), (1, "no_sequence", "another", "x")]
    assert kept(letters, [(1, "unfit")]) == letters


def test_a_reason_with_a_letter_that_is_not_tried_gets_no_second_one() -> None:
    letters: list[Letter] = [(1, "no_key", None, "x"), (1, "no_sequence", "r", "x")]
    assert kept(letters, [(1, "no_key")]) == [(1, "no_key", None, "x")]


def test_the_letter_of_another_table_is_another_letter() -> None:
    letters: list[Letter] = [(1, "no_key", None, "y"), (1, "no_sequence", "r", "x")]
    assert kept(letters, [(1, "no_key")]) == [(1, "no_key", None, "x"), (1, "no_key", None, "y")]
