"""Epochs as seldom as the latency asked for allows."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.protocol.pacing import Pace


def latencies(target: float, takes: list[float], arrivals: list[float]) -> tuple[list[float], int]:
    """Of each record, from its arrival to the end of its epoch, on a clock of its own; and how many epochs there were.
    ``takes``: seconds of each epoch, again and again."""
    pace, now, done, epochs = Pace(timedelta(seconds=target)), 0.0, 0, 0
    found: list[float] = []
    while done < len(arrivals):
        there = sum(at <= now for at in arrivals)
        pace = pace.after_look(now, waiting=there > done)
        if there == done or pace.can_wait(now):
            now += pace.poll.total_seconds()
            continue
        took = takes[epochs % len(takes)]
        now += took
        found += [now - at for at in arrivals[done:there]]
        done, epochs, pace = there, epochs + 1, pace.after_epoch(took)
    return found, epochs


@given(
    target=st.floats(1, 60),
    share=st.floats(0.01, 0.4),
    gaps=st.lists(st.floats(0, 5), min_size=1, max_size=60),
)
def test_every_record_is_committed_in_time_where_an_epoch_fits_twice(
    target: float, share: float, gaps: list[float]
) -> None:
    arrivals = [sum(gaps[: index + 1]) for index in range(len(gaps))]
    found, _ = latencies(target, [target * share], arrivals)
    assert max(found) <= target + 1e-6


def test_epochs_are_as_few_as_that_allows() -> None:
    arrivals = [second / 10 for second in range(600)]
    found, epochs = latencies(10, [1.0], arrivals)
    assert max(found) <= 10
    assert epochs <= 60 / (10 - 1 - 2 * 1) + 2


def test_an_epoch_that_takes_longer_than_asked_for_is_followed_by_the_next_at_once() -> None:
    pace = Pace(timedelta(seconds=10)).after_look(0, waiting=False).after_epoch(12.0)
    assert not pace.after_look(1, waiting=True).can_wait(1)
    for _ in range(20):
        pace = pace.after_epoch(1.0)
    assert pace.epoch_takes == pytest.approx(1, abs=0.1)
    assert pace.after_look(2, waiting=True).can_wait(2)


def test_a_start_does_not_wait_for_what_may_have_waited_long() -> None:
    assert not Pace(timedelta(seconds=10), epoch_takes=1.0).after_look(5, waiting=True).can_wait(5)


def test_what_an_epoch_takes_grows_at_once_and_shrinks_slowly() -> None:
    pace = Pace(timedelta(seconds=10), epoch_takes=4.0)
    assert pace.after_epoch(8.0).epoch_takes == 8.0
    assert pace.after_epoch(0.0).epoch_takes == 3.0


@pytest.mark.parametrize(("target", "poll"), [(2, 0.2), (10, 1), (600, 1)])
def test_it_looks_ten_times_within_the_latency_and_every_second_at_least(target: int, poll: float) -> None:
    assert Pace(timedelta(seconds=target)).poll == timedelta(seconds=poll)
