"""Topics that a pattern matched and that are deleted: read to their ends, or not, or nobody knows."""

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from fakes import Group, To, Topic
from hypothesis import given
from hypothesis import strategies as st

from connector.delivery.ports import Work
from connector.delivery.transactional import deliver
from connector.protocol.gone import NEVER, Looks, doubts, with_gone
from connector.protocol.plan import next_epoch
from connector.protocol.recover import HeldBack, Resumption, TopicsHeld
from connector.protocol.rewind import Goal
from sinks.contract import Committed, Epoch, Position
from sinks.errors import OffsetsLost
from sinks.memory import MemoryAppend, MemoryTable, Record
from sinks.offsets import OffsetRange, Offsets, TopicPartition

NOW = datetime(2026, 11, 28, 2, tzinfo=timezone.utc)
READ_TO = NOW - timedelta(hours=4)
OLD, NEW = TopicPartition("day-27", 0), TopicPartition("day-28", 0)
POSITION = Position(7, Offsets({OLD: 600}), {"day-27": "27"}, read_to=READ_TO)
LOST = OffsetRange("day-27", 0, 600, 1000)


def matches(name: str) -> bool:
    return name.startswith("day-")


def held(**ends: int) -> TopicsHeld:
    at = {TopicPartition(name.replace("_", "-"), 0): end for name, end in ends.items()}
    ids = {each.topic: each.topic.partition("-")[2] for each in at}
    return TopicsHeld(Offsets(dict.fromkeys(at, 0)), Offsets(at), ids, NOW, asks_for=matches)


def looked(looks: list[tuple[int, TopicsHeld]]) -> TopicsHeld:
    """The last of these looks of a run. Each comes so many seconds after the first."""
    seen = Looks(matches)
    return [seen.after(replace(look, asked_at=NOW + timedelta(seconds=time))) for time, look in looks][-1]


def after(*looks: TopicsHeld) -> TopicsHeld:
    """The last look, after what it lacks was lacking for a while."""
    return looked([(10 * number, look) for number, look in enumerate([*looks, looks[-1]])])


def planned(look: TopicsHeld, position: Position = POSITION, *, goes_on: bool = False) -> Epoch | None:
    resumption = Resumption(Offsets({at: position.offsets.get(at, 0) for at in look.beginnings}))
    found = with_gone(resumption, position, look, continue_on_data_loss=goes_on)
    return next_epoch("p", "run", position, found, look, max_records=9_999, now=NOW)


def test_a_topic_that_is_gone_with_records_that_the_run_has_seen_stops_it() -> None:
    with pytest.raises(OffsetsLost, match=re.escape("[600, 1000) of day-27-0")) as caught:
        planned(after(held(day_27=1000), held(day_28=50)))
    assert "up to 400" in caught.value.message


def test_where_the_run_is_to_go_on_they_are_noted_as_lost() -> None:
    look = after(held(day_27=1000), held(day_28=50))
    epoch = planned(look, goes_on=True)
    assert epoch is not None
    assert (epoch.lost, epoch.offsets[OLD], epoch.offsets[NEW], epoch.gone) == ((LOST,), 1000, 50, {"day-27": None})
    assert planned(look, epoch.position(), goes_on=True) is None, "it is said once"


def test_a_topic_that_came_and_went_before_any_of_it_was_read_is_lost_too() -> None:
    look = after(held(day_27=600), held(day_27=600, day_28=9), held(day_27=600))
    with pytest.raises(OffsetsLost, match=re.escape("[0, 9) of day-28-0")):
        planned(look)
    epoch = planned(look, goes_on=True)
    assert epoch is not None
    assert (epoch.topics["day-28"], epoch.offsets[NEW], epoch.gone) == ("28", 9, {"day-28": None})
    empty = after(held(day_27=600), held(day_27=600, day_28=0), held(day_27=600))
    assert planned(empty) is None


def test_a_topic_that_was_read_to_its_end_is_noted_once_and_no_later_run_doubts_it() -> None:
    epoch = planned(after(held(day_27=600), held(day_28=0)))
    assert epoch is not None
    assert (epoch.ranges, epoch.lost, epoch.gone) == ((), (), {"day-27": None})
    assert doubts(epoch.gone) == ""
    later = planned(held(day_28=5), epoch.position())
    assert later is not None
    assert later.gone == {"day-27": None}
    assert planned(held(day_28=5), later.position()) is None


