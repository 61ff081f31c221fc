"""The epochs by which a table that was added to a pipeline of several sinks catches up with them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from connector.protocol.join import never_read, next_to_join
from connector.protocol.recover import HeldBack, Resumption, TopicsHeld
from sinks.contract import Epoch, Position
from sinks.offsets import OffsetRange, Offsets, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def stands(number: int, offsets: dict[TopicPartition, int]) -> Epoch:
    at = Offsets(offsets)
    return Epoch("p", number, "before", (), at, {"t": "id"}, None, None, leaders=dict.fromkeys(at, 3))


def held(ends: Offsets) -> TopicsHeld:
    return TopicsHeld(Offsets(dict.fromkeys(ends, 0)), ends, {"t": "id"}, datetime(2026, 1, 1, tzinfo=timezone.utc))


def caught_up(goal: Epoch, starts: Offsets, max_records: int, stops: set[int] = frozenset()) -> list[Epoch]:  # type: ignore[assignment]
    """All its epochs. After those at ``stops`` another run goes on, from the table's position alone."""
    epochs: list[Epoch] = []
    position: Position | None = None
    owner = 0
    while position is None or not position.same_place(goal.position()):
        owner += len(epochs) in stops
        next_ = Offsets({at: position.offsets.get(at, 0) for at in starts}) if position else starts
        epochs.append(
            next_to_join(
                goal, position, Resumption(next_), held(goal.offsets), owner=str(owner), max_records=max_records
            )
        )
        position = epochs[-1].position()
        assert len(epochs) <= goal.number
    return epochs


@given(
    number=st.integers(1, 8),
    ends=st.tuples(st.integers(0, 50), st.integers(0, 50)),
    starts=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    max_records=st.integers(1, 40),
    stops=st.sets(st.integers(0, 8)),
)
def test_it_reads_each_offset_once_and_ends_where_the_others_are(
    number: int, ends: tuple[int, int], starts: tuple[int, int], max_records: int, stops: set[int]
) -> None:
    goal = stands(number, {A: ends[0], B: ends[1]})
    epochs = caught_up(goal, Offsets({A: starts[0], B: starts[1]}), max_records, stops)
    for at, start, end in zip((A, B), starts, ends, strict=True):
        read = [range_ for epoch in epochs for range_ in epoch.ranges if range_.at == at]
        assert [offset for range_ in read for offset in range(range_.start, range_.end)] == list(range(start, end))
        # What lies behind the others is read with them, so the table claims nothing of it yet.
        assert {epoch.since[at] for epoch in epochs} == {min(start, end)}
    numbers = [epoch.number for epoch in epochs]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == number
    assert all(each.number < number for each in epochs[:-1])
    assert epochs[-1].position().same_place(goal.position())
    for one, other in zip([None, *epochs], epochs, strict=False):
        assert other.follows(one.position() if one is not None else None)


def test_few_numbers_are_left_so_its_epochs_are_larger() -> None:
    (only,) = caught_up(stands(1, {A: 1000}), Offsets({A: 0}), max_records=10)
    assert (only.number, only.span) == (1, 1000)
    assert len(caught_up(stands(3, {A: 1000}), Offsets({A: 0}), max_records=10)) == 3


def test_a_partition_that_has_appeared_since_is_left_to_all_of_them() -> None:
    (only,) = caught_up(stands(5, {A: 10}), Offsets({A: 0, B: 0}), max_records=100)
    assert only.offsets == Offsets({A: 10})
    assert B not in only.since


def test_it_keeps_what_it_has_lost_itself() -> None:
    goal = replace(stands(5, {A: 10}), lost=())
    first = next_to_join(goal, None, Resumption(Offsets({A: 4})), held(Offsets({A: 12})), owner="o", max_records=3)
    assert (first.number, first.since, first.lost) == (1, Offsets({A: 4}), ())


def test_it_keeps_when_it_began_itself_and_what_it_came_too_late_for() -> None:
    there = held(Offsets({A: 12}))
    now = there.asked_at
    goal, gap = replace(stands(5, {A: 10}), began_at=now - timedelta(days=99)), OffsetRange("t", 0, 7, 10)
    first = next_to_join(goal, None, Resumption(Offsets({A: 4})), there, owner="o", max_records=3)
    late, later = Resumption(first.offsets, missed=(gap,)), replace(there, asked_at=now + timedelta(days=9))
    last = next_to_join(goal, first.position(), late, later, owner="o", max_records=9)
    assert [(each.began_at, each.missed) for each in (first, last)] == [(now, ()), (now, (gap,))]


def test_a_partition_that_has_more_is_not_idle() -> None:
    """Or the watermark of a window would pass over it."""
    goal = stands(5, {A: 100, B: 10})
    ends = held(Offsets({A: 100, B: 12}))
    first = next_to_join(goal, None, Resumption(Offsets({A: 0, B: 0})), ends, owner="o", max_records=20)
    assert first.backlog == {A, B}
    assert first.read_to is None
    last = next_to_join(goal, first.position(), Resumption(first.offsets), ends, owner="o", max_records=200)
    assert (last.number, last.backlog) == (5, {B})
    ends = replace(held(goal.offsets), held_back={A: HeldBack(3, None)})
    last = next_to_join(goal, first.position(), Resumption(first.offsets), ends, owner="o", max_records=200)
    assert last.backlog == {A}, "a transaction is open there"


def test_of_a_topic_that_is_gone_it_claims_nothing() -> None:
    (only,) = caught_up(stands(5, {A: 10, TopicPartition("gone", 0): 7}), Offsets({A: 0}), max_records=100)
    assert only.since == Offsets({A: 0, TopicPartition("gone", 0): 7})


def test_what_it_has_not_read_of_a_topic_that_is_gone_is_lost() -> None:
    """A table that comes back after a while. What it never claimed, as of a topic that retired, isn't."""
    day_1, day_2 = TopicPartition("day-1", 0), TopicPartition("day-2", 0)
    others = {A: 500, day_1: 100, day_2: 70, TopicPartition("#id/t", 0): 9}
    goal = replace(stands(9, others), gone={"day-1": None, "day-2": None})
    position = Position(3, Offsets({A: 200, day_1: 50}), {"t": "id", "day-1": "1"}, since=Offsets({A: 0, day_1: 0}))
    there, lost = held(Offsets({A: 500})), (OffsetRange("day-1", 0, 50, 100), OffsetRange("day-2", 0, 0, 70))
    assert never_read(goal, position, there) == lost
    first = next_to_join(goal, position, Resumption(Offsets({A: 200})), there, owner="o", max_records=100)
    assert (first.lost, first.offsets[day_1]) == ((), 50)
    again = Resumption(Offsets({A: 300}))
    last = next_to_join(goal, first.position(), again, there, owner="o", max_records=1000)
    assert (last.number, last.offsets, last.lost) == (9, goal.offsets, lost)
    (new,) = caught_up(goal, Offsets({A: 0}), max_records=1000)
    assert never_read(goal, None, there) == new.lost == ()
    assert never_read(goal, last.position(), there) == ()
