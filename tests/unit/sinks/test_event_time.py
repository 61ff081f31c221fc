"""Event time over epochs: bounds, watermark, idle partitions."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sinks.contract import Epoch, Position
from sinks.event_time import FIRST, LAST, Clock, Seen, time_at
from sinks.offsets import Offsets, TopicPartition

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
A, B = TopicPartition("a-b", 0), TopicPartition("a-b", 1)
FIVE = timedelta(minutes=5)


def seen(low: int, high: int, newest: int | None = None) -> Seen:
    """Minutes after noon."""
    return Seen(*(NOON + timedelta(minutes=at) for at in (low, high, high if newest is None else newest)))


def after(*epochs: dict[TopicPartition, Seen], backlog: frozenset[TopicPartition] = frozenset()) -> Clock:
    clock = Clock()
    for times in epochs:
        clock = clock.advanced(times, backlog=backlog, idle_after=FIVE)
    return clock


def test_the_watermark_is_the_minimum_over_partitions() -> None:
    assert after({A: seen(0, 9), B: seen(3, 7)}).watermark == NOON + timedelta(minutes=7)


def test_a_partition_that_was_not_read_yet_holds_the_watermark_back() -> None:
    assert after({A: seen(0, 9)}, backlog=frozenset({B})).watermark is None
    assert after({A: seen(0, 9)}).watermark == NOON + timedelta(minutes=9)


def test_an_idle_partition_is_set_aside_once_it_is_read_to_its_end() -> None:
    epochs = {A: seen(0, 1)}, {B: seen(2, 20)}
    assert after({**epochs[0], B: seen(0, 2)}, epochs[1]).watermark == NOON + timedelta(minutes=20)
    assert after({**epochs[0], B: seen(0, 2)}, epochs[1], backlog=frozenset({A})).watermark == NOON + timedelta(
        minutes=1
    )


def test_an_idle_time_of_nothing_leaves_the_newest_partition() -> None:
    clock = Clock().advanced({A: seen(0, 1), B: seen(2, 20)}, backlog=frozenset(), idle_after=timedelta(0))
    assert clock.watermark == NOON + timedelta(minutes=20)


def test_two_clocks_of_the_same_records_are_joined() -> None:
    """One sink may have been without event time, and so without a clock."""
    clock = after({A: seen(0, 9), B: seen(3, 7)})
    assert Clock().joined(clock.carried(), "t") == clock.carried()
    assert clock.joined(Clock(), "t") == clock == clock.joined(clock, None)


@pytest.mark.parametrize("column", ["t", None])
def test_a_clock_of_another_column_says_nothing_of_the_one_that_counts(column: str | None) -> None:
    """As a window's that has left the pipeline, when another one joins it: no record is late by the wrong times."""
    joins = Clock(column="t").advanced({A: seen(0, 1), B: seen(0, 2)}, backlog=frozenset(), idle_after=FIVE)
    left = Clock(column="u").advanced({A: seen(60, 78), B: seen(60, 80)}, backlog=frozenset(), idle_after=FIVE, late=3)
    assert left.watermark == NOON + timedelta(minutes=78)
    for left_ in (left, left.without_times(), Clock.from_dict(left.without_times().to_dict())):
        both = left_.joined(joins, column or left.times_of)
        of = joins if column else left
        assert (both.so_far, both.watermark, both.late) == (of.so_far, of.watermark, 3)
        assert (both.column, both.times_of) == ("", of.column), "nobody has seen the time of every row by it"
    assert left.joined(joins, None).times_of == "u", "while the file names none"


def test_the_watermark_never_moves_back() -> None:
    clock = after({A: seen(0, 1), B: seen(0, 2)}, {B: seen(2, 20)})
    woken = clock.advanced({A: seen(3, 4, newest=21)}, backlog=frozenset(), idle_after=FIVE)
    assert woken.watermark == clock.watermark == NOON + timedelta(minutes=20)


def test_an_epoch_that_reads_nothing_carries_the_clock_on() -> None:
    clock = after({A: seen(0, 9)})
    assert clock.carried().of_epoch == {}
    assert clock.carried().so_far == clock.so_far
    assert clock.carried().watermark == clock.watermark


minutes = st.integers(0, 600)
times = st.tuples(minutes, minutes, minutes).map(lambda each: seen(min(each), max(each), max(each)))


@given(st.lists(st.dictionaries(st.sampled_from([A, B]), times, min_size=1), max_size=6), st.integers(0, 9))
def test_it_survives_a_commit(epochs: list[dict[TopicPartition, Seen]], late: int) -> None:
    clock = Clock()
    for epoch in epochs:
        clock = clock.advanced(epoch, backlog=frozenset(), idle_after=FIVE, late=late)
    read = Clock.from_dict(clock.to_dict())
    assert (read.so_far, read.watermark, read.late) == (clock.so_far, clock.watermark, clock.late)
    assert (read.column, read.retired) == (None, None)
    known = clock.of_column("t", set()).without_topics({"a-b"})
    read = Clock.from_dict(known.to_dict())
    assert (read.column, read.retired) == ("t", max((each.high for each in clock.so_far.values()), default=None))
    assert {at: times[:2] for at, times in read.of_epoch.items()} == {
        at: times[:2] for at, times in clock.of_epoch.items()
    }