def test_a_topic_that_was_gone_at_the_first_look_may_lack_records_and_that_is_noted() -> None:
    epoch = planned(held(day_28=50))
    assert epoch is not None
    assert (epoch.gone, epoch.lost, epoch.offsets[OLD]) == ({"day-27": READ_TO}, (), 600)
    assert "day-27 (after 2026-11-27 22:00:00 UTC)" in doubts(epoch.gone)
    never = planned(held(day_28=50), replace(POSITION, read_to=None, began_at=NOW))
    assert never is not None
    assert never.gone == {"day-27": NEVER}
    assert "read: day-27. `lakelock" in doubts(never.gone)
    # Later everything else is read to its end: that says nothing of this topic.
    later = planned(held(day_28=60), epoch.position())
    assert later is not None
    assert later.gone == epoch.gone


def test_what_a_transaction_held_back_when_the_topic_was_seen_last_may_be_missing() -> None:
    open_ = replace(held(day_27=600), held_back={OLD: HeldBack(3, None)})
    epoch = planned(after(open_, held(day_28=0)))
    assert epoch is not None
    assert epoch.gone == {"day-27": NOW}


def test_a_topic_that_is_there_again_is_no_longer_noted() -> None:
    noted = replace(POSITION, gone={"day-27": READ_TO})
    epoch = planned(held(day_27=600), noted)
    assert epoch is not None
    assert epoch.gone == {}
    # What is written to it before it goes once more is lost, whatever was noted before.
    with pytest.raises(OffsetsLost):
        planned(after(held(day_27=601), held(day_28=0)), replace(noted, gone={"day-27": None}))


@pytest.mark.parametrize("more", [0, 300])
def test_one_look_that_lacks_a_topic_does_not_show_that_it_was_deleted(more: int) -> None:
    there, away = held(day_27=600 + more), held(day_28=0)
    for looks in ([(0, there), (9, away)], [(0, there), (9, away), (13, away)]):
        assert planned(looked(looks)) is None, "no note, and no loss"
    again = planned(looked([(0, there), (9, away), (18, held(day_27=900)), (20, away)]))
    assert again is None, "the second look that lacks it is the first since it was there"
    back = planned(looked([(0, there), (9, away), (18, held(day_27=900))]), goes_on=True)
    assert back is not None
    assert (back.ranges, back.lost) == ((OffsetRange("day-27", 0, 600, 900),), ())
    sure = looked([(0, there), (9, away), (14, away)])
    epoch = planned(sure, goes_on=True)
    assert epoch is not None
    assert (epoch.gone, sum(gap.span for gap in epoch.lost)) == ({"day-27": None}, more)


def test_what_no_commit_would_doubt_is_doubted_until_it_is_sure() -> None:
    """The run may end before: the next one wouldn't know that it has seen the records."""
    came_and_went = looked([(0, held(day_27=600)), (1, held(day_27=600, day_28=9)), (2, held(day_27=600))])
    epoch = planned(came_and_went)
    assert epoch is not None
    assert (epoch.gone, epoch.topics["day-28"], epoch.lost) == ({"day-28": NEVER}, "28", ())
    assert planned(came_and_went, epoch.position()) is None
    back = planned(held(day_27=600, day_28=9), epoch.position())
    assert back is not None
    assert (back.gone, back.ranges) == ({}, (OffsetRange("day-28", 0, 0, 9),))
    vouched = replace(POSITION, gone={"day-27": None})
    epoch = planned(looked([(0, held(day_27=601)), (1, held(day_28=0))]), vouched)
    assert epoch is not None
    assert epoch.gone == {"day-27": NEVER}
    assert planned(looked([(0, held(day_27=600)), (1, held(day_28=0))]), vouched) is None


def test_a_topic_that_was_gone_before_the_pipeline_began_is_not_missed() -> None:
    """With ``start: latest`` its records wouldn't have been read. With ``earliest`` the pipeline began without it."""
    looks = Looks(matches)
    for time, look in enumerate([held(day_27=900, day_28=5), held(day_28=5)]):
        began = looks.after(replace(look, asked_at=NOW + timedelta(seconds=10 * time)))
    assert began.lacked.keys() == {"day-27"}
    resumption = with_gone(Resumption(began.ends), None, began, continue_on_data_loss=False)
    first = next_epoch("p", "run", None, resumption, began, max_records=9, now=NOW)
    assert first is not None
    assert (first.offsets, first.topics, first.gone) == (Offsets({NEW: 5}), {"day-28": "28"}, {})
    for seconds in (20, 30):
        later = looks.after(replace(held(day_28=5), asked_at=NOW + timedelta(seconds=seconds)))
        assert planned(later, first.position()) is None
    # What a later look sees of it counts.
    for seconds, look in ((40, held(day_27=901, day_28=5)), (50, held(day_28=5)), (60, held(day_28=5))):
        later = looks.after(replace(look, asked_at=NOW + timedelta(seconds=seconds)))
    with pytest.raises(OffsetsLost, match=re.escape("[0, 901) of day-27-0")):
        planned(later, first.position())


