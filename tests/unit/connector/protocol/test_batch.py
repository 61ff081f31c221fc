"""What of a streaming query's batch a sink doesn't hold yet."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.protocol.batch import Batch, epoch_of
from connector.protocol.recover import HeldBack, Remains, TopicsHeld
from sinks.contract import Epoch, Position
from sinks.errors import ConfigurationError, OffsetsLost, PositionMismatch, TopicRecreated
from sinks.offsets import OffsetRange, Offsets, TopicPartition

NOW = datetime(2026, 11, 1, tzinfo=timezone.utc)


def offsets(*each: int) -> Offsets:
    return Offsets({TopicPartition("t", number): offset for number, offset in enumerate(each)})


def batch(number: int, start: Offsets, end: Offsets) -> Batch:
    return Batch("q", number, start, end)


def stands(epoch: int, at: Offsets) -> Position:
    return Position(epoch, at, {"t": "id"})


def planned(
    of: Batch,
    position: Position | None,
    *,
    beginnings: Offsets | None = None,
    ends: Offsets | None = None,
    topic_id: str = "id",
    continue_: bool = False,
    cut_at: int | None = None,
    held_back: Mapping[TopicPartition, HeldBack] | None = None,
    compacted: bool = False,
    earlier: TopicsHeld | None = None,
) -> Epoch | None:
    """``cut_at``: where the log of leader epoch 3 ends in that of epoch 4; None: there was no election."""

    held = TopicsHeld(
        beginnings or Offsets(dict.fromkeys(of.end, 0)),
        ends or of.end,
        {"t": topic_id},
        NOW,
        dict.fromkeys(of.end, 3 if cut_at is None else 4),
        lambda leaders: dict.fromkeys(leaders, cut_at or 0),
        held_back or {},
        keeps={"t": timedelta(days=1)} if compacted else {},
    )

    def remaining(partitions: Collection[TopicPartition]) -> dict[TopicPartition, Remains]:
        return {at: Remains(held.beginnings[at]) for at in partitions}

    return epoch_of(
        of, "p", "run", position, held, remaining, now=NOW, earlier=earlier, continue_on_data_loss=continue_
    )


def test_the_first_batch_is_taken_whole_from_where_the_query_begins() -> None:
    epoch = planned(batch(0, offsets(5, 0), offsets(9, 0)), None)
    assert epoch is not None
    assert epoch.ranges == (OffsetRange("t", 0, 5, 9),)
    assert (epoch.number, epoch.offsets, epoch.since, epoch.batch) == (1, offsets(9, 0), offsets(5, 0), "q/0")


def test_a_first_batch_without_records_still_says_where_the_pipeline_begins() -> None:
    epoch = planned(batch(0, offsets(5), offsets(5)), None)
    assert epoch is not None
    assert (epoch.ranges, epoch.offsets) == ((), offsets(5))


def test_a_batch_that_the_sink_holds_is_no_epoch() -> None:
    assert planned(batch(3, offsets(5, 5), offsets(9, 9)), stands(4, offsets(9, 20))) is None


def test_of_a_batch_across_the_position_the_rest_is_taken_and_no_offset_goes_back() -> None:
    epoch = planned(batch(0, offsets(0, 0), offsets(9, 9)), stands(4, offsets(6, 20)))
    assert epoch is not None
    assert epoch.ranges == (OffsetRange("t", 0, 6, 9),)
    assert epoch.offsets == offsets(9, 20)


def test_a_partition_that_was_added_is_read_from_its_first_record() -> None:
    epoch = planned(batch(3, offsets(5), offsets(5, 4)), stands(4, offsets(5)))
    assert epoch is not None
    assert epoch.ranges == (OffsetRange("t", 1, 0, 4),)


def test_a_partition_that_the_position_lacks_stands_at_zero_wherever_the_batch_begins() -> None:
    """As after a RESTORE to before the partition was added."""
    with pytest.raises(PositionMismatch, match=r"t-1: .*wants offset 0 next, .*\[0, 3\) would be missing") as refused:
        planned(batch(3, offsets(5, 3), offsets(5, 4)), stands(4, offsets(5)))
    assert '{"t":{"0":5,"1":0}}' in refused.value.hint


def test_records_of_a_batch_that_kafka_has_removed_are_no_silent_gap() -> None:
    """Spark reads a partition that was added from its oldest record, and with failOnDataLoss false from any."""
    of, gone = batch(3, offsets(5), offsets(9, 40)), offsets(7, 30)
    with pytest.raises(OffsetsLost, match=r"t-0.*\[5, 7\) is missing.*t-1.*\[0, 30\) is missing"):
        planned(of, stands(4, offsets(5)), beginnings=gone)
    epoch = planned(of, stands(4, offsets(5)), beginnings=gone, continue_=True)
    assert epoch is not None
    assert epoch.ranges == (OffsetRange("t", 0, 7, 9), OffsetRange("t", 1, 30, 40))
    assert epoch.lost == (OffsetRange("t", 0, 5, 7), OffsetRange("t", 1, 0, 30))


def test_what_the_sink_holds_of_a_batch_may_be_gone_from_kafka() -> None:
    assert planned(batch(3, offsets(5), offsets(9)), stands(4, offsets(9)), beginnings=offsets(12)) is None


@pytest.mark.parametrize(("end", "known"), [(8, False), (9, True)])
def test_of_a_busy_topic_a_batch_has_read_what_kafka_held_at_an_earlier_look(end: int, known: bool) -> None:
    """Else deletes would never expire, and a compacted topic would seem to be read too late."""
    minutes_ago = NOW - timedelta(minutes=3)
    earlier = TopicsHeld(offsets(0), offsets(9), {"t": "id"}, minutes_ago)
    stood = replace(stands(4, offsets(5)), began_at=NOW - timedelta(days=9))
    epoch = planned(batch(3, offsets(5), offsets(end)), stood, ends=offsets(40), earlier=earlier)
    assert epoch is not None
    assert epoch.read_to == (minutes_ago if known else None)
    assert epoch.backlog == {TopicPartition("t", 0)}
    today = replace(stood, began_at=NOW - timedelta(hours=9))
    longer = replace(earlier, keeps={"t": timedelta(days=2)})
    epoch = planned(batch(3, offsets(5), offsets(9)), today, ends=offsets(40), earlier=longer, compacted=True)
    assert epoch is not None
    assert epoch.tombstones_kept == {"t": timedelta(days=1)}, "by the newest look"
    whole = planned(batch(3, offsets(5), offsets(9)), stood, earlier=earlier)
    assert whole is not None
    assert whole.read_to == NOW


def test_a_gap_is_refused_with_the_offsets_to_start_from() -> None:
    with pytest.raises(PositionMismatch, match=r"\[4, 5\) would be missing") as refused:
        planned(batch(3, offsets(5, 5), offsets(9, 9)), stands(4, offsets(4, 7)))
    assert '{"t":{"0":4,"1":7}}' in refused.value.hint


def test_a_later_batch_is_refused_where_nothing_was_written() -> None:
    with pytest.raises(PositionMismatch, match="batch 3"):
        planned(batch(3, offsets(5), offsets(9)), None)


def test_a_topic_made_again_and_one_that_nobody_named_are_refused() -> None:
    with pytest.raises(TopicRecreated):
        planned(batch(3, offsets(5), offsets(9)), stands(4, offsets(5)), topic_id="another")
    with pytest.raises(ConfigurationError, match=r"records of u, which source\.topics"):
        planned(batch(3, Offsets(), Offsets({TopicPartition("u", 0): 3})), stands(4, offsets(5)))


def test_the_view_is_complete_only_where_the_batch_reaches_what_kafka_holds() -> None:
    of = batch(0, offsets(0), offsets(9))
    part, whole = planned(of, None, ends=offsets(10)), planned(of, None)
    assert part is not None
    assert whole is not None
    assert (part.read_to, part.backlog) == (None, {TopicPartition("t", 0)})
    assert (whole.read_to, whole.backlog) == (NOW, frozenset())
    waits = planned(of, None, held_back={TopicPartition("t", 0): HeldBack(2, None)})
    assert waits is not None
    assert waits.backlog == {TopicPartition("t", 0)}, "a transaction is open there"


@given(st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=6), min_size=1, max_size=4), st.data())
def test_however_often_and_wherever_batches_are_cut_every_offset_is_taken_once(
    cuts: list[list[int]], data: st.DataObject
) -> None:
    """Each list is a query with a checkpoint of its own, from the beginning; it says some of its batches twice."""
    position: Position | None = None
    taken: list[int] = []
    for query in cuts:
        start = 0
        for number, size in enumerate(query):
            of = batch(number, offsets(start), offsets(start + size))
            for _ in range(data.draw(st.integers(1, 2))):
                epoch = planned(of, position)
                if epoch is not None:
                    taken += [offset for each in epoch.ranges for offset in range(each.start, each.end)]
                    position = epoch.position()
            start += size
    assert taken == list(range(max(sum(query) for query in cuts)))


def test_a_batch_of_a_log_that_was_cut_before_the_position_is_refused() -> None:
    first = planned(batch(0, offsets(0), offsets(5)), None)
    assert first is not None
    following = batch(1, offsets(5), offsets(9))
    with pytest.raises(OffsetsLost, match="was cut at offset 4 "):
        planned(following, first.position(), cut_at=4)
    assert planned(following, first.position(), cut_at=5) is not None


def test_a_batch_that_comes_later_than_tombstones_stay_is_refused() -> None:
    of, stood = batch(3, offsets(5), offsets(9)), replace(stands(4, offsets(5)), read_to=NOW - timedelta(days=2))
    assert planned(of, stood) is not None
    with pytest.raises(OffsetsLost, match=r"may be gone from compacted topics .* t-0 \[5, 9\)"):
        planned(of, stood, compacted=True)
    epoch = planned(of, stood, compacted=True, continue_=True)
    assert epoch is not None
    assert (epoch.ranges, epoch.missed) == ((OffsetRange("t", 0, 5, 9),),) * 2
    assert planned(of, stands(5, offsets(9)), compacted=True) is None, "the query's repetition of it"
    assert planned(of, replace(stood, read_to=NOW - timedelta(hours=2)), compacted=True) is not None
