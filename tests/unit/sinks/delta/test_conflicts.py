"""Conflicts with other writers' commits: what is tried again, and what is left for later."""

import logging

import pytest

from sinks.delta import conflicts
from sinks.delta.conflicts import done_or_left, is_conflict, past_conflicts
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
