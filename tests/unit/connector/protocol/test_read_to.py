"""Up to which time deletes of each topic are seen: never later than the truth, whatever looks lack."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.protocol.gone import Looks, Seen
from connector.protocol.plan import next_epoch
from connector.protocol.read_to import ahead, looked, seen_to, wants_renewal
from connector.protocol.recover import HeldBack, TopicsHeld, resume
from connector.protocol.recreated import retirement
from sinks.contract import Position
from sinks.errors import OffsetsLost
from sinks.offsets import OffsetRange, Offsets, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
BEGAN = datetime(2026, 11, 1, 8, tzinfo=timezone.utc)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def held(ends: Mapping[TopicPartition, int], now: datetime, **open_: HeldBack) -> TopicsHeld:
    back = {TopicPartition(topic, 0): each for topic, each in open_.items()}
    ids = {at.topic: f"id-{at.topic}" for at in ends}
    return TopicsHeld(Offsets(dict.fromkeys(ends, 0)), Offsets(ends), ids, now, held_back=back)


def after(
    position: Position | None, kafka: TopicsHeld, *, goes_on: bool = False, max_records: int = 10**6
) -> Position | None:
    """The position after the next epoch of topics that keep tombstones for a day. None: there is no epoch."""
    a_day = replace(kafka, keeps=dict.fromkeys(kafka.ids, DAY))
    found = resume(position, a_day, Offsets, lambda _: {}, continue_on_data_loss=goes_on)
    now = kafka.looked_at
    epoch = next_epoch("p", "run", position, found, kafka, max_records=max_records, now=now)
    return epoch.position() if epoch is not None else None


def stands(ends: Mapping[TopicPartition, int], now: datetime) -> Position:
    position = after(None, held(ends, now))
    assert position is not None
    return position


@given(st.lists(st.tuples(
    st.sets(st.sampled_from([A, B])), st.sets(st.sampled_from([A, B]), min_size=1), st.booleans(), st.booleans(),
), max_size=12))  # fmt: skip
def test_a_topics_time_is_that_of_the_last_look_that_found_everything_of_it_read(steps: list) -> None:
    """Each hour some topics get records, and a run looks at some topics. It may read one record only, and it may be
    another run, which knows what was committed. A topic that is read for the first time has no row from before that."""
    ends, truth, stored, known = {A: 1, B: 1}, dict[str, datetime](), None, None
    for hour, (written, there, all_of_it, restarts) in enumerate(steps):
        ends |= {at: ends[at] + 3 for at in written}
        kafka = held({at: ends[at] for at in there}, BEGAN + hour * HOUR)
        known = stored if restarts or known is None else known
        found = resume(known, kafka, lambda beginnings=kafka.beginnings: beginnings, lambda _: {})
        known = looked(known, found.offsets, kafka) if known is not None else None
        bound = 10**6 if all_of_it else 1
        epoch = next_epoch("p", "run", known, found, kafka, max_records=bound, now=kafka.asked_at)
        before, known = known, epoch.position() if epoch is not None else known
        assert known is not None
        stored = known if epoch is not None else stored
        for at in there:
            if known.offsets[at] >= ends[at] or (before is None or at not in before.partitions_read):
                truth[at.topic] = kafka.asked_at
        for topic in {at.topic for at in known.partitions_read}:
            told = seen_to(known, topic, kafka.asked_at)
            assert told is not None
            assert told <= truth[topic]
            if not any(restart for *_, restart in steps):
                assert told == truth[topic], "a pipeline that comes in time isn't stopped"


def test_a_topic_that_comes_back_after_looks_lacked_it_has_its_own_old_time() -> None:
    position = stands({A: 100, B: 50}, BEGAN)
    for day in range(1, 8):
        later = after(position, held({A: 100 + day}, BEGAN + day * DAY / 2))
        assert later is not None
        position = later
    assert position.read_to_of == {"b": BEGAN}
    back = held({A: 120, B: 60}, BEGAN + 4 * DAY)
    with pytest.raises(OffsetsLost, match=r"Deletes since 2026-11-01 08:00:00 UTC .* b-0 \[50, 60\)\."):
        after(position, back)
    went_on = after(position, back, goes_on=True)
    assert went_on is not None
    assert went_on.missed == (OffsetRange("b", 0, 50, 60),)
    assert went_on.read_to_of == {}, "everything of it is read now"
    in_time = replace(back, asked_at=BEGAN + 3.6 * DAY)
    assert after(replace(position, read_to_of={"b": BEGAN + 3 * DAY}), in_time)
    with pytest.raises(OffsetsLost, match=r"Deletes may be gone .* b-0"):
        after(replace(position, read_to_of={"b": None}), in_time)


def test_a_commit_of_0_2_tells_of_no_topic_and_the_first_run_that_lacks_one_begins_to_count() -> None:
    """Its ``read_to`` is of the topics of its look, and nothing tells which these were. The runbook's table of the
    upgrade says so."""
    by_0_2 = replace(stands({A: 100, B: 50}, BEGAN), began_at=None)
    soon = held({A: 101, B: 60}, BEGAN + HOUR)
    assert after(by_0_2, soon), "a pipeline that comes in time isn't stopped"
    without = after(by_0_2, held({A: 101}, BEGAN + HOUR))
    assert without is not None
    assert without.read_to_of == {"b": BEGAN}
    assert after(without, replace(soon, asked_at=BEGAN + DAY - HOUR))
    with pytest.raises(OffsetsLost, match=r"Deletes since 2026-11-01 08:00:00 UTC .* b-0"):
        after(without, replace(soon, asked_at=BEGAN + DAY))


def test_while_one_topic_has_much_to_read_another_stays_complete() -> None:
    position = stands({A: 100}, BEGAN)
    for hour in range(1, 40):
        next_ = after(position, held({A: 100, B: 10**6}, BEGAN + hour * HOUR), goes_on=True, max_records=5)
        assert next_ is not None
        position = next_
    now = BEGAN + 40 * HOUR
    assert (position.read_to, seen_to(position, "a", now), seen_to(position, "b", now)) == (
        BEGAN, BEGAN + 39 * HOUR, BEGAN + HOUR,
    )  # fmt: skip
    change = after(position, held({A: 101}, now))
    assert change is not None
    assert change.missed == position.missed


def test_an_open_transaction_holds_back_the_time_of_its_own_topic() -> None:
    position = stands({A: 10, B: 10}, BEGAN)
    later = after(position, held({A: 11, B: 10}, BEGAN + 2 * DAY / 3, b=HeldBack(3, BEGAN)))
    assert later is not None
    assert (later.read_to, later.read_to_of) == (BEGAN, {"a": BEGAN + 2 * DAY / 3})
    assert after(later, held({A: 12, B: 10}, BEGAN + DAY, b=HeldBack(3, None)))


def test_a_time_that_is_still_to_come_says_nothing() -> None:
    ahead_of_time = stands({A: 100}, BEGAN + 365 * DAY)
    assert ahead(ahead_of_time, BEGAN) == BEGAN + 365 * DAY
    with pytest.raises(OffsetsLost, match=r"Deletes may be gone .* a-0 \[100, 110\)"):
        after(ahead_of_time, held({A: 110}, BEGAN))
    by_storage = replace(ahead_of_time, committed_at=BEGAN)
    assert seen_to(by_storage, "a", BEGAN) is None, "it may be the last of many commits"
    right = after(ahead_of_time, held({A: 110}, BEGAN + HOUR), goes_on=True)
    assert right is not None
    assert (right.read_to, right.began_at, ahead(right, BEGAN + HOUR)) == (BEGAN + HOUR, None, None)
    with pytest.raises(OffsetsLost, match="Deletes since 2026-11-01 09:00:00 UTC"):
        after(right, held({A: 120}, BEGAN + 30 * DAY))
    part = after(ahead_of_time, held({A: 110}, BEGAN + HOUR), goes_on=True, max_records=3)
    assert part is not None
    assert (part.read_to, part.read_to_of) == (None, {"a": None}), "not the time of its own commit"
    half = replace(stands({A: 100}, BEGAN), read_to=BEGAN + 365 * DAY)
    assert seen_to(half, "a", BEGAN + DAY) == BEGAN, "when it began is known"
    assert after(ahead_of_time, held({A: 110}, BEGAN + 365 * DAY - timedelta(seconds=2))), "clocks differ by that"


def test_a_look_up_to_an_earlier_time_has_the_clock_of_now() -> None:
    """As `replay --until` looks: what began today isn't still to come, though everything is read up to last week."""
    until = replace(held({A: 10}, BEGAN - 7 * DAY), clock=BEGAN)
    part = after(None, until, max_records=5)
    assert part is not None
    assert (part.began_at, part.read_to) == (BEGAN, None)
    rest = after(part, replace(until, clock=BEGAN + HOUR))
    assert rest is not None
    assert rest.read_to == BEGAN - 7 * DAY
    with pytest.raises(OffsetsLost):
        after(part, replace(until, clock=BEGAN + DAY))


