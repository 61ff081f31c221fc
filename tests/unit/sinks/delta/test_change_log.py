"""The change log is looked for beside the look at its table; only its position has to come after the table's."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from sinks.delta.change_log import ChangeLog


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
