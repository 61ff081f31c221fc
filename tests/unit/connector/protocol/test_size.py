from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from connector.protocol.pacing import FIRST, LEAST, EpochSize

TARGET = timedelta(seconds=10)
MOST = 10_000_000


def settled(seconds_per_record: float, fixed: float, *, size: EpochSize, epochs: int = 40) -> EpochSize:
    """After many full epochs on a machine of this speed."""
    for _ in range(epochs):
        size = size.after(size.records, timedelta(seconds=fixed + size.records * seconds_per_record))
    return size


def test_without_a_target_it_is_the_bound() -> None:
    size = EpochSize.first(MOST)
    assert size.after(5, timedelta(hours=1)).records == size.records == MOST


@given(st.floats(1e-6, 1e-2), st.floats(0, 5))
def test_it_settles_where_an_epoch_takes_as_long_as_it_should(seconds_per_record: float, fixed: float) -> None:
    size = settled(seconds_per_record, fixed, size=EpochSize.first(MOST, TARGET))
    took = fixed + size.records * seconds_per_record
    assert 9 <= took <= 10.1 or size.records in (MOST, LEAST)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 1000)), max_size=20), st.integers(1, MOST))
def test_it_grows_at_most_twofold_and_stays_within_its_bounds(epochs: list[tuple[float, float]], most: int) -> None:
    size = EpochSize.first(most, TARGET)
    for share, seconds in epochs:
        read = max(1, int(size.records * share))
        after = size.after(read, timedelta(seconds=seconds))
        assert min(LEAST, most) <= after.records <= min(most, 2 * size.records)
        if seconds > 10:
            assert after.records <= max(LEAST, size.records)
        size = after


def test_it_shrinks_at_once() -> None:
    assert EpochSize.first(MOST, TARGET).after(FIRST, timedelta(seconds=100)).records == FIRST // 10


def test_an_epoch_that_was_not_full_says_nothing_unless_it_took_too_long() -> None:
    size = EpochSize.first(MOST, TARGET)
    assert size.after(10, timedelta(seconds=9)) == size
    assert size.after(50_000, timedelta(seconds=20)).records == 25_000


def test_costs_above_the_target_dont_shrink_it_to_nothing() -> None:
    assert settled(1e-6, 60, size=EpochSize.first(MOST, TARGET)).records == LEAST


def test_the_first_epoch_has_no_more_than_the_bound_and_with_a_target_no_more_than_is_safe() -> None:
    assert EpochSize.first(10, TARGET).records == 10
    assert EpochSize.first(MOST, TARGET).records == FIRST