def test_a_topic_is_asked_for_by_name_until_it_is_known_to_be_gone() -> None:
    looks = Looks(matches)
    asked = []
    for seconds, look in ((0, held(day_27=1, day_28=1)), (3, held(day_28=1)), (7, held(day_28=1)), (9, held(day_28=1))):
        asked.append(looks.lacked_by(["day-28"]))
        looks.after(replace(look, asked_at=NOW + timedelta(seconds=seconds)))
    assert (asked, looks.lacked_by(["day-28"])) == ([[], ["day-27"], ["day-27"], ["day-27"]], [])


@pytest.mark.parametrize("topic", ["other", "#27/day-27"])
def test_topics_that_left_the_file_and_retired_ones_are_not_missed(topic: str) -> None:
    position = replace(POSITION, offsets=Offsets({TopicPartition(topic, 0): 600}), topics={topic: "27"})
    assert planned(held(day_28=0), position) is None


def test_of_a_consumer_groups_position_nothing_is_said() -> None:
    assert planned(after(held(day_27=1000), held(day_28=0)), replace(POSITION, delivery="manual_commit")) is None


def test_before_its_first_epoch_a_rewound_pipeline_has_noted_nothing() -> None:
    began = replace(POSITION, gone={"day-27": None}, since=Offsets({OLD: 0}))
    assert Goal(0, None, began).position.gone == {}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(["day_1", "day_2"]), st.integers(1, 3)),
        st.tuples(st.just("delete"), st.sampled_from(["day_1", "day_2"]), st.just(0)),
        st.tuples(st.just("hide"), st.sampled_from(["day_1", "day_2"]), st.just(0)),
        st.tuples(st.sampled_from(["look", "epoch", "restart", "wait"]), st.just(""), st.just(0)),
    ),
    max_size=25,
)


@given(STEPS)
def test_whatever_a_run_has_seen_is_read_or_named_as_lost_or_its_topic_is_in_doubt(steps: list) -> None:
    """Each topic is created once: one that is recreated stops the run. What is hidden is lacked by one look."""
    there, deleted, seen = {"day_0": 1}, set[str](), dict[TopicPartition, int]()
    looks, read, hidden, hid, now = Looks(matches), 0, "", "", NOW
    position = Position(1, Offsets({TopicPartition("day-0", 0): 1}), {"day-0": "0"})
    for what, topic, count in [*steps, ("epoch", "", 0), ("epoch", "", 0)]:
        if what == "write" and topic not in deleted:
            there[topic] = there.get(topic, 0) + count
        elif what == "delete" and there.pop(topic, None) is not None:
            deleted.add(topic)
        elif what == "restart":
            looks = Looks(matches)
        elif what == "hide":
            hidden = topic if topic != hid else hidden
        now += timedelta(seconds=10 if what == "wait" else 2)
        if what not in ("look", "epoch"):
            continue
        shown = {name: count for name, count in there.items() if name != hidden}
        look, hidden = looks.after(replace(held(**shown), asked_at=now)), ""
        hid = (there.keys() - shown.keys() or {""}).pop()
        seen |= look.ends
        epoch = planned(look, position, goes_on=True) if what == "epoch" else None
        if epoch is not None:
            read += epoch.span
            position = epoch.position()
        assert {gap.topic.replace("-", "_") for gap in position.lost} <= deleted, "nothing is lost that is only hidden"
    for at, end in seen.items():
        # Of a topic that Kafka lacks and no commit vouches for, verify says UNKNOWN.
        lacking = at.topic.replace("-", "_") not in there and position.gone.get(at.topic, NEVER) is not None
        unread = position.offsets.get(at, 0) < end
        assert not unread or lacking or at.topic not in position.topics
    assert 1 + read + sum(gap.span for gap in position.lost) == sum(position.offsets.values())


class Days(Topic):
    """A topic a day. After each look something happens in Kafka."""

    def __init__(self, *happens: Callable[[], None]) -> None:
        super().__init__([[]])
        self.days, self.looks, self.happens = {"day_27": [("a", 1)]}, Looks(matches), iter(happens)
        self.stop = threading.Event()

    def look(self) -> TopicsHeld:
        now = datetime.now(timezone.utc)
        there = held(**{name: len(records) for name, records in self.days.items()})
        found = self.looks.after(replace(there, asked_at=now))
        next(self.happens, self.stop.set)()
        return found

    def read(self, epoch: Epoch) -> list[Record]:
        if any(each.topic.replace("-", "_") not in self.days for each in epoch.ranges):
            raise OffsetsLost("as the reader says")
        return [
            Record(each.at, offset, *self.days[each.topic.replace("-", "_")][offset])
            for each in epoch.ranges
            for offset in range(each.start, each.end)
        ]


