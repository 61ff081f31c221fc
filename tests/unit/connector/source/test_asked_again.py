"""Questions to a broker or a registry that may be answered later."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

from connector.source.asked_again import asked_again
from sinks.errors import BrokerUnreachable, LakelockError, TopicMissing


def failing(*errors: Exception) -> Callable[[], str]:
    left = list(errors)

    def question() -> str:
        if left:
            raise left.pop(0)
        return "told"

    return question


def away() -> BrokerUnreachable:
    return BrokerUnreachable("away", hint="Start it.")


def may_pass(error: Exception) -> bool:
    return isinstance(error, LakelockError) and error.transient


def test_it_asks_until_it_is_told() -> None:
    waited: list[int] = []
    closed: list[int] = []

    def wait(asked: int) -> float:
        waited.append(asked)
        return 0

    question = failing(away(), away())
    assert asked_again(question, may_pass=may_pass, wait=wait, before=lambda: closed.append(1)) == "told"
    assert waited == [1, 2]
    assert closed == [1, 1]


def test_what_can_not_pass_is_raised_at_once() -> None:
    with pytest.raises(TopicMissing):
        asked_again(failing(TopicMissing("none")), may_pass=may_pass, wait=lambda _: pytest.fail("waited"))


@pytest.mark.parametrize("limit", [{"attempts": 2}, {"seconds": 0.0}])
def test_after_the_limit_the_last_failure_is_raised(limit: dict[str, float]) -> None:
    errors = [away() for _ in range(3)]
    with pytest.raises(BrokerUnreachable) as caught:
        asked_again(failing(*errors), may_pass=may_pass, wait=lambda _: 0.0, **limit)  # type: ignore[arg-type]
    assert caught.value is errors[1 if "attempts" in limit else 0]


def test_the_trace_of_an_error_has_one_frame_of_it_and_ends_with_the_hint() -> None:
    with pytest.raises(BrokerUnreachable) as caught:
        asked_again(failing(away(), away()), may_pass=may_pass, wait=lambda _: 0.0, attempts=2)
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[1:] == ["asked_again", "question"]
    assert caught.value.__context__ is None
    if hasattr(caught.value, "add_note"):
        assert traceback.format_exception(caught.value)[-1] == "What to do: Start it.\n"
