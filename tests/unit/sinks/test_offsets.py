import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.offsets import OffsetRange, Offsets, TopicPartition

places = st.builds(TopicPartition, st.sampled_from(["a", "b", 'q"{}']), st.integers(0, 5))
offsets = st.dictionaries(places, st.integers(0, 2**62)).map(Offsets)


@given(offsets)
def test_offsets_come_back_from_json_as_they_were(some: Offsets) -> None:
    import json

    assert Offsets.from_dict(json.loads(some.to_json())) == some


@given(offsets, offsets, offsets)
def test_join_is_associative_commutative_and_idempotent(a: Offsets, b: Offsets, c: Offsets) -> None:
    assert a.join(b).join(c) == a.join(b.join(c))
    assert a.join(b) == b.join(a)
    assert a.join(a) == a
    assert a.join(Offsets()) == a


@given(offsets, offsets)
def test_join_reaches_both_and_is_the_least_that_does(a: Offsets, b: Offsets) -> None:
    joined = a.join(b)
    assert joined.reaches(a)
    assert joined.reaches(b)
    assert all(offset in (a.get(at), b.get(at)) for at, offset in joined.items())


def test_offsets_are_written_as_spark_writes_them() -> None:
    assert Offsets({TopicPartition("t", 1): 5, TopicPartition("t", 0): 3}).to_json() == '{"t":{"0":3,"1":5}}'


def test_partitions_are_in_numeric_order() -> None:
    assert list(Offsets({TopicPartition("t", p): 0 for p in (10, 9, 2)})) == [("t", 2), ("t", 9), ("t", 10)]


def test_advance_moves_only_the_partitions_that_were_read() -> None:
    start = Offsets({TopicPartition("t", 0): 3, TopicPartition("t", 1): 5})
    assert start.advance([OffsetRange("t", 1, 5, 9)]).to_json() == '{"t":{"0":3,"1":9}}'


@pytest.mark.parametrize("range_", [OffsetRange("t", 0, 4, 9), OffsetRange("t", 0, 2, 9), OffsetRange("t", 7, 0, 1)])
def test_advance_refuses_a_range_that_leaves_a_gap_or_goes_back(range_: OffsetRange) -> None:
    with pytest.raises(ValueError, match="doesn't start at the next offset"):
        Offsets({TopicPartition("t", 0): 3}).advance([range_])


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (5, 4)])
def test_a_range_is_half_open_and_not_backwards(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not a range"):
        OffsetRange("t", 0, start, end)


@pytest.mark.parametrize(
    "text", [[], {"t": 5}, {"t": {"0": "5"}}, {"t": {"0": True}}, {"t": {"0": -5}}, {"t": {"x": 5}}, {5: {"0": 1}}]
)
def test_anything_but_offsets_is_refused(text: object) -> None:
    with pytest.raises(ValueError):
        Offsets.from_dict(text)