def run(topic: Days, table: MemoryTable) -> None:
    sink = MemoryAppend(table)

    def run_epoch(epoch: Epoch, behind: int) -> Committed:
        return sink.write(epoch, topic.read(epoch))

    work = Work("p", "run", topic, To(sink.position, run_epoch), 9, Group(), lambda event: None)
    deliver(work, interval=timedelta(milliseconds=1), stop=topic.stop)


@pytest.fixture
def soon_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connector.protocol.gone.SURE_AFTER", timedelta(microseconds=1))


@pytest.mark.usefixtures("soon_sure")
def test_a_topic_a_day_that_is_deleted_after_it_was_read_makes_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    def next_day() -> None:
        topic.days["day_28"] = [("b", 2)]

    def delete() -> None:
        del topic.days["day_27"]

    def nothing() -> None:
        pass

    topic, table = Days(nothing, nothing, next_day, nothing, nothing, delete, *[nothing] * 4), MemoryTable()
    with caplog.at_level(logging.WARNING):
        run(topic, table)
        # A second run has never seen it.
        topic.looks, topic.stop, topic.happens = Looks(matches), threading.Event(), iter([nothing] * 2)
        run(topic, table)
    assert table.position is not None
    assert (table.position.gone, table.position.lost, table.position.epoch) == ({"day-27": None}, (), 3)
    assert (len(table.rows), caplog.text) == (2, "")


@pytest.mark.usefixtures("soon_sure")
def test_a_topic_that_is_deleted_before_its_last_records_were_read_stops_the_run_and_warns_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def more() -> None:
        topic.days["day_27"] += [("c", 3)]

    def delete() -> None:
        topic.days = {"day_28": []}

    def nothing() -> None:
        pass

    topic, table = Days(nothing, more, delete, nothing, nothing), MemoryTable()
    with pytest.raises(OffsetsLost, match=re.escape("[1, 2) of day-27-0")):
        run(topic, table)
    topic.looks, topic.stop, topic.happens = Looks(matches), threading.Event(), iter([nothing] * 2)
    with caplog.at_level(logging.WARNING):
        run(topic, table)
    assert "day-27 (after" in caplog.text
    assert table.position is not None
    assert table.position.gone == {"day-27": table.commits[0].read_to}


def paused(last: TopicsHeld, then: TopicsHeld, *, seconds: int = 600) -> TopicsHeld:
    """What the first look of a run sees that goes on after another one, whose last look was ``last``."""
    looks = Looks(matches)
    looks.after(last)
    looks.pause()
    looks.after(replace(then, asked_at=NOW + timedelta(seconds=seconds)))
    return looks.after(replace(then, asked_at=NOW + timedelta(seconds=seconds + 10)))


def test_a_run_that_is_started_again_knows_what_the_one_before_has_seen() -> None:
    with pytest.raises(OffsetsLost, match=re.escape("[600, 1000) of day-27-0")):
        planned(paused(held(day_27=1000), held(day_28=0)))
    epoch = planned(paused(held(day_27=1000), held(day_28=0)), goes_on=True)
    assert epoch is not None
    assert (epoch.lost, epoch.gone) == ((LOST,), {"day-27": NOW}), "and not what came after the last look"


def test_while_no_run_looks_nobody_knows_what_comes_to_a_topic() -> None:
    epoch = planned(paused(held(day_27=600), held(day_28=0)))
    assert epoch is not None
    assert epoch.gone == {"day-27": NOW}
    assert planned(paused(held(day_27=600), held(day_27=601, day_28=0)), POSITION) is not None
    again = paused(held(day_27=600), held(day_27=600, day_28=0))
    assert (again.gone, again.lacked) == ({}, {}), "a topic that is there still is looked at as before"


def test_a_topic_that_the_last_look_lacked_had_its_end_before_the_pause() -> None:
    looks = Looks(matches)
    looks.after(held(day_27=600, day_28=0))
    looks.lacks("day-27", NOW)
    looks.lacks("day-26", NOW)
    looks.pause()
    later = looks.after(replace(held(day_28=0), asked_at=NOW + timedelta(seconds=60)))
    assert (later.gone["day-27"].since, [*later.gone]) == (None, ["day-27"])