def test_the_time_is_stored_anew_once_half_of_what_tombstones_stay_has_passed() -> None:
    stored = stands({A: 10, B: 10}, BEGAN)

    def wants(hours: float, *, of: Mapping[str, timedelta] | None = None, **open_: HeldBack) -> bool:
        kafka = held(stored.offsets, BEGAN + hours * HOUR, **open_)
        known = looked(stored, stored.offsets, kafka)
        kept = {"a": 7 * DAY, "b": DAY} if of is None else of
        return wants_renewal(stored, known, keeping(kafka, **kept))

    assert [wants(hours) for hours in (0, 11.9, 12, 500)] == [False, False, True, True]
    assert not wants(500, of={}), "no topic is compacted, or the sinks take no deletes"
    assert not wants(500, of={"b": DAY}, b=HeldBack(3, BEGAN)), "there would be nothing new in it"
    assert not wants(1, of={"a": timedelta(0)}), "not with every look"
    gone = held({A: 10}, BEGAN + DAY)
    passed = replace(stored, read_to=BEGAN + DAY)
    assert [wants_renewal(stored, passed, keeping(gone, **{topic: HOUR})) for topic in "ab"] == [True, False]
    unknown = replace(stored, read_to=None, began_at=None)
    kafka = held(stored.offsets, BEGAN)
    assert wants_renewal(unknown, looked(unknown, stored.offsets, kafka), keeping(kafka, a=DAY, b=DAY)), (
        "a version that stored none"
    )


