"""Conflicts with other writers' commits: what is tried again, and what is left for later."""

import logging
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from sinks.delta import conflicts
from sinks.delta.conflicts import done_or_left, is_conflict, past_conflicts
from sinks.delta.dead_letters import DeadLetters
from sinks.errors import PositionMismatch

CONFLICTS = [
    f"An error occurred while calling o1.sql.\n: io.delta.exceptions.{name}: Files were added"
    for name in ("ConcurrentDeleteReadException", "ConcurrentDeleteDeleteException", "ConcurrentAppendException")
] + [f"[DELTA_{name}] ..." for name in ("CONCURRENT_DELETE_READ", "CONCURRENT_DELETE_DELETE", "CONCURRENT_APPEND")]


@pytest.fixture(autouse=True)
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of every wait, in place of waiting."""
    waits: list[float] = []
    monkeypatch.setattr(conflicts.time, "sleep", waits.append)
    return waits


class Contested:
    """A write that conflicts so many times."""

    def __init__(self, times: int, error: Exception) -> None:
        self.left, self.error, self.calls = times, error, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.left:
            raise self.error
        return "done"


@pytest.mark.parametrize("said", CONFLICTS)
def test_a_conflict_is_followed_by_another_attempt(said: str, waited: list[float]) -> None:
    assert is_conflict(RuntimeError(said))
    write = Contested(2, RuntimeError(said))
    assert past_conflicts(write) == "done"
    assert (write.calls, len(waited)) == (3, 2)


def test_what_always_conflicts_is_left_with_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture, waited: list[float]
) -> None:
    clean_up = Contested(100, RuntimeError(CONFLICTS[0]))
    with caplog.at_level(logging.WARNING, "lakelock.delta"):
        assert not done_or_left(clean_up, "expired tombstones of 'lake/t'")
    assert (clean_up.calls, len(waited)) == (6, 5)
    assert caplog.messages == [
        "expired tombstones of 'lake/t': not removed yet, because other commits came first 6 times. The next upkeep "
        "removes them."
    ]
    assert done_or_left(Contested(5, RuntimeError(CONFLICTS[0])), "x")


@pytest.mark.parametrize("error", [RuntimeError("no space left"), PositionMismatch("CONCURRENT_APPEND")])
def test_any_other_error_gets_out(error: Exception) -> None:
    clean_up = Contested(1, error)
    with pytest.raises(type(error)):
        done_or_left(clean_up, "x")
    assert clean_up.calls == 1


class Crowded:
    """A table whose writes conflict with every commit that lands meanwhile. Its seconds take a millisecond."""

    def __init__(self, sleep: Any = time.sleep) -> None:
        self.sleep, self.version, self.conflicts, self._commit = sleep, 0, 0, threading.Lock()

    def wait(self, seconds: float) -> None:
        self.sleep(seconds / 1000)

    def first(self) -> tuple[int]:
        seen = self.version
        self.wait(random.uniform(1.5, 2.5))
        with self._commit:
            if self.version != seen:
                self.conflicts += 1
                raise RuntimeError(CONFLICTS[-1])
            self.version += 1
        return (1,)


SLEEP = time.sleep


def test_pipelines_that_share_a_table_of_letters_do_not_stop_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    crowded = Crowded(SLEEP)
    monkeypatch.setattr(conflicts.time, "sleep", crowded.wait)
    spark = SimpleNamespace(sql=lambda _: crowded)
    table: Any = SimpleNamespace(sql="t", label="t", spark=spark, schema=SimpleNamespace(names=["_table"]))
    letters = [DeadLetters(table, pipeline=f"p{number}") for number in range(12)]

    def writes(one: DeadLetters) -> None:
        for _ in range(5):
            one._run("MERGE ...")

    with ThreadPoolExecutor(len(letters)) as threads:
        list(threads.map(writes, letters))
    assert crowded.version == 60
    assert crowded.conflicts > 60, "the table was crowded"


def test_a_write_of_letters_that_always_conflicts_ends(waited: list[float]) -> None:
    always = Contested(1000, RuntimeError(CONFLICTS[0]))
    spark = SimpleNamespace(sql=lambda _: SimpleNamespace(first=always))
    table: Any = SimpleNamespace(sql="t", label="t", spark=spark)
    with pytest.raises(RuntimeError, match="Concurrent"):
        DeadLetters(table, pipeline="p")._run("UPDATE ...")
    assert max(waited) <= 5
    assert len(waited) == 99
