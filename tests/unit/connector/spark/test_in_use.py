"""A session that several calls of one process use: who opens it, who closes it, and whose settings it may have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.spark.in_use import InUse, refuse_other_settings
from sinks.errors import ConfigurationError

ZONE = "spark.sql.session.timeZone"
FEW = "spark.sql.shuffle.partitions"


@dataclass
class Sessions:
    """Counts what was opened, and knows what is open."""

    opened: int = 0
    open: list[int] = field(default_factory=list)

    @contextmanager
    def one(self) -> Iterator[int]:
        self.opened += 1
        number = self.opened
        self.open.append(number)
        yield number
        self.open.remove(number)


@given(st.lists(st.integers(0, 4)))
def test_it_is_open_as_long_as_anybody_uses_it_and_no_longer(who: list[int]) -> None:
    """Each number is a call that begins, or ends if it has begun, in any order."""
    sessions, in_use = Sessions(), InUse[int]()
    calls: dict[int, AbstractContextManager[int]] = {}
    for number in who:
        if number in calls:
            calls.pop(number).__exit__(None, None, None)
        else:
            began = in_use.thing is None
            call = in_use.joined(sessions.one)
            assert call.__enter__() == sessions.opened
            assert sessions.open == [sessions.opened], "one at a time, for all"
            assert began == (not calls)
            calls[number] = call
        assert bool(sessions.open) == bool(calls) == (in_use.thing is not None)
    for call in calls.values():
        call.__exit__(None, None, None)


def test_what_could_not_be_opened_is_opened_by_the_next_one() -> None:
    @contextmanager
    def fails() -> Iterator[int]:
        raise RuntimeError("no Java")
        yield 0

    sessions, in_use = Sessions(), InUse[int]()
    with pytest.raises(RuntimeError, match="no Java"), in_use.joined(fails):
        pass
    with in_use.joined(sessions.one):
        assert sessions.open == [1]
    assert sessions.open == []


def test_a_call_that_fails_leaves_it_to_the_others() -> None:
    sessions, in_use = Sessions(), InUse[int]()
    with ExitStack() as other:

        def fail() -> None:
            with in_use.joined(sessions.one):
                other.enter_context(in_use.joined(sessions.one))
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fail()
        assert sessions.open == [1]
    assert sessions.open == []


@pytest.mark.parametrize(
    ("first", "second", "clashes"),
    [
        ({}, {}, False),
        ({ZONE: "Europe/Berlin"}, {ZONE: "Europe/Berlin"}, False),
        ({}, {ZONE: "UTC"}, False),
        ({}, {ZONE: "Europe/Berlin"}, True),
        ({ZONE: "Europe/Berlin"}, {}, True),
        ({FEW: "2"}, {}, False),
        ({}, {FEW: "2"}, False),
        ({FEW: "2"}, {FEW: "3"}, True),
    ],
)
def test_whoever_comes_later_wants_the_same_settings(
    first: dict[str, str], second: dict[str, str], clashes: bool
) -> None:
    if not clashes:
        refuse_other_settings(second, first)
        return
    with pytest.raises(ConfigurationError) as refused:
        refuse_other_settings(second, first)
    assert next(iter(first or second)) in refused.value.message
