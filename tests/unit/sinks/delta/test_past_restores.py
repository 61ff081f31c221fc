"""Which epochs the RESTOREs of a table's history have undone, and which ids of the table: by hand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest

from sinks.contract import Position
from sinks.delta.metadata import CommitMetadata
from sinks.delta.past_restores import restores, undone_ids
from sinks.delta.position import Commit
from sinks.offsets import Offsets, TopicPartition


class History:
    """One line per commit: operation, metadata, parameters. ``stale``: versions whose metadata is a copy."""

    def __init__(self, *commits: Any) -> None:
        self.stale: set[int] = set()
        self.commits = {
            version: Commit(
                version, datetime(2026, 1, 1, tzinfo=timezone.utc), line[0], line[2] if len(line) > 2 else {}, line[1]
            )
            for version, line in enumerate(commits)
        }


def epoch(number: int, table: str = "") -> str:
    offsets = Offsets({TopicPartition("t", 0): number * 100})
    return CommitMetadata("p", Position(number, offsets), table=table).to_json()


TO_5 = ("RESTORE", None, {"version": "4"})


def epochs(first: int, last: int) -> Iterator[tuple[str, str]]:
    return (("WRITE", epoch(number)) for number in range(first, last + 1))


def undone(history: History, since: int = 1) -> list[tuple[int, int]]:
    """The epoch that each RESTORE went back to, and the last one that it has undone."""
    found = restores(
        max(history.commits), history.commits.get, lambda at, _: at not in history.stale, pipeline="p", since=since
    )
    return [(past.to.epoch, past.highest) for past in found]


ONCE = [*epochs(1, 10), TO_5, *epochs(11, 13)]


@pytest.mark.parametrize(
    ("commits", "expected"),
    [
        ([*epochs(1, 10)], []),
        ([*epochs(1, 10), TO_5], [(5, 10)]),
        (ONCE, [(5, 10)]),
        ([*epochs(1, 10), TO_5, ("OPTIMIZE", None), *epochs(11, 13)], [(5, 10)]),
        ([*ONCE, ("RESTORE", None, {"version": "12"}), *epochs(14, 15)], [(12, 13), (5, 10)]),
        ([*ONCE, ("RESTORE", None, {"version": "9"}), *epochs(14, 15)], [(10, 13)]),
        ([*ONCE, ("RESTORE", None, {"version": "10"}), *epochs(14, 15)], [(5, 13), (5, 10)]),
        ([*ONCE, ("RESTORE", None, {"version": "13"}), *epochs(14, 15)], [(5, 10)]),
        ([("CREATE TABLE", None), *epochs(1, 3), ("RESTORE", None, {"version": "0"}), *epochs(4, 5)], []),
        ([*epochs(1, 10), ("RESTORE", None, {"timestamp": "2026-01-01"}), *epochs(11, 13)], []),
    ],
    ids=["none", "nothing since", "epochs since", "others between", "two", "forward again", "to a restore",
         "to the newest", "before the first epoch", "to a time"],
)  # fmt: skip
def test_a_restore_has_undone_the_epochs_that_lead_no_more_to_the_rows(
    commits: list[Any], expected: list[tuple[int, int]]
) -> None:
    assert undone(History(*commits)) == expected


def test_the_history_is_read_as_far_back_as_the_epochs_in_question() -> None:
    history = History(*ONCE)
    assert (undone(history, since=10), undone(history, since=11)) == ([(5, 10)], [])
    del history.commits[10]
    assert undone(history, since=11) == []
    history = History(*ONCE)
    history.stale = {4}  # a copy of metadata is no epoch
    assert undone(history) == [(4, 10)]


def test_the_ids_that_a_restore_takes_from_a_table_are_told() -> None:
    history = History(
        ("WRITE", epoch(1, "before")), ("REPLACE", None), ("WRITE", epoch(2, "x")), ("REPLACE", None),
        ("WRITE", epoch(3, "y")), ("WRITE", epoch(4, "copied")), ("RESTORE", None, {"version": "2"}),
    )  # fmt: skip

    def ids(restored_to: int, now: str) -> set[str]:
        return undone_ids(6, history.commits.get, lambda at, _: at != 5, pipeline="p", restored_to=restored_to, now=now)

    assert (ids(2, "x"), ids(0, "before"), ids(4, "y")) == ({"y"}, {"x", "y"}, set())
