import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from connector.protocol.gone import NEVER, Looks, with_gone
from connector.protocol.plan import next_epoch
from connector.protocol.recover import Resumption, TopicsHeld, resume
from connector.protocol.recreated import recreated, retirement
from sinks.contract import Position
from sinks.errors import OffsetsLost, TopicRecreated
from sinks.event_time import Clock, Seen
from sinks.offsets import OffsetRange, Offsets, TopicPartition
from sinks.recreated import is_retired, retired, topic_of

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
OLD = "#old/t"
POSITION = Position(
    7,
    Offsets.from_dict({"t": {"0": 50, "1": 40}, "u": {"0": 3}}),
    {"t": "old", "u": "same"},
    since=Offsets.from_dict({"t": {"0": 10, "1": 0}, "u": {"0": 0}}),
    lost=(OffsetRange("t", 0, 20, 30), OffsetRange("u", 0, 1, 2)),
    clock=Clock({}, {TopicPartition(topic, 0): Seen(NOW, NOW, NOW) for topic in "tu"}, NOW),
)
HELD = TopicsHeld(
    Offsets.from_dict({"t": {"0": 2}, "u": {"0": 0}}),
    Offsets.from_dict({"t": {"0": 9}, "u": {"0": 5}}),
    {"t": "new", "u": "same"},
    NOW,
)


def test_a_topic_with_another_id_was_made_again() -> None:
    assert recreated(POSITION, HELD) == {"t": OLD}
    assert recreated(replace(POSITION, topics={"t": "new", "gone": "x"}), HELD) == {}


def test_what_is_stored_of_the_old_one_gets_its_name_and_the_new_one_stands_at_zero() -> None:
    """Although Kafka holds it from offset 2 on: what it has removed since is lost, and has to be said."""
    epoch = retirement("p", "run", POSITION, HELD, {"t": OLD}, Offsets())
    assert (epoch.number, epoch.ranges, epoch.expected) == (8, (), POSITION)
    assert epoch.offsets.to_dict() == {OLD: {"0": 50, "1": 40}, "t": {"0": 0}, "u": {"0": 3}}
    assert epoch.since.to_dict() == {OLD: {"0": 10, "1": 0}, "t": {"0": 0}, "u": {"0": 0}}
    assert epoch.topics == {OLD: "old", "t": "new", "u": "same"}
    assert epoch.lost == (OffsetRange(OLD, 0, 20, 30), OffsetRange("u", 0, 1, 2))
    assert epoch.clock.watermark == NOW
    assert epoch.clock.so_far.keys() == {TopicPartition("u", 0)}
    assert epoch.clock.retired == NOW, "its rows are there still, for a rewind"


def test_the_leaders_of_other_topics_stay_for_they_tell_of_a_cut() -> None:
    leaders = {TopicPartition("t", 0): 1, TopicPartition("u", 0): 3}
    now = {TopicPartition("t", 0): 0, TopicPartition("u", 0): 4}
    epoch = retirement(
        "p", "run", replace(POSITION, leaders=leaders), replace(HELD, leaders=now), {"t": OLD}, Offsets()
    )
    assert epoch.leaders == {TopicPartition("t", 0): 0, TopicPartition("u", 0): 3}


def test_a_topic_made_again_twice_keeps_both_names() -> None:
    once = retirement("p", "run", POSITION, HELD, {"t": OLD}, Offsets()).position()
    again = replace(HELD, ids={"t": "newest", "u": "same"})
    names = recreated(once, again)
    assert names == {"t": "#new/t"}
    twice = retirement("p", "run", once, again, names, Offsets())
    assert twice.topics == {OLD: "old", "#new/t": "new", "t": "newest", "u": "same"}


def test_a_topic_that_comes_back_is_not_read_again() -> None:
    """A failover and a failback: its first records are older than those of the topic that was read meanwhile."""
    there = retirement("p", "run", POSITION, HELD, {"t": OLD}, Offsets()).position()
    back = replace(HELD, ids={"t": "old", "u": "same"})
    names = recreated(there, back)
    assert names == {"t": "#new/t"}
    for start in (0, 49):
        with pytest.raises(TopicRecreated, match=r"which the pipeline has read before: .*#old/t") as caught:
            retirement("p", "run", there, back, names, Offsets({TopicPartition("t", 0): start}))
        assert "lakelock translate" in caught.value.hint
    with pytest.raises(TopicRecreated, match="has read before"):
        resume(there, back, Offsets, lambda _: {})


def test_a_topic_that_comes_back_goes_on_where_it_is_told_to_behind_what_was_read_of_it() -> None:
    there = retirement("p", "run", POSITION, HELD, {"t": OLD}, Offsets()).position()
    back = replace(HELD, ids={"t": "old", "u": "same"})
    at = TopicPartition("t", 0)
    returned = retirement("p", "run", there, back, recreated(there, back), Offsets({at: 60})).position()
    assert (returned.offsets[at], returned.since[at], returned.topics["t"]) == (60, 60, "old")
    returned = replace(returned, offsets=Offsets({**returned.offsets, at: 70}))
    again = retirement("p", "run", returned, HELD, recreated(returned, HELD), Offsets({at: 5}))
    assert again.offsets.to_dict() == {"#new/t": {"0": 0}, OLD: {"0": 70, "1": 40}, "t": {"0": 5}, "u": {"0": 3}}
    assert again.since.to_dict()[OLD] == {"0": 10, "1": 0}


