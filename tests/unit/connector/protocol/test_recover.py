from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.protocol.plan import next_epoch
from connector.protocol.recover import (
    HeldBack,
    Remaining,
    Remains,
    Resumption,
    TopicsHeld,
    behind,
    reached,
    readable,
    resume,
)
from sinks.contract import Epoch, Position
from sinks.errors import ConfigurationError, OffsetsForgotten, OffsetsLost, TopicRecreated
from sinks.offsets import OffsetRange, Offsets, TopicPartition

AT = TopicPartition("t", 0)
WROTE = datetime(2026, 1, 1, 3, 4, 5, tzinfo=timezone.utc)


def held(beginnings: dict, ends: dict, ids: dict | None = None) -> TopicsHeld:
    named = {topic: f"id-{topic}" for topic in ends}
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return TopicsHeld(Offsets.from_dict(beginnings), Offsets.from_dict(ends), ids or named, now)


def at(offsets: dict, topics: dict | None = None) -> Position:
    return Position(3, Offsets.from_dict(offsets), topics or {topic: f"id-{topic}" for topic in offsets})


def never() -> Offsets:
    raise AssertionError("a pipeline with a position asked where to start")


def left(*remains: object) -> Remaining:
    """One partition's remains: where reading goes on, and the time of the oldest record; none are asked for."""

    def remaining(partitions: Collection[TopicPartition]) -> dict[TopicPartition, Remains]:
        assert len(partitions) == (1 if remains else 0)
        return {at: Remains(*remains) for at in partitions}

    return remaining


def test_a_stored_position_wins_over_the_configured_start() -> None:
    found = resume(at({"t": {"0": 5}}), held({"t": {"0": 0}}, {"t": {"0": 9}}), never, left())
    assert found == Resumption(Offsets.from_dict({"t": {"0": 5}}))


def test_without_a_position_the_configured_start_is_used() -> None:
    start = Offsets.from_dict({"t": {"0": 7}})
    assert resume(None, held({"t": {"0": 0}}, {"t": {"0": 9}}), lambda: start, left()).offsets == start


def test_where_only_rows_show_a_position_partitions_without_rows_stand_where_the_pipeline_began() -> None:
    kafka = held({"t": {"0": 0, "1": 0}}, {"t": {"0": 9, "1": 9}})
    rows = replace(at({"t": {"0": 5}}), source="rows")
    found = resume(rows, kafka, never, left(), began=lambda: Offsets.from_dict({"t": {"0": 1, "1": 4}}))
    assert found.offsets.to_dict() == {"t": {"0": 5, "1": 4}}
    assert resume(at({"t": {"0": 5}}), kafka, never, left(), began=never).offsets.to_dict() == {"t": {"0": 5, "1": 0}}
    every = replace(at({"t": {"0": 5, "1": 6}}), source="rows")
    assert resume(every, kafka, never, left(), began=never).offsets == every.offsets


def test_rows_that_another_pipeline_has_read_from_another_topic_of_the_name_say_nothing_of_this_one() -> None:
    """As of a topic with the same name in another cluster: the first records would be taken for ones that are there."""
    kafka = held({"t": {"0": 0}}, {"t": {"0": 9}})
    rows = Position(0, Offsets.from_dict({"t": {"0": 5}}), source="rows")
    for known in ({}, {"t": "id-t"}, {"gone": "another"}):
        assert resume(replace(rows, of_others=known), kafka, never, left()).offsets == rows.offsets
    with pytest.raises(ConfigurationError, match="from topic id another, Kafka now has id-t") as refused:
        resume(replace(rows, of_others={"t": "another"}), kafka, never, left())
    assert "a table of its own" in str(refused.value.hint)


APPEARED = [
    pytest.param({"t": {"0": 0, "1": 0}}, {"t": {"0": 5, "1": 0}}, id="a partition"),
    pytest.param({"t": {"0": 0}, "u": {"0": 0}}, {"t": {"0": 5}, "u": {"0": 0}}, id="a topic"),
]


@pytest.mark.parametrize(("beginnings", "goes_on"), APPEARED)
def test_what_has_appeared_since_stands_at_zero(beginnings: dict, goes_on: dict) -> None:
    ends = {topic: dict.fromkeys(parts, 9) for topic, parts in beginnings.items()}
    assert resume(at({"t": {"0": 5}}), held(beginnings, ends), never, left()).offsets.to_dict() == goes_on


