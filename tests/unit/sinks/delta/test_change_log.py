"""The change log is looked for beside the look at its table; only its position has to come after the table's."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from sinks.contract import Position
from sinks.delta.change_log import ChangeLog
from sinks.delta.merge_on_read import MergeOnRead
from sinks.delta.standing import Standing
from sinks.offsets import Offsets


def of(exists: Callable[[], bool], detail: object = "there") -> ChangeLog:
    table: Any = SimpleNamespace(detail=lambda: detail, location="/lake/t")
    log = ChangeLog(table, pipeline="p", topics=["t"])
    log._at = SimpleNamespace(exists=exists)  # type: ignore[assignment]
    return log


def test_the_look_is_at_work_while_the_block_is_and_ends_with_it() -> None:
    begun, ended, seen = Event(), Event(), []

    def exists() -> bool:
        begun.set()
        assert ended.wait(10)
        seen.append("log")
        return True

    with of(exists).looked_for():
        assert begun.wait(10)
        ended.set()
    assert seen == ["log"]


def test_what_a_look_fails_at_is_left_to_who_asks_for_the_position() -> None:
    def fails() -> bool:
        raise OSError("no such bucket")

    log = of(fails)
    with log.looked_for():
        pass
    with pytest.raises(OSError, match="no such bucket"):
        log.position()


def test_nothing_is_looked_for_beside_a_table_that_is_not_there() -> None:
    """Its place isn't known, and must not be taken for one."""
    table: Any = SimpleNamespace(detail=lambda: None, location="")
    log = ChangeLog(table, pipeline="p", topics=["t"])
    with log.looked_for():
        pass
    assert log._at is None


class Engine:
    """A log's session whose newest version holds these epochs."""

    def __init__(self, epochs: list[int]) -> None:
        self.database = sqlite3.connect(":memory:")
        self.database.create_function("raise_error", 1, self._raise)
        self.database.execute("CREATE TABLE log (_epoch, k)")
        self.hold(epochs)
        self.said = ""

    def hold(self, epochs: list[int]) -> None:
        self.database.execute("DELETE FROM log")
        self.database.executemany("INSERT INTO log VALUES (?, 'a')", [(epoch,) for epoch in epochs])

    def sql(self, query: str) -> Any:
        return SimpleNamespace(collect=lambda: self.database.execute(query).fetchall())

    def _raise(self, text: str) -> None:
        self.said = text
        raise ValueError(text)


@pytest.mark.parametrize(
    ("at_first", "folded", "first", "shown"),
    [([], 57, 58, [58, 59]), ([50, 57, 58], 57, 50, [58, 59]), ([58], 57, 58, [58, 59]), ([], 1, 2, [2, 3])],
)
def test_a_view_fails_at_the_log_of_a_table_that_was_made_anew(
    at_first: list[int], folded: int, first: int, shown: list[int]
) -> None:
    """Its epochs begin at 1 again, and the view would leave them out as folded ones."""
    log, engine = of(lambda: True), Engine(at_first)
    log._of.label, log._of.spark = "lake/orders", engine  # type: ignore[misc,assignment]
    log._at = SimpleNamespace(spark=engine, sql="log")  # type: ignore[assignment]
    nothing: Any = SimpleNamespace(
        reduce=SimpleNamespace(sql=lambda changes: f"SELECT * FROM {changes}"),
        table=SimpleNamespace(
            make_ready_for_views=lambda _: None,
            not_merged_sql=lambda changes: changes,
            merged_sql=lambda rows, *_, **__: f"SELECT * FROM {rows}",
        ),
    )
    log.started_with = lambda *_: (SimpleNamespace(names=["_epoch"]), "")  # type: ignore[method-assign,assignment]
    view = MergeOnRead(log._of, log._of, log, nothing, lambda *_: nothing, pipeline="p")  # type: ignore[arg-type]
    stands = Position(folded, Offsets({}), owner="r", version=1)
    view.standing = lambda: Standing(stands, replace(stands, epoch=folded + 1))  # type: ignore[method-assign]
    query = (view.view_sql("v") or "").partition(" AS\n")[2]
    for held in ([*at_first], [*at_first, *shown], shown, []):
        engine.hold(held)
        found = engine.sql(query).collect()
        assert [epoch for (epoch,) in found] == [epoch for epoch in held if epoch > folded]
    # Delta skips files by plain comparisons alone: folded epochs must be left out without the CASE, too.
    skipping = re.sub(r"CASE .* END", "1", query)
    engine.hold([first - 1, *range(first, folded + 1), *shown])
    assert engine.sql(skipping).collect() == [(first - 1,), *((epoch,) for epoch in shown)]
    engine.hold([first - 1])
    if first > 2:  # the first epoch of a table is merged into it
        with pytest.raises(sqlite3.OperationalError):
            engine.sql(query).collect()
        assert engine.said.startswith("The table lake/orders was made anew or set back since this view was made")
