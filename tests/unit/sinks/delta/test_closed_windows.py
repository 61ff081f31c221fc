"""Where only the rows of a table tell the position, its closed windows tell the watermark."""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Sequence
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from sinks.contract import Position
from sinks.delta import commit as module
from sinks.delta.commit import PipelineCommits
from sinks.delta.position import Commit
from sinks.event_time import Clock
from sinks.offsets import Offsets, TopicPartition

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
Row = tuple[str, datetime, bool]
"""Of a window: the partition whose records it has, its end, and whether it is closed."""


class Query:
    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows = rows

    def collect(self) -> Sequence[dict[str, Any]]:
        return self.rows


class Table:
    """A table of windows whose history holds no commit of the pipeline any more. SQLite runs its queries."""

    label, sql, id, is_new = "t", "windows", "the id", False

    def __init__(self, rows: Sequence[Row], columns: Sequence[str]) -> None:
        self.spark, self.columns, self.log = self, columns, SimpleNamespace(highest_txn=lambda _: 7)
        self.database = sqlite3.connect(":memory:")
        self.database.row_factory = sqlite3.Row
        for name in ("explode", "map_keys"):  # a window has the records of one partition here
            self.database.create_function(name, 1, lambda value: value)
        self.database.create_function("unix_micros", 1, lambda value: value)
        self.database.execute("CREATE TABLE windows (_applied, window_end, window_closed)")
        epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
        for place, end, closed in rows:
            values = [place, (end - epoch) // timedelta(microseconds=1), closed]
            self.database.execute("INSERT INTO windows VALUES (?, ?, ?)", values)

    def coordinates(self, _: Container[str]) -> Offsets:
        return Offsets({TopicPartition("t", 0): 5})

    def detail(self) -> Any:
        return SimpleNamespace(log_retention=timedelta(days=30))

    def sql_of(self, text: str) -> Query:
        return Query([dict(row) for row in self.database.execute(text)])


def position(
    monkeypatch: pytest.MonkeyPatch, *rows: Row, lateness: timedelta | None = HOUR, columns: Sequence[str] = ()
) -> Position:
    table: Any = Table(rows, columns or ("_applied", "window_end", "window_closed"))
    table.spark = SimpleNamespace(sql=table.sql_of)
    newest = Commit(9, NOON, "OPTIMIZE", {}, None)
    history = SimpleNamespace(newest=lambda: newest, at=lambda version: newest if version == 9 else None)
    monkeypatch.setattr(module, "PastCommits", lambda _: history)
    monkeypatch.setattr("sinks.delta.closed_windows.uncached", lambda *_: SimpleNamespace(columns=table.columns))
    found = PipelineCommits(table, pipeline="p", topics={"t"}, allowed_lateness=lateness).position()
    assert found is not None
    assert (found.source, found.epoch) == ("rows", 7)
    return found


def test_the_newest_closed_window_says_how_far_the_watermark_was_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    found = position(monkeypatch, ("t-0", NOON - HOUR, True), ("t-1", NOON, True), ("t-0", NOON + HOUR, False))
    assert found.clock.watermark == NOON + HOUR, "allowed_lateness has passed since the end of the closed one"
    assert found.clock.so_far == {}


def test_windows_of_another_pipeline_close_nothing_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = position(monkeypatch, ("t-0", NOON, True), ("other-0", NOON + 9 * HOUR, True))
    assert found.clock.watermark == NOON + HOUR
    assert position(monkeypatch, ("other-0", NOON, True)).clock == Clock()


def test_a_table_without_closed_windows_tells_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert position(monkeypatch, ("t-0", NOON, False)).clock == Clock()
    assert position(monkeypatch, ("t-0", NOON, True), lateness=None).clock == Clock()
    assert position(monkeypatch, ("t-0", NOON, True), columns=["_applied"]).clock == Clock()


def test_an_end_that_no_time_can_follow_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    last = datetime.max.replace(tzinfo=timezone.utc)
    assert position(monkeypatch, ("t-0", last, True)).clock.watermark == last