@given(
    st.lists(
        st.tuples(st.dictionaries(st.sampled_from([A, B]), times), st.frozensets(st.sampled_from([A, B]))), max_size=6
    )
)
@example([({A: seen(0, 60), B: seen(0, 1)}, frozenset({B}))])
def test_an_epoch_for_which_nobody_asks_kafka_leaves_the_watermark(
    epochs: list[tuple[dict[TopicPartition, Seen], frozenset[TopicPartition]]],
) -> None:
    """As a rewind's: the table goes back to before records that are read again, and they must not come late."""
    clock = Clock()
    for found, backlog in epochs:
        clock = clock.advanced(found, backlog=backlog, idle_after=FIVE)
    epoch = Epoch.of_no_records(Position(7, Offsets({A: 5, B: 5}), clock=clock), pipeline="p", owner="run")
    after_it = epoch.clock.advanced({}, backlog=epoch.backlog, idle_after=FIVE)
    assert after_it == clock.carried()


@given(st.lists(st.dictionaries(st.sampled_from([A, B]), times, min_size=1), min_size=1, max_size=6))
def test_how_far_each_partition_is_does_not_depend_on_the_cut(epochs: list[dict[TopicPartition, Seen]]) -> None:
    whole: dict[TopicPartition, Seen] = {}
    for epoch in epochs:
        for at, seen_there in epoch.items():
            whole[at] = whole[at].plus(seen_there) if at in whole else seen_there
    assert after(*epochs).so_far == after(whole).so_far


@given(st.integers(FIRST, LAST))
def test_a_time_of_microseconds_is_stored_and_read_as_it_is(micros: int) -> None:
    time = time_at(micros)
    assert (time - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1) == micros
    clock = Clock({}, {A: Seen(time, time, time)}, time)
    assert Clock.from_dict(clock.to_dict()) == clock


def test_a_time_that_no_datetime_can_hold_is_the_nearest_one() -> None:
    """A producer's milliseconds may be microseconds, and .NET's first time east of UTC is before the year 1."""
    assert time_at(1_793_500_000_000_000_000).isoformat() == "9999-12-31T23:59:59.999999+00:00"
    assert time_at(FIRST - 3_600_000_000).isoformat() == "0001-01-01T00:00:00+00:00"


C, OLD_C = TopicPartition("c", 0), TopicPartition("#1/c", 0)
TIMES = {"t": 0, "u": 1}
row = st.tuples(st.integers(0, 2), st.integers(0, 2))
"""A row's times, by the column t and by the column u."""
epochs = st.tuples(st.sampled_from(["t", "u", None]), st.sampled_from([A, C]), st.one_of(row, row, st.none()))
"""The column that the pipeline file names, the partition that is read, and the row that it gives, if any."""


@settings(max_examples=500)
@example([("t", A, (0, 0)), (None, A, (2, 0))], 1)
@example([("u", A, (2, 0)), ("t", A, (0, 0))], 1)
@example([("t", C, (2, 0)), None, ("t", A, (0, 0))], 1)
@given(st.lists(st.one_of(epochs, epochs, st.none()), min_size=2, max_size=4), st.integers(1, 2))
def test_no_row_is_younger_than_a_clock_says(
    life: list[tuple[str | None, TopicPartition, tuple[int, int] | None] | None], minute: int
) -> None:
    """Whatever column the file named at each epoch, and whether a partition gave rows. None: the topic c retires."""
    clock, written, read = Clock(), list[int](), set[TopicPartition]()
    counted: dict[str, set[datetime]] = {"t": set(), "u": set()}
    for epoch in life:
        if epoch is None:
            clock = clock.without_topics({"c"})
            read = {OLD_C if at == C else at for at in read}
            continue
        column, place, found = epoch
        if column is None:
            clock = clock.without_times()
        else:
            new = {place: seen(found[TIMES[column]], found[TIMES[column]])} if found else {}
            clock = clock.of_column(column, read).advanced(new, backlog=frozenset(), idle_after=FIVE)
        read.add(place)
        written += [found[TIMES["t"]]] if found else []
        clock = Clock.from_dict(clock.to_dict()).joined(Clock(), column)
        if column is not None and found:
            counted[column].add(seen(0, found[TIMES[column]]).high)
        if column is not None:  # by which it judges what is late
            highs = {times.high for times in clock.by(column).so_far.values()}
            assert highs | {clock.by(column).watermark} <= counted[column] | {None}
    before = clock.all_before(NOON + timedelta(minutes=minute), "t", read)
    assert not before or max(written) < minute
    if written and {epoch[0] for epoch in life if epoch is not None} == {"t"}:
        assert before == (max(written) < minute)


def test_rows_of_a_sink_beside_the_windows_hold_a_rewind_back_and_make_nothing_late() -> None:
    alone = after({A: seen(0, 3)})
    for minute, before in ((2, True), (3, True), (7, False)):
        clock = alone.beside(seen(minute, minute).high)
        assert (clock.so_far, clock.watermark, clock.of_epoch) == (alone.so_far, alone.watermark, alone.of_epoch)
        assert Clock.from_dict(clock.to_dict()).all_before(seen(5, 5).high, "t", frozenset({A})) is before
    assert Clock().beside(seen(9, 9).high).beside(seen(1, 1).high).retired == seen(9, 9).high