def seen(end: int, then: TopicsHeld, *, pattern: bool = True) -> TopicsHeld:
    """A run saw the old topic up to ``end``, and now sees ``then``."""
    looks = Looks(lambda _: pattern)
    looks.after(replace(HELD, ids={"t": "old", "u": "same"}, ends=Offsets.from_dict({"t": {"0": end}, "u": {"0": 5}})))
    return looks.after(then)


@pytest.mark.parametrize("pattern", [True, False])
def test_what_a_run_has_seen_of_the_old_topic_and_never_read_is_not_passed_in_silence(pattern: bool) -> None:
    held, names = seen(150, HELD, pattern=pattern), {"t": OLD}
    epoch = retirement("p", "run", POSITION, held, names, Offsets())
    known = (OffsetRange(OLD, 0, 20, 30), OffsetRange("u", 0, 1, 2))
    assert (epoch.gone, epoch.lost) == ({OLD: None}, (*known, OffsetRange(OLD, 0, 50, 150)))
    assert epoch.lost_now == (OffsetRange(OLD, 0, 50, 150),), "and what was lost before has only another name"
    longer = replace(POSITION, lost=(OffsetRange("t", 0, 20, 50),))
    epoch = retirement("p", "run", longer, held, names, Offsets())
    assert (epoch.lost, epoch.lost_now) == ((OffsetRange(OLD, 0, 20, 150),), (OffsetRange(OLD, 0, 50, 150),))
    assert epoch.offsets.to_dict() == {OLD: {"0": 150, "1": 40}, "t": {"0": 0}, "u": {"0": 3}}
    later = with_gone(Resumption(Offsets()), epoch.position(), held, continue_on_data_loss=False)
    assert later == Resumption(Offsets()), "it is said once"


def test_an_old_topic_that_was_read_to_the_end_that_the_run_has_seen_leaves_no_doubt() -> None:
    epoch = retirement("p", "run", POSITION, seen(50, HELD), {"t": OLD}, Offsets())
    assert (epoch.gone, epoch.lost) == ({OLD: None}, (OffsetRange(OLD, 0, 20, 30), OffsetRange("u", 0, 1, 2)))


def test_an_old_topic_that_no_look_has_seen_is_in_doubt_if_a_pattern_matched_it() -> None:
    """Who names it in a list is told that what wasn't read is lost."""
    position = replace(POSITION, read_to=NOW)
    for pattern, gone in ((True, {OLD: NOW}), (False, {})):
        held = Looks(lambda _, pattern=pattern: pattern).after(HELD)
        assert retirement("p", "run", position, held, {"t": OLD}, Offsets()).gone == gone
    noted = replace(position, gone={"t": None})
    assert retirement("p", "run", noted, held, {"t": OLD}, Offsets()).gone == {OLD: None}


def test_where_the_new_topic_has_the_records_that_the_old_one_had_left_nothing_is_lost() -> None:
    held, at = seen(150, HELD), TopicPartition("t", 0)
    epoch = retirement("p", "run", POSITION, held, {"t": OLD}, Offsets({at: 7}))
    assert (epoch.gone, epoch.offsets[at]) == ({}, 7)
    assert with_gone(Resumption(Offsets()), epoch.position(), held, continue_on_data_loss=False).lost == ()


def test_a_topic_that_was_recreated_before_any_of_it_was_read_is_lost_too() -> None:
    position = replace(POSITION, offsets=Offsets.from_dict({"u": {"0": 3}}), topics={"u": "same"}, since=Offsets())
    looks = Looks(lambda _: True)
    looks.after(replace(HELD, ids={"t": "old", "u": "same"}))
    first = looks.after(HELD)
    doubted = with_gone(Resumption(Offsets()), position, first, continue_on_data_loss=False)
    assert (doubted.gone, doubted.gone_ids, doubted.lost) == ({OLD: NEVER}, {OLD: "old"}, ())
    sure = looks.after(replace(HELD, asked_at=NOW + timedelta(seconds=9)))
    with pytest.raises(OffsetsLost, match=re.escape(f"[0, 9) of {OLD}-0")):
        with_gone(Resumption(Offsets()), position, sure, continue_on_data_loss=False)
    ended = with_gone(Resumption(HELD.ends), position, sure, continue_on_data_loss=True)
    epoch = next_epoch("p", "run", position, ended, sure, max_records=9, now=NOW)
    assert epoch is not None
    assert (epoch.lost_now, epoch.topics[OLD], epoch.gone) == ((OffsetRange(OLD, 0, 0, 9),), "old", {OLD: None})
    assert with_gone(Resumption(HELD.ends), epoch.position(), sure, continue_on_data_loss=False).lost == ()
    # A broker that was behind has shown the old id once more.
    flips = looks.after(replace(HELD, ids={"t": "old", "u": "same"}, asked_at=NOW + timedelta(seconds=10)))
    assert (flips.gone, flips.lacked.keys()) == ({}, {"#new/t"})


def test_the_name_is_no_topics_and_sorts_before_all_of_them() -> None:
    legal = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
    assert all(retired("t", "zz") < first for first in legal)
    assert (is_retired("#id/t"), is_retired("t"), topic_of("#id/t"), topic_of("t")) == (True, False, "t", "t")