@pytest.mark.parametrize(
    ("beginnings", "gap"),
    [
        pytest.param({"t": {"0": 0, "1": 4}}, OffsetRange("t", 1, 0, 4), id="a partition"),
        pytest.param({"t": {"0": 0}, "u": {"0": 4}}, OffsetRange("u", 0, 0, 4), id="a topic"),
    ],
)
def test_what_has_appeared_and_expired_before_it_was_seen_is_lost(beginnings: dict, gap: OffsetRange) -> None:
    ends = {topic: dict.fromkeys(parts, 9) for topic, parts in beginnings.items()}
    stands, kafka = at({"t": {"0": 5}}), held(beginnings, ends)
    with pytest.raises(OffsetsLost, match=r"wants offset 0 next, Kafka holds \[4, 9\), so \[0, 4\) is missing"):
        resume(stands, kafka, never, left(4))
    found = resume(stands, kafka, never, left(4), continue_on_data_loss=True)
    assert (found.offsets[gap.at], found.lost) == (4, (gap,))


def test_a_topic_that_was_made_again_is_refused() -> None:
    with pytest.raises(TopicRecreated, match="deleted and recreated"):
        resume(at({"t": {"0": 5}}, {"t": "old"}), held({"t": {"0": 0}}, {"t": {"0": 9}}), never, left())


def test_a_position_without_topic_ids_is_taken_as_it_is() -> None:
    position = Position(3, Offsets.from_dict({"t": {"0": 5}}))
    assert resume(position, held({"t": {"0": 0}}, {"t": {"0": 9}}), never, left()).offsets.to_dict() == {"t": {"0": 5}}


def test_records_that_retention_removed_before_they_were_read_stop_the_run() -> None:
    with pytest.raises(OffsetsLost) as caught:
        resume(
            at({"t": {"0": 5, "1": 9}}), held({"t": {"0": 8, "1": 0}}, {"t": {"0": 9, "1": 9}}), never, left(8, WROTE)
        )
    said = str(caught.value)
    assert "up to 3 in 1 partition. " in said
    assert (
        "t-0: the table wants offset 5 next, Kafka holds [8, 9), so [5, 8) is missing, up to 3 records, written before "
        "2026-01-01 03:04:05 UTC" in said
    )
    assert "`source: {on_data_loss: continue}` and `trigger: available_now`" in caught.value.hint


def test_on_request_it_goes_on_behind_what_was_lost_and_names_it() -> None:
    found = resume(
        at({"t": {"0": 5}}), held({"t": {"0": 8}}, {"t": {"0": 9}}), never, left(8), continue_on_data_loss=True
    )
    assert found == Resumption(Offsets.from_dict({"t": {"0": 8}}), (OffsetRange("t", 0, 5, 8),))


def test_what_was_lost_came_after_all_that_the_table_is_complete_to() -> None:
    position = replace(at({"t": {"0": 5}}), read_to=datetime(2025, 12, 31, tzinfo=timezone.utc))
    with pytest.raises(OffsetsLost, match="All that Kafka held at 2025-12-31 00:00:00 UTC is in the table"):
        resume(position, held({"t": {"0": 8}}, {"t": {"0": 9}}), never, left(8, WROTE))


@pytest.mark.parametrize(("start", "goes_on"), [(10, 10), (7, 8), (99, 12)])
def test_what_is_left_out_ahead_of_the_oldest_record_is_lost_too(start: int, goes_on: int) -> None:
    kafka = held({"t": {"0": 8, "1": 0}}, {"t": {"0": 12, "1": 9}})
    found = resume(at({"t": {"0": 5, "1": 2}}), kafka, never, left(start), continue_on_data_loss=True)
    assert found.offsets.to_dict() == {"t": {"0": goes_on, "1": 2}}
    assert found.lost == (OffsetRange("t", 0, 5, goes_on),)


def test_records_that_were_read_before_retention_removed_them_are_no_loss() -> None:
    found = resume(at({"t": {"0": 8}}), held({"t": {"0": 8}}, {"t": {"0": 8}}), never, left())
    assert found == Resumption(Offsets.from_dict({"t": {"0": 8}}))


@pytest.mark.parametrize("continue_", [False, True])
def test_a_topic_that_ends_before_the_position_is_never_read(continue_: bool) -> None:
    with pytest.raises(OffsetsLost, match="ends before the table's offsets"):
        resume(
            at({"t": {"0": 8}}), held({"t": {"0": 0}}, {"t": {"0": 7}}), never, left(), continue_on_data_loss=continue_
        )


