import time
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.protocol.plan import next_epoch, plan, within_bytes
from connector.protocol.recover import HeldBack, Resumption, TopicsHeld
from sinks.offsets import Offsets, TopicPartition

places = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 6))
backlogs = st.dictionaries(places, st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=10)


def case(backlog: dict[TopicPartition, tuple[int, int]]) -> tuple[Offsets, Offsets]:
    position = Offsets({at: start for at, (start, _) in backlog.items()})
    return position, Offsets({at: start + more for at, (start, more) in backlog.items()})


@given(backlogs, st.integers(1, 3000))
def test_a_plan_starts_at_the_position_ends_before_the_end_and_keeps_the_bound(backlog, bound) -> None:
    position, ends = case(backlog)
    ranges = plan(position, ends, bound)
    assert sum(range_.span for range_ in ranges) <= bound
    assert len({range_.at for range_ in ranges}) == len(ranges)
    for range_ in ranges:
        assert range_.start == position[range_.at]
        assert range_.start < range_.end <= ends[range_.at]


@given(backlogs, st.integers(1, 3000))
def test_a_plan_leaves_nothing_of_the_bound_unused(backlog, bound) -> None:
    position, ends = case(backlog)
    total = sum(more for _, more in backlog.values())
    assert sum(range_.span for range_ in plan(position, ends, bound)) == min(total, bound)


@given(backlogs, st.integers(1, 3000))
def test_no_partition_gets_more_while_another_wants_more(backlog, bound) -> None:
    position, ends = case(backlog)
    got = dict.fromkeys(backlog, 0) | {range_.at: range_.span for range_ in plan(position, ends, bound)}
    largest = max(got.values(), default=0)
    for at, (_, wanted) in backlog.items():
        assert got[at] == wanted or got[at] >= largest - 1


@given(backlogs, st.integers(1, 300))
def test_planning_on_and_on_reads_every_offset_once_and_then_stops(backlog, bound) -> None:
    position, ends = case(backlog)
    seen = []
    while ranges := plan(position, ends, bound):
        seen += [(range_.at, offset) for range_ in ranges for offset in range(range_.start, range_.end)]
        position = position.advance(ranges)
    assert sorted(seen) == sorted((at, start + i) for at, (start, more) in backlog.items() for i in range(more))


def test_an_epoch_may_have_a_single_record_and_has_to_have_one() -> None:
    position, ends = Offsets.from_dict({"t": {"0": 3}}), Offsets.from_dict({"t": {"0": 9}})
    assert [(range_.start, range_.end) for range_ in plan(position, ends, 1)] == [(3, 4)]
    with pytest.raises(ValueError, match="at least 1, not 0"):
        plan(position, ends, 0)


def test_a_partition_that_kafka_does_not_name_is_not_read() -> None:
    assert plan(Offsets.from_dict({"t": {"0": 3, "1": 5}}), Offsets.from_dict({"t": {"1": 5}}), 10) == ()


def test_a_topic_that_has_appeared_since_the_round_began_is_left_to_the_next() -> None:
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    target = TopicsHeld(Offsets.from_dict({"t": {"0": 0}}), Offsets.from_dict({"t": {"0": 9}}), {"t": "id"}, now)
    found = Resumption(Offsets.from_dict({"t": {"0": 0}, "new": {"0": 0}}))
    epoch = next_epoch("p", "run", None, found, target, max_records=5, now=now)
    assert epoch is not None
    assert (epoch.offsets.topics, epoch.since.topics) == ({"t"}, {"t"})


@given(backlogs, st.integers(1, 3000), st.integers(1, 10**6), st.data())
def test_a_plan_within_bytes_is_the_largest_that_fits(backlog, bound, max_bytes, data) -> None:
    position, ends = case(backlog)
    # Quarters: their sum is exact, in whatever order they are added.
    sizes = {at: data.draw(st.integers(4, 8000)) / 4 for at in backlog}

    def size(records: int) -> float:
        return sum(range_.span * sizes[range_.at] for range_ in plan(position, ends, records))

    found = within_bytes(position, ends, bound, max_bytes, sizes)
    assert 1 <= found <= bound
    assert found == 1 or size(found) <= max_bytes
    assert found == bound or size(found + 1) > max_bytes


def test_a_partition_of_unknown_size_is_taken_for_the_mean() -> None:
    at, other = TopicPartition("t", 0), TopicPartition("t", 1)
    position, ends = Offsets({at: 0, other: 0}), Offsets({at: 100, other: 100})
    assert within_bytes(position, ends, 1000, 100, {at: 10.0}) == 10
    assert within_bytes(position, ends, 1000, 100, {}) == 1000


def test_partitions_without_a_position_are_not_read() -> None:
    assert plan(Offsets(), Offsets({TopicPartition("t", 0): 5}), 10) == ()


def test_what_an_open_transaction_holds_back_is_still_to_be_read() -> None:
    """Or a window would close before the records of the transaction, and they would come late."""
    at, other = TopicPartition("t", 0), TopicPartition("t", 1)
    ends, now = Offsets({at: 5, other: 5}), datetime(2026, 1, 1, tzinfo=timezone.utc)
    held = TopicsHeld(Offsets({at: 0, other: 0}), ends, {"t": "id"}, now, held_back={other: HeldBack(3, now)})
    epoch = next_epoch("p", "run", None, Resumption(held.beginnings), held, max_records=10, now=now)
    assert epoch is not None
    assert (epoch.offsets, epoch.backlog) == (ends, {other})
    part = next_epoch("p", "run", None, Resumption(held.beginnings), held, max_records=8, now=now)
    assert part is not None
    assert part.backlog == {at, other}


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="max_records"):
        plan(Offsets(), Offsets(), 0)


def test_the_time_of_a_plan_grows_with_its_partitions_and_not_with_their_square() -> None:
    """Some 0.1 s for 10,000. Each time is the best of three of this thread alone, as others share the machine."""

    def seconds(partitions: int) -> float:
        position = Offsets({TopicPartition("t", p): 10**12 for p in range(partitions)})
        ends = Offsets({TopicPartition("t", p): 10**12 + p * 1000 for p in range(partitions)})
        held = TopicsHeld(position, ends, {"t": "id"}, datetime.now(timezone.utc))
        taken = []
        for _ in range(3):
            started = time.thread_time()
            bound = within_bytes(position, ends, 10**9, 10**10, {TopicPartition("t", 0): 100.0})
            epoch = next_epoch("p", "run", None, Resumption(position), held, max_records=bound, now=held.asked_at)
            taken.append(time.thread_time() - started)
            assert epoch is not None
            assert epoch.span == bound == 10**8
        return min(taken)

    assert seconds(10_000) < 40 * seconds(1_000), "ten times the partitions; the square would be 100"