def test_a_topic_that_is_made_again_has_rows_of_its_keys_from_before_that() -> None:
    """Its inserts and deletes may be gone together. It came later than the last look that saw the one before."""
    position = stands({A: 100, B: 50}, BEGAN)
    kafka = replace(held({A: 9, B: 50}, BEGAN + 5 * DAY), ids={"a": "new", "b": "id-b"})
    names = {"a": "#old/a"}
    retired = retirement("p", "run", position, kafka, names, Offsets()).position()
    assert retired.read_to_of == {"#old/a": BEGAN, "a": BEGAN}
    with pytest.raises(OffsetsLost, match=r"Deletes since 2026-11-01 08:00:00 UTC .* a-0 \[0, 9\)"):
        after(retired, kafka)
    passed = after(retired, kafka, goes_on=True, max_records=5)
    assert passed is not None
    assert passed.missed == (OffsetRange("a", 0, 0, 9),)
    last = Seen("old", Offsets({A: 100}), None, BEGAN + 4.5 * DAY)
    for looks in ({"gone": names}, {"lacked": names}):
        (which,) = looks
        seen = replace(kafka, **{which: {"#old/a": last}})
        retired = retirement("p", "run", position, seen, names, Offsets()).position()
        assert retired.read_to_of == {"#old/a": BEGAN, "a": BEGAN + 4.5 * DAY}
        first = after(retired, seen, max_records=5)
        assert first is not None
        assert first.read_to_of["a"] == BEGAN + 4.5 * DAY, "what is read of it now isn't all"
    empty = replace(kafka, ends=Offsets({A: 0, B: 50}))
    later = looked(retirement("p", "run", position, empty, names, Offsets()).position(), empty.ends, empty)
    assert seen_to(later, "a", empty.asked_at) == BEGAN + 5 * DAY, "a look that finds nothing in it counts"