def under(leader: int | None, ends: dict[TopicPartition, int]) -> TopicsHeld:
    """t-0, with 9 records, led by this leader now; ``ends``: where the records of the ones before it end."""
    kafka = held({"t": {"0": 0}}, {"t": {"0": 9}})
    leaders = {} if leader is None else {AT: leader}
    return replace(kafka, leaders=leaders, ends_of=lambda asked: {at: ends[at] for at in asked})


@pytest.mark.parametrize(("leader", "end"), [(4, 4), (4, 0), (4, -1), (2, -1)])
def test_a_new_leader_that_lacked_records_stops_the_run(leader: int, end: int) -> None:
    stands = replace(at({"t": {"0": 5}}), leaders={AT: 3})
    with pytest.raises(OffsetsLost, match=rf"t-0 was cut at offset {max(end, 0)} .*below offset 5"):
        resume(stands, under(leader, {AT: end}), never, left(), continue_on_data_loss=True)


@pytest.mark.parametrize(
    ("known", "leader", "ends"),
    [(3, 4, {AT: 5}), (3, 4, {AT: 9}), (3, 3, {}), (3, None, {}), (None, 4, {})],
    ids=["at the end", "further on", "the same leader", "a broker that tells none", "a position that tells none"],
)
def test_a_log_that_is_whole_is_read_on(known: int | None, leader: int | None, ends: dict) -> None:
    stands = replace(at({"t": {"0": 5}}), leaders={} if known is None else {AT: known})
    assert resume(stands, under(leader, ends), never, left()).offsets == Offsets({AT: 5})


def test_leaders_are_of_these_offsets_only() -> None:
    """A consumer group's offsets may lie behind what the leader at the time of the position had written."""
    stands = replace(at({"t": {"0": 5}}), leaders={AT: 3})
    assert stands.moved_to(stands.offsets).leaders == {AT: 3}
    assert resume(stands.moved_to(Offsets({AT: 7})), under(4, {AT: 6}), never, left()).offsets == Offsets({AT: 7})


def test_a_table_is_complete_up_to_the_beginning_of_the_oldest_open_transaction() -> None:
    everything = held({"t": {"0": 0, "1": 0}}, {"t": {"0": 9, "1": 4}})
    asked, other = everything.asked_at, TopicPartition("t", 1)
    earlier, later = asked - timedelta(minutes=9), asked + timedelta(minutes=9)

    def complete_to(before: datetime | None, *since: datetime | None) -> datetime | None:
        open_ = {at: HeldBack(3, each) for at, each in zip((AT, other), since, strict=False)}
        return replace(everything, held_back=open_).complete_to(before)

    assert complete_to(None) == asked
    assert complete_to(earlier) == asked
    assert complete_to(None, earlier) == earlier
    assert complete_to(None, later) == asked  # a producer's clock may be wrong
    assert complete_to(asked, earlier) == asked  # what was complete stays complete
    assert complete_to(None, later, earlier) == earlier
    assert complete_to(None, earlier, None) is None
    assert complete_to(earlier, None) == earlier
    waiting = replace(everything, held_back={AT: HeldBack(3, earlier)})
    assert (behind(everything.ends, waiting), readable(everything.ends, waiting)) == (3, 0)


def test_offsets_that_a_group_has_forgotten_are_not_those_of_the_hand_over() -> None:
    stood = at({"t": {"0": 5, "1": 3}, "left": {"0": 9}})
    kafka = held({"t": {"0": 0, "1": 0, "2": 0}}, {"t": {"0": 90, "1": 70, "2": 4}})
    everything = Offsets.from_dict({"t": {"0": 80, "1": 2}})
    assert reached(stood, everything, kafka, "g").to_dict() == {"left": {"0": 9}, "t": {"0": 80, "1": 3}}
    with pytest.raises(OffsetsForgotten, match="group 'g' has no offset of t-1 any more"):
        reached(stood, Offsets.from_dict({"t": {"0": 80}}), kafka, "g")
    with pytest.raises(OffsetsForgotten, match="no offset of t-0, t-1 any more"):
        reached(stood, Offsets(), kafka, "g")
    again = held({"t": {"0": 0, "1": 0}}, {"t": {"0": 2, "1": 2}}, {"t": "another"})
    assert reached(stood, Offsets(), again, "g") == stood.offsets  # it was recreated, which is told as such


def kept_for(seconds: int) -> Mapping[str, timedelta]:
    return {"t": timedelta(seconds=seconds)}


