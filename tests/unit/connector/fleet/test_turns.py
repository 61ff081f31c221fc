"""Turns: at most so many at once, a large backlog first, and nobody waits forever."""

import threading
from collections.abc import Iterator

import pytest
from conftest import wait_until

from connector.fleet.turns import Turn, Turns, urgency
from connector.protocol.steps import Event, Step
from sinks.contract import Epoch, Position
from sinks.offsets import Offsets

NOTHING = Epoch.that_left(Position(1, Offsets()), pipeline="p")


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    """Set at the end, so that no thread is left waiting."""
    event = threading.Event()
    yield event
    event.set()


def test_a_larger_lag_is_more_urgent_and_waiting_beats_any_lag() -> None:
    assert urgency(1, 1_000_000) > urgency(1, 1000) > urgency(1, 0)
    assert urgency(8, 0) > urgency(1, 1_000_000)
    assert urgency(1, None) == urgency(1, 1_000_000), "who hasn't looked yet is taken to have much to do"


def test_no_more_than_so_many_work_at_once(stop: threading.Event) -> None:
    turns, working, most = Turns(2), [0], [0]
    lock = threading.Lock()

    def work() -> None:
        with Turn(turns, stop).taken():
            with lock:
                working[0] += 1
                most[0] = max(most[0], working[0])
            stop.wait(0.01)
            with lock:
                working[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert most == [2]
    assert working == [0]


def test_who_is_further_behind_goes_first(stop: threading.Event) -> None:
    clock = [0.0]
    turns, order = Turns(1, lambda: clock[0]), []

    def work(behind: int) -> None:
        turn = Turn(turns, stop)
        turn.behind = behind
        with turn.taken():
            order.append(behind)

    with Turn(turns, stop).taken():
        threads = [threading.Thread(target=work, args=(behind,)) for behind in (10, 100_000, 1000)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(turns._waiting) == 3)
        clock[0] = 1.0
    for thread in threads:
        thread.join(10)
    assert order == [100_000, 1000, 10]


def second(turns: Turns, stop: threading.Event, order: list[str]) -> threading.Thread:
    """Notes when it gets a turn."""

    def work() -> None:
        with Turn(turns, stop).taken():
            order.append("second")

    return threading.Thread(target=work)


def test_after_an_epoch_the_turn_goes_to_who_waits(stop: threading.Event) -> None:
    turns, order = Turns(1), []
    first, thread = Turn(turns, stop), second(turns, stop, order)
    with first.taken():
        first(Event(Step.OFFSETS_COMMITTED, NOTHING, behind=5))
        order.append("first")
        thread.start()
        wait_until(turns.wanted)
        first(Event(Step.PLANNED, NOTHING, behind=5))
        first(Event(Step.OFFSETS_COMMITTED, NOTHING, behind=0))
        assert order == ["first"], "neither in the middle of an epoch, nor with nothing left to do"
        first(Event(Step.OFFSETS_COMMITTED, NOTHING, behind=5))
        order.append("first again")
    thread.join(10)
    assert order == ["first", "second", "first again"]
    assert first.behind == 5


def test_a_group_that_refuses_the_offsets_keeps_nobody_waiting(stop: threading.Event) -> None:
    turns, order = Turns(1), []
    first, thread = Turn(turns, stop), second(turns, stop, order)
    with first.taken():
        thread.start()
        wait_until(turns.wanted)
        first(Event(Step.PLANNED, NOTHING, behind=5))
        first(Event(Step.COMMITTED, NOTHING, behind=5))
        order.append("first")
        first(Event(Step.PLANNED, NOTHING, behind=0))
        order.append("first again")
    thread.join(10)
    assert order == ["first", "second", "first again"]


def test_who_sleeps_between_two_rounds_has_no_turn(stop: threading.Event) -> None:
    turns = Turns(1)
    sleeper, other = Turn(turns, stop), Turn(turns, stop)
    slept = threading.Event()

    def sleep() -> None:
        with sleeper.taken():
            sleeper.wait(0.05)
            slept.set()

    thread = threading.Thread(target=sleep)
    thread.start()
    with other.taken():
        assert not slept.wait(0.2), "it gets its turn back before it goes on"
    assert slept.wait(10)
    thread.join(10)


def test_at_the_end_nobody_waits(stop: threading.Event) -> None:
    turns = Turns(1)
    waiting = Turn(turns, stop)
    ended = threading.Event()

    def work() -> None:
        with waiting.taken():
            ended.set()

    with Turn(turns, stop).taken():
        thread = threading.Thread(target=work)
        thread.start()
        wait_until(turns.wanted)
        stop.set()
        assert ended.wait(10)
    thread.join(10)
    assert waiting.is_set()
    assert waiting.wait(60), "a stop ends every sleep"
