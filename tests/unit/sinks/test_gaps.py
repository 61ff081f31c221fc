"""The ranges that a position names as lost or missed: how they are kept, and which of them are new."""

import time

from hypothesis import given
from hypothesis import strategies as st

from sinks.contract import Epoch, Position
from sinks.gaps import added, joined, latest
from sinks.offsets import OffsetRange, Offsets
from sinks.recreated import retired

steps = st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 3)), max_size=3), max_size=6)
"""Of each epoch the partition, the offsets that are read before the gap, and those of the gap."""


def offsets(gaps: tuple[OffsetRange, ...]) -> list[tuple[int, int]]:
    return sorted((gap.partition, offset) for gap in gaps for offset in range(gap.start, gap.end))


@given(steps)
def test_each_epoch_adds_its_own_gaps_and_no_offset_is_in_two(epochs: list[list[tuple[int, int, int]]]) -> None:
    next_, lost, every = [0, 0, 0], (), []
    for steps in epochs:
        more = []
        for partition, read, gap in steps:
            start = next_[partition] + read
            next_[partition] = start + gap
            more.append(OffsetRange("t", partition, start, start + gap))
        before, lost = lost, joined(lost, more)
        every += more
        assert offsets(added(lost, before)) == offsets(tuple(more))
        assert offsets(lost) == offsets(tuple(every))
        assert added(lost, lost) == ()
        touching = {(gap.partition, gap.end) for gap in lost} & {(gap.partition, gap.start) for gap in lost}
        assert not touching, "they are one"


def test_of_what_was_missed_the_last_range_makes_the_others_rows_doubtful_too() -> None:
    first, second, other = OffsetRange("t", 0, 2, 4), OffsetRange("t", 0, 4, 9), OffsetRange("t", 1, 0, 5)
    assert latest((first,), (second, other)) == (second, other)
    assert added(latest((first, other), (second,)), (first, other)) == (second,)
    assert latest((first, other), ()) == (first, other)


def test_a_topic_that_retires_has_lost_nothing_again() -> None:
    gap = OffsetRange("t", 0, 2, 4)
    old = OffsetRange(retired("t", "id"), 0, 2, 4)
    before = Position(3, Offsets(), lost=(gap,), missed=(gap,))
    epoch = Epoch("p", 4, "run", (), Offsets(), {}, None, before, lost=(old,), missed=(old,))
    assert (epoch.lost_now, epoch.missed_now) == ((), ())


def test_many_gaps_are_compared_in_no_time() -> None:
    gaps = tuple(
        OffsetRange("t", partition, start, start + 1) for start in range(0, 600, 2) for partition in range(100)
    )
    new = OffsetRange("t", 7, 900, 950)
    before = Position(3, Offsets(), lost=gaps, missed=gaps)
    epoch = Epoch("p", 4, "run", (), Offsets(), {}, None, before, lost=joined(gaps, [new]), missed=(*gaps, new))
    began = time.process_time()
    assert (epoch.lost_now, epoch.missed_now) == ((new,), (new,))
    assert time.process_time() - began < 5, "each with each takes minutes"