def late(position: Position, kafka: TopicsHeld, kept: Mapping[str, timedelta]) -> tuple[OffsetRange, ...]:
    """What may lack deletes. Where there is any, a run stops, unless the user lets it go on."""
    kafka = replace(kafka, keeps=kept)
    found = resume(position, kafka, never, left(), continue_on_data_loss=True)
    if found.missed:
        with pytest.raises(OffsetsLost, match="may be gone from compacted topics") as refused:
            resume(position, kafka, never, left())
        assert "`source: {on_data_loss: continue}` and `trigger: available_now`" in refused.value.hint
    else:
        assert resume(position, kafka, never, left()) == found
    return found.missed


@given(
    read_to=st.none() | st.integers(0, 9), began_at=st.none() | st.integers(0, 9), wrote=st.integers(0, 20),
    cleaned=st.integers(0, 20), kept=st.integers(0, 9), now=st.integers(0, 40),
)  # fmt: skip
def test_no_tombstone_is_gone_before_it_was_read_in_silence(
    read_to: int | None, began_at: int | None, wrote: int, cleaned: int, kept: int, now: int
) -> None:
    """The row was read, or was there to be read, when the pipeline began or read everything: its tombstone isn't
    cleaned before that. Kafka removes it so much later."""
    second = [WROTE + timedelta(seconds=number) for number in range(41)]
    position = replace(
        at({"t": {"0": 5}}),
        read_to=None if read_to is None else second[read_to],
        began_at=None if began_at is None else second[began_at],
    )
    known = max((time for time in (read_to, began_at) if time is not None), default=0)
    gone = max(known, wrote, cleaned) + kept <= now
    kafka = replace(held({"t": {"0": 0}}, {"t": {"0": 9}}), asked_at=second[now])
    found = late(position, kafka, kept_for(kept))
    assert found in ((), (OffsetRange("t", 0, 5, 9),))
    if gone:
        assert found
    if known + kept > now and (read_to, began_at) != (None, None):
        assert not found, "a pipeline that comes in time isn't stopped"


def test_where_no_delete_can_be_missing_a_run_goes_on_however_late_it_is() -> None:
    kafka = replace(held({"t": {"0": 0}}, {"t": {"0": 9}}), asked_at=WROTE)
    position = replace(at({"t": {"0": 5}}), read_to=WROTE - timedelta(days=2))
    day, everything = kept_for(86_400), OffsetRange("t", 0, 5, 9)
    assert late(position, kafka, day) == (everything,)
    assert late(replace(position, read_to=None, committed_at=WROTE), kafka, day) == (), "an earlier version's commit"
    assert late(replace(position, read_to=None), kafka, day) == (everything,), "nothing tells when it was"
    goes_on = [
        replace(position, offsets=Offsets({AT: 9})),  # nothing was written since
        replace(position, since=Offsets({AT: 5})),  # no row is there yet
        replace(position, delivery="idempotent"),  # its offsets are in a group, and nobody knows
        replace(position, read_to=WROTE - timedelta(hours=23)),
        replace(position, began_at=WROTE - timedelta(hours=23)),
        replace(position, missed=(OffsetRange("t", 0, 3, 9),)),  # passed by an epoch that didn't get to the end
    ]
    for each in goes_on:
        assert late(each, kafka, day) == ()
    assert late(replace(position, missed=(OffsetRange("t", 0, 3, 5),)), kafka, day) == (everything,)
    assert late(position, kafka, {}) == (), "not compacted"


def test_an_epoch_keeps_what_it_was_too_late_for_and_when_its_pipeline_began() -> None:
    kafka = replace(held({"t": {"0": 0}}, {"t": {"0": 9}}), asked_at=WROTE)
    first = next_epoch("p", "o", None, Resumption(kafka.beginnings), kafka, max_records=5, now=WROTE)
    assert first is not None
    assert (first.position().began_at, first.read_to) == (WROTE, None)
    later = WROTE + timedelta(days=1)
    kafka = replace(kafka, asked_at=later)
    passed = resume(first.position(), replace(kafka, keeps=kept_for(60)), never, left(), continue_on_data_loss=True)
    second = next_epoch("p", "o", first.position(), passed, kafka, max_records=2, now=later)
    assert second is not None
    stands = second.position()
    assert (stands.began_at, stands.missed) == (WROTE, (OffsetRange("t", 0, 5, 9),))
    assert late(stands, kafka, kept_for(60)) == (), "the rest of it is passed already"
    nothing = Epoch.of_no_records(stands, pipeline="p", owner="o").position()
    assert (nothing.began_at, nothing.missed) == (WROTE, stands.missed)