@pytest.mark.parametrize(
    ("compacted", "hidden", "stops"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_a_topic_that_is_made_again_is_no_older_than_the_last_look_that_found_none_of_the_name(
    compacted: bool, hidden: bool, stops: bool
) -> None:
    """Not where the user may not see whether there is one. One that wasn't compacted isn't asked for."""
    position = stands({A: 100, B: 50}, BEGAN)
    looks, there = Looks(lambda _: True), held({A: 100, B: 50}, BEGAN)
    looks.after(replace(there, keeps=dict.fromkeys("ab", DAY) if compacted else {}))
    without = held({B: 50}, BEGAN)
    assert looks.lacked_by(["b"]) == ["a"]
    assert not looks.hides("a"), "a look without rights ends the run until the topic is known to be gone"
    for seconds in (6, 12, 86_400, 3 * 86_400):
        looks.after(replace(without, asked_at=BEGAN + timedelta(seconds=seconds)))
        if hidden and seconds == 12:
            assert looks.hides("a")
        assert looks.lacked_by(["b"]) == (["a"] if seconds == 6 or (compacted and not hidden) else [])
    back = replace(held({A: 9, B: 50}, BEGAN + 3 * DAY + HOUR), ids={"a": "new", "b": "id-b"})
    kafka = looks.after(keeping(back, a=DAY, b=DAY))
    retired = retirement("p", "run", position, kafka, {"a": "#id-a/a"}, Offsets()).position()
    if stops:
        with pytest.raises(OffsetsLost, match=r"a-0 \[0, 9\)"):
            after(retired, kafka)
    else:
        assert retired.read_to_of["a"] == BEGAN + 3 * DAY
        assert after(retired, kafka) is not None


def test_a_mirrored_topic_that_goes_on_takes_over_the_time_of_the_one_before() -> None:
    """Else a move to another cluster would pass what a run of the old one stops at."""
    position = replace(stands({A: 100, B: 50}, BEGAN), tombstones_kept={"a": DAY})
    kafka = replace(held({A: 90, B: 50}, BEGAN + 3 * DAY), ids={"a": "new", "b": "id-b"})
    kafka = replace(kafka, gone={"#old/a": Seen("old", Offsets({A: 120}), None, BEGAN + 2.9 * DAY)})
    moved = retirement("p", "run", position, kafka, {"a": "#old/a"}, Offsets({A: 80})).position()
    assert (moved.read_to_of, moved.tombstones_kept["a"]) == ({"#old/a": BEGAN, "a": BEGAN}, DAY)
    with pytest.raises(OffsetsLost, match=r"Deletes since 2026-11-01 08:00:00 UTC .* a-0 \[80, 90\)"):
        after(moved, kafka)
    passed = after(moved, kafka, goes_on=True)
    assert passed is not None
    assert passed.missed == (OffsetRange("a", 0, 80, 90),)
    in_time = replace(kafka, asked_at=BEGAN + DAY - HOUR)
    assert after(retirement("p", "run", position, in_time, {"a": "#old/a"}, Offsets({A: 80})).position(), in_time)


def keeping(kafka: TopicsHeld, **kept: timedelta) -> TopicsHeld:
    return replace(kafka, keeps=kept)


def test_what_a_topic_said_of_its_tombstones_counts_until_everything_of_it_is_read() -> None:
    """Who raises delete.retention.ms, or ends compaction, after a long rest brings back no delete that is gone."""
    first = after(None, keeping(held({A: 100}, BEGAN), a=DAY))
    assert first is not None
    assert first.tombstones_kept == {"a": DAY}
    late = held({A: 110}, BEGAN + 3 * DAY)
    for now in ({"a": 7 * DAY}, {}):
        with pytest.raises(
            OffsetsLost, match=r"Deletes since .* a-0 \[100, 110\).*\(a: 1 day, 0:00:00; the"
        ) as refused:
            resume(first, keeping(late, **now), Offsets, lambda _: {})
        assert "or raise delete.retention.ms." not in refused.value.hint
        found = resume(first, keeping(late, **now), Offsets, lambda _: {}, continue_on_data_loss=True)
        assert found.missed == (OffsetRange("a", 0, 100, 110),)
        part = next_epoch("p", "run", first, found, keeping(late, **now), max_records=3, now=late.looked_at)
        assert part is not None
        assert part.tombstones_kept == {"a": DAY}, "there is more to read from that time"
        whole = next_epoch("p", "run", first, found, keeping(late, **now), max_records=99, now=late.looked_at)
        assert whole is not None
        assert whole.tombstones_kept == now
    without = replace(first, tombstones_kept={})
    assert resume(without, keeping(late, a=7 * DAY), Offsets, lambda _: {}).missed == (), "of an old commit"


def test_the_shortest_time_counts_of_several_and_a_topic_out_of_the_file_keeps_its_own() -> None:
    first = after(None, keeping(held({A: 100, B: 50}, BEGAN), a=7 * DAY, b=DAY))
    assert first is not None
    lowered = looked(first, first.offsets, keeping(held({A: 101}, BEGAN + HOUR), a=DAY))
    raised = looked(lowered, first.offsets, keeping(held({A: 101}, BEGAN + 2 * HOUR), a=9 * DAY))
    assert raised.tombstones_kept == {"a": DAY, "b": DAY}
    open_ = keeping(held({A: 100}, BEGAN + 3 * HOUR, a=HeldBack(3, BEGAN + HOUR)), a=9 * DAY)
    assert looked(raised, first.offsets, open_).tombstones_kept["a"] == DAY, "read up to when that was said"
    assert looked(raised, first.offsets, replace(open_, held_back={})).tombstones_kept == {"a": 9 * DAY, "b": DAY}


def test_what_was_stored_for_a_shorter_time_is_stored_anew_in_time() -> None:
    """Else a topic that rests after delete.retention.ms was raised would look like a pipeline that rests."""
    stored = after(None, keeping(held({A: 100}, BEGAN), a=DAY))
    assert stored is not None
    for now in ({"a": 9 * DAY}, {}):
        kafka = keeping(held({A: 100}, BEGAN + DAY / 2), **now)
        known = looked(stored, stored.offsets, kafka)
        assert wants_renewal(stored, known, kafka)
        assert not wants_renewal(known, known, kafka)


def by_run(
    looks: Looks, now: datetime, ends: int, kept: timedelta | None, open_since: datetime | None = None
) -> TopicsHeld:
    """``kept`` None: the topic isn't compacted."""
    open_ = {"a": HeldBack(3, open_since)} if open_since is not None else {}
    return looks.after(keeping(held({A: ends}, now, **open_), **({"a": kept} if kept is not None else {})))


def test_a_raised_time_counts_also_where_a_transaction_is_open_at_each_look() -> None:
    """All is read up to before the look then, never up to it. So an earlier look of the run has to have said it."""
    position = replace(stands({A: 100}, BEGAN), tombstones_kept={"a": HOUR})
    looks, second = Looks(lambda _: True), timedelta(seconds=1)
    first = by_run(looks, BEGAN + HOUR / 2, 100, 7 * DAY, BEGAN + HOUR / 2 - second)
    position = looked(position, first.ends, first)
    assert position.tombstones_kept == {"a": HOUR}, "it may have been raised within the last second"
    soon = by_run(looks, BEGAN + HOUR / 2 + second / 2, 100, 7 * DAY, BEGAN + HOUR / 2 - second / 2)
    assert looked(position, first.ends, soon).tombstones_kept == {"a": HOUR}
    unknown = replace(soon, held_back={A: HeldBack(3, None)}, asked_at=BEGAN + HOUR)
    assert looked(position, first.ends, unknown).tombstones_kept == {"a": HOUR}
    next_ = by_run(looks, BEGAN + HOUR / 2 + 2 * second, 100, 7 * DAY, BEGAN + HOUR / 2 + second)
    known = looked(position, first.ends, next_)
    assert known.tombstones_kept == {"a": 7 * DAY}
    rested = by_run(looks, BEGAN + 3 * HOUR, 110, 7 * DAY)
    assert resume(known, rested, Offsets, lambda _: {}).missed == ()
    with pytest.raises(OffsetsLost, match=r"\(a: 1:00:00; the shortest that was seen since then\)"):
        resume(position, rested, Offsets, lambda _: {})
    looks.pause()
    again = by_run(looks, BEGAN + 4 * HOUR, 110, 7 * DAY, BEGAN + 4 * HOUR - second)
    assert looked(position, again.ends, again).tombstones_kept == {"a": HOUR}, "another process may have run meanwhile"


@pytest.mark.parametrize("otherwise", [DAY, None], ids=["compacted", "not compacted"])
def test_a_look_that_no_plan_followed_counts(otherwise: timedelta | None) -> None:
    """As a run with target_latency looks while it waits. It may alone have seen the topic compacted."""
    looks = Looks(lambda _: True)
    position = looked(stands({A: 100}, BEGAN), Offsets({A: 100}), by_run(looks, BEGAN, 100, otherwise))
    by_run(looks, BEGAN + HOUR / 2, 110, HOUR)
    now = by_run(looks, BEGAN + 2 * HOUR, 110, otherwise)
    with pytest.raises(OffsetsLost, match=r"a-0 \[100, 110\).*\(a: 1:00:00"):
        resume(position, now, Offsets, lambda _: {})


def test_a_time_that_a_later_look_saw_counts_where_an_epoch_reaches_the_ends_of_an_earlier_one() -> None:
    looks = Looks(lambda _: True)
    target = by_run(looks, BEGAN, 300, DAY)
    by_run(looks, BEGAN + HOUR / 4, 800, HOUR)
    newest = by_run(looks, BEGAN + HOUR / 2, 900, DAY)
    known = looked(stands({A: 100}, BEGAN), Offsets({A: 100}), newest)
    found = resume(known, newest, Offsets, lambda _: {})
    seen = target.that_knows(newest)
    epoch = next_epoch("p", "run", known, found, seen, max_records=999, now=newest.looked_at)
    assert epoch is not None
    assert (epoch.offsets, epoch.read_to, epoch.tombstones_kept) == (Offsets({A: 300}), BEGAN, {"a": HOUR})
    later = looked(epoch.position(), newest.ends, newest)
    assert (later.offsets, later.tombstones_kept) == (epoch.offsets, {"a": DAY}), "as if it had read all of that look"


@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 3, None]), st.booleans(), st.integers(0, 3)), min_size=1, max_size=9)
)  # fmt: skip
def test_the_shortest_time_is_that_since_the_last_look_before_all_was_read(steps: list) -> None:
    """Each hour a look, at which a transaction may have been open for some hours."""
    looks, position, said = Looks(lambda _: True), stands({A: 100}, BEGAN - 9 * HOUR), list[timedelta]()
    for hour, (days, complete, open_for) in enumerate(steps):
        now = BEGAN + hour * HOUR
        said.append(days * DAY if days else timedelta.max)
        kafka = held({A: 100}, now, **({"a": HeldBack(3, now - open_for * HOUR)} if open_for else {}))
        kafka = looks.after(keeping(kafka, **({"a": days * DAY} if days else {})))
        position = looked(position, kafka.ends if complete else Offsets({A: 99}), kafka)
        to = seen_to(position, "a", now)
        assert to is not None
        since = [time for at, time in enumerate(said) if BEGAN + (at + 1) * HOUR > to]
        assert position.tombstones_kept.get("a", timedelta.max) <= min(since)
        if complete and not open_for:
            assert position.tombstones_kept.get("a", timedelta.max) == said[-1]


def test_no_delete_is_missed_where_no_sink_has_deletes_any_more() -> None:
    """A keyed table has left the file: what stays takes no deletes, whatever the coordinator log has stored."""
    position = replace(stands({A: 100}, BEGAN), tombstones_kept={"a": DAY})
    late = replace(held({A: 110}, BEGAN + 3 * DAY), keeps=None)
    found = resume(position, late, Offsets, lambda _: {})
    assert found.missed == ()
    epoch = next_epoch("p", "run", position, found, late, max_records=99, now=late.looked_at)
    assert epoch is not None
    assert epoch.tombstones_kept == {}
    assert not wants_renewal(position, epoch.position(), late)
