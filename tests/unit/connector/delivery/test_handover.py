"""From one delivery to another: nothing lost, nothing repeated, whatever crashes and whoever starts meanwhile."""

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

import pytest
from fakes import Crash, Group, Member, Steps, To, Topic

from connector.delivery import auto_commit, handover, manual_commit, transactional
from connector.delivery.handover import hand_over
from connector.delivery.ports import GroupWork, Work
from connector.protocol.steps import Event, Step
from sinks import event_time
from sinks.contract import Committed, Epoch, Position
from sinks.errors import ConfigurationError, GroupActive, OffsetsForgotten, OffsetsLost, TopicRecreated
from sinks.memory import MemoryAppend, MemoryTable
from sinks.offsets import OffsetRange, Offsets, TopicPartition

IN_GROUP = {"auto_commit": auto_commit, "manual_commit": manual_commit, "idempotent": manual_commit}
ALL = (*IN_GROUP, "transactional")
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


class Clock:
    """A minute passes in no time; ``sleeps`` are what was waited, and what happens meanwhile."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeps.append(seconds)
        self.meanwhile()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(handover, "time", clock)
    return clock


@dataclass
class Pipeline:
    """One pipeline: its topic, its group, its table, and what its runs announced."""

    topic: Topic
    group: Group = field(default_factory=Group)
    table: MemoryTable = field(default_factory=MemoryTable)
    events: list[Event] = field(default_factory=list)
    added: Offsets = field(default_factory=Offsets)
    owners: itertools.count = field(default_factory=itertools.count)

    def work(
        self,
        *,
        before: Callable[[Epoch], None] = lambda epoch: None,
        after: Callable[[Epoch], None] = lambda epoch: None,
        continue_on_data_loss: bool = False,
    ) -> Work:
        sink = MemoryAppend(self.table)

        def run_epoch(epoch: Epoch, behind: int) -> Committed:
            before(epoch)
            committed = sink.write(epoch, self.topic.read(epoch))
            after(epoch)
            return committed

        return Work(
            pipeline="p",
            owner=f"run-{next(self.owners)}",
            topics=self.topic,
            destination=To(sink.position, run_epoch, added=self.added),
            max_records=3,
            group=self.group,
            observe=self.events.append,
            continue_on_data_loss=continue_on_data_loss,
        )

    def run(self, delivery: str) -> None:
        """A whole run, as `Pipeline.run` has it."""
        work = self.work()
        if delivery == "transactional":
            transactional.deliver(work, interval=None, stop=threading.Event())
            return
        hand_over(work, delivery)
        member = Member(self.topic, self.group, Steps())

        def write(batch: Epoch) -> int:
            rows = self.topic.read(batch)
            self.table.rows += tuple(rows)
            return len(rows)

        IN_GROUP[delivery].deliver(GroupWork(member, write))

    @property
    def position(self) -> Position:
        assert self.table.position is not None
        return self.table.position

    @property
    def notes(self) -> list[str]:
        return [event.note for event in self.events if event.note]


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline(Topic([[("a", 1), ("b", 2), ("c", 3), ("d", 4)], [("e", 5)]]))


def at(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


@pytest.mark.parametrize(("first", "second"), list(itertools.product(ALL, ALL)))
def test_a_pipeline_moves_from_any_delivery_to_any_other_and_back(first: str, second: str, pipeline: Pipeline) -> None:
    for number, delivery in enumerate([first, second, second, first]):
        pipeline.topic.append(number % 2, ("more", number))
        pipeline.run(delivery)
        assert sorted(pipeline.table.rows) == pipeline.topic.every
        assert pipeline.position.delivery == delivery
    assert pipeline.group.stored == pipeline.topic.look().ends
    changes = len(pipeline.notes)
    if first == second:
        assert changes == (first != "transactional")  # the first run only
    else:
        assert changes == 2 + (first != "transactional")


@pytest.mark.parametrize("delivery", IN_GROUP)
def test_the_first_run_tells_the_group_and_the_table_where_it_starts(delivery: str) -> None:
    pipeline = Pipeline(Topic([[("old", 1)], []], start="latest"))
    pipeline.group.stored = Offsets({at(1): 7})  # of somebody before us
    position = hand_over(pipeline.work(), delivery)
    starts = Offsets({at(0): 1, at(1): 0})
    assert (position.epoch, position.offsets, position.since, position.delivery) == (1, starts, starts, delivery)
    assert position.topics == {"t": "first"}
    assert pipeline.group.stored == starts
    (event,) = pipeline.events
    assert event.step is Step.RESUMED
    assert event.note == 'consumer group group starts at {"t":{"0":1,"1":0}}'


def test_a_second_run_of_the_same_delivery_writes_no_epoch(pipeline: Pipeline) -> None:
    first = hand_over(pipeline.work(), "manual_commit")
    pipeline.group.stored = Offsets({at(0): 3})
    assert hand_over(pipeline.work(), "manual_commit") == first
    assert len(pipeline.table.commits) == 1
    assert pipeline.group.stored == Offsets({at(0): 3})


@pytest.mark.parametrize("delivery", IN_GROUP)
def test_from_transactional_the_group_goes_on_from_the_tables_offsets(delivery: str, pipeline: Pipeline) -> None:
    pipeline.run("transactional")
    pipeline.group.stored = Offsets({at(0): 2, at(1): 0})  # somebody has played with it
    position = hand_over(pipeline.work(), delivery)
    assert pipeline.group.stored == position.offsets == Offsets({at(0): 4, at(1): 1})
    assert pipeline.notes == [
        f'delivery was transactional, is {delivery} from now on: consumer group group starts at {{"t":{{"0":4,"1":1}}}}'
    ]


def test_back_to_transactional_the_table_takes_the_groups_offsets_once_and_says_so(pipeline: Pipeline) -> None:
    hand_over(pipeline.work(), "manual_commit")
    pipeline.group.stored = Offsets({at(0): 2})
    with pytest.raises(OffsetsForgotten, match="has no offset of t-1 any more"):
        hand_over(pipeline.work(), "transactional")
    pipeline.group.stored = Offsets({at(0): 2, at(1): 0})
    position = hand_over(pipeline.work(), "transactional")
    assert position.offsets == Offsets({at(0): 2, at(1): 0})
    assert pipeline.notes[-1] == (
        "delivery was manual_commit, is transactional from now on: "
        'took the offsets of consumer group group, once: {"t":{"0":2,"1":0}}'
    )
    pipeline.group.stored = Offsets({at(0): 4, at(1): 1})  # ignored from now on
    pipeline.run("transactional")
    assert [record.key for record in pipeline.table.rows] == ["c", "d", "e"]


@pytest.mark.parametrize("first", ["idempotent", "manual_commit"])
def test_what_is_in_sums_is_behind_the_table_also_where_the_group_has_not_committed_it(
    first: str, pipeline: Pipeline
) -> None:
    """Killed between a write and its commit: added once more, the batch would count twice."""
    hand_over(pipeline.work(), first)
    pipeline.group.stored = Offsets({at(0): 2, at(1): 1})
    pipeline.added = Offsets({at(0): 3, at(1): 0, TopicPartition("another", 0): 9})
    position = hand_over(pipeline.work(), "transactional")
    assert position.offsets == Offsets({at(0): 3, at(1): 1})
    assert pipeline.notes[-1].endswith(
        'group group, once: {"t":{"0":2,"1":1}}. The groups have more than that: {"t":{"0":3,"1":1}}'
    )
    pipeline.run("transactional")
    assert [record.key for record in pipeline.table.rows] == ["d"]


def test_between_two_weaker_deliveries_the_group_keeps_its_offsets(pipeline: Pipeline) -> None:
    hand_over(pipeline.work(), "auto_commit")
    pipeline.group.stored = Offsets({at(0): 2, at(1): 1})
    position = hand_over(pipeline.work(), "manual_commit")
    assert (position.epoch, position.offsets) == (2, Offsets({at(0): 2, at(1): 1}))
    assert pipeline.group.stored == position.offsets
    assert pipeline.notes[-1].startswith("delivery was auto_commit, is manual_commit from now on: took")


def test_a_crash_between_the_groups_offsets_and_the_tables_epoch_leaves_the_table_transactional(
    pipeline: Pipeline,
) -> None:
    pipeline.run("transactional")

    def crash(epoch: Epoch) -> None:
        raise Crash

    with pytest.raises(Crash):
        hand_over(pipeline.work(before=crash), "manual_commit")
    assert pipeline.position.delivery == "transactional"
    pipeline.topic.append(1, ("f", 6))
    pipeline.run("transactional")  # as if nothing had been tried
    assert sorted(pipeline.table.rows) == pipeline.topic.every
    pipeline.topic.append(0, ("g", 7))
    pipeline.run("manual_commit")
    assert sorted(pipeline.table.rows) == pipeline.topic.every


@pytest.mark.parametrize(("first", "second"), [(a, b) for a, b in itertools.product(ALL, ALL) if a != b])
@pytest.mark.parametrize("landed", [False, True])
def test_a_crash_in_any_handover_is_made_good_by_the_next_run(
    landed: bool, first: str, second: str, pipeline: Pipeline
) -> None:
    pipeline.run(first)

    def crash(epoch: Epoch) -> None:
        raise Crash

    with pytest.raises(Crash):
        hand_over(pipeline.work(**{"after" if landed else "before": crash}), second)
    assert pipeline.position.delivery == (second if landed else first)
    pipeline.topic.append(0, ("f", 6))
    pipeline.run(second)
    assert sorted(pipeline.table.rows) == pipeline.topic.every


@pytest.mark.parametrize("first", [None, "transactional", "auto_commit"])
def test_of_two_members_that_start_at_once_the_second_goes_on_from_the_firsts_epoch(
    first: str | None, pipeline: Pipeline
) -> None:
    if first:
        pipeline.run(first)
    winner: list[Position] = []

    def another_was_first(epoch: Epoch) -> None:
        if not winner:
            winner.append(hand_over(pipeline.work(), "manual_commit"))

    position = hand_over(pipeline.work(before=another_was_first), "manual_commit")
    assert position == winner[0]
    assert len([each for each in pipeline.table.commits if each.delivery == "manual_commit"]) == 1


def test_a_member_that_joins_between_the_look_and_the_store_is_waited_for(clock: Clock, pipeline: Pipeline) -> None:
    """The other one has handed over, and reads already: its group's offsets can't be changed, and needn't be."""
    other = pipeline.work()
    starting = pipeline.topic.starting

    def joined(held):
        pipeline.topic.starting = starting
        hand_over(other, "manual_commit")
        pipeline.group.members = True
        return starting(held)

    pipeline.topic.starting = joined
    position = hand_over(pipeline.work(), "manual_commit")
    assert (position.epoch, position.owner) == (1, other.owner)


def test_another_delivery_that_was_first_is_not_gone_on_from(pipeline: Pipeline) -> None:
    def another_was_first(epoch: Epoch) -> None:
        if pipeline.table.position is None:
            hand_over(pipeline.work(), "auto_commit")

    with pytest.raises(Exception, match="run-1 has committed"):
        hand_over(pipeline.work(before=another_was_first), "manual_commit")
    assert pipeline.position.delivery == "auto_commit"


@pytest.mark.parametrize(("first", "second"), [(a, b) for a, b in itertools.product(ALL, ALL) if a != b])
def test_a_group_with_members_is_refused(first: str, second: str, clock: Clock, pipeline: Pipeline) -> None:
    pipeline.run(first)
    pipeline.group.members = True
    before = pipeline.position
    with pytest.raises(GroupActive, match=f"can't start as {second}") as caught:
        hand_over(pipeline.work(), second)
    assert sum(clock.sleeps) == pytest.approx(handover.EMPTY_WITHIN_SECONDS, abs=1)
    assert caught.value.transient
    assert "session.timeout.ms" in caught.value.hint
    assert pipeline.position == before


def test_a_killed_member_is_waited_for(clock: Clock, pipeline: Pipeline) -> None:
    pipeline.run("manual_commit")
    pipeline.group.members = True

    def expire() -> None:
        pipeline.group.members = clock.now < 45

    clock.meanwhile = expire
    assert hand_over(pipeline.work(), "transactional").delivery == "transactional"
    assert clock.now == 45


def test_a_member_of_the_same_delivery_is_no_obstacle(clock: Clock, pipeline: Pipeline) -> None:
    hand_over(pipeline.work(), "manual_commit")
    pipeline.group.members = True
    hand_over(pipeline.work(), "manual_commit")
    assert not clock.sleeps


def test_a_handover_that_is_about_to_be_forgotten_is_written_again_beside_its_members(
    clock: Clock, pipeline: Pipeline
) -> None:
    hand_over(pipeline.work(), "manual_commit")
    pipeline.group.stored, pipeline.group.members = Offsets({at(0): 2, at(1): 0}), True
    old = datetime.now(timezone.utc) - timedelta(days=1)
    pipeline.table.position = replace(pipeline.position, refresh_after=old)
    position = hand_over(pipeline.work(), "manual_commit")
    assert (position.epoch, position.offsets) == (2, Offsets({at(0): 2, at(1): 0}))
    assert pipeline.group.stored == position.offsets
    assert not clock.sleeps


def test_since_and_lost_are_carried_along(pipeline: Pipeline) -> None:
    pipeline.topic.start = "latest"
    pipeline.run("transactional")
    since = pipeline.position.since
    assert since == Offsets({at(0): 4, at(1): 1})
    pipeline.topic.append(0, *[("x", n) for n in range(4)])
    pipeline.topic.deleted_up_to = {0: 6}
    with pytest.raises(OffsetsLost, match=r"\[4, 6\) is missing"):
        hand_over(pipeline.work(), "manual_commit")
    gap = OffsetRange("t", 0, 4, 6)
    position = hand_over(pipeline.work(continue_on_data_loss=True), "manual_commit")
    assert (position.since, position.lost, position.offsets[at(0)]) == (since, (gap,), 6)
    for delivery in ("auto_commit", "transactional", "manual_commit"):
        position = hand_over(pipeline.work(), delivery)
        assert (position.since, position.lost) == (since, (gap,))


def test_the_event_times_of_a_groups_rows_are_unknown(pipeline: Pipeline) -> None:
    """So no rewind to an event time trusts the clock again: the other deliveries have none."""
    pipeline.run("transactional")
    clock = event_time.Clock(so_far={at(0): event_time.Seen(*[NOON] * 3)}, column="t")
    pipeline.table.position = replace(pipeline.position, clock=clock)
    for delivery in ("manual_commit", "transactional"):
        assert hand_over(pipeline.work(), delivery).clock.column == ""


def test_a_partition_added_meanwhile_begins_at_zero(pipeline: Pipeline) -> None:
    pipeline.run("transactional")
    pipeline.topic.partitions.append([("f", 6)])
    position = hand_over(pipeline.work(), "manual_commit")
    assert (position.offsets[at(2)], position.since) == (0, Offsets({at(0): 0, at(1): 0}))
    assert pipeline.group.stored[at(2)] == 0


@pytest.mark.parametrize(("first", "second"), list(itertools.product(ALL, IN_GROUP)))
def test_a_topic_made_again_is_refused(first: str, second: str, pipeline: Pipeline) -> None:
    pipeline.run(first)
    stored = pipeline.group.stored
    pipeline.topic.id = "second"
    with pytest.raises(TopicRecreated):
        hand_over(pipeline.work(), second)
    assert pipeline.group.stored == stored
    assert pipeline.position.delivery == first


def test_a_topic_made_again_is_refused_on_the_way_back_too(pipeline: Pipeline) -> None:
    pipeline.run("manual_commit")
    pipeline.topic.id = "second"
    with pytest.raises(TopicRecreated):
        pipeline.run("transactional")


def test_what_a_killed_batch_has_left_is_removed_as_soon_as_the_table_is_transactional(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.run("idempotent")
    seen: list[str] = []

    def tidied(_: To, position: Position | None) -> Position | None:
        seen.append(position.delivery if position is not None else "")
        return position

    monkeypatch.setattr(To, "tidied", tidied)
    pipeline.run("transactional")
    assert seen == ["idempotent", "transactional"]


@pytest.mark.parametrize("now", ["transactional", "manual_commit", "auto_commit"])
def test_another_group_than_the_one_with_the_offsets_is_refused(now: str, pipeline: Pipeline) -> None:
    """It may have older ones, which the pipeline published while it was transactional."""
    pipeline.run("transactional")
    published = pipeline.group
    pipeline.topic.append(0, ("f", 6))
    pipeline.group = Group(name="g1")
    pipeline.run("manual_commit")
    g1, pipeline.group = pipeline.group, published
    with pytest.raises(ConfigurationError, match="'g1' has the offsets of pipeline 'p'") as caught:
        pipeline.run(now)
    assert 'group.id: "g1"' in caught.value.hint
    assert sorted(pipeline.table.rows) == pipeline.topic.every
    pipeline.group = g1
    pipeline.run("transactional")
    pipeline.group = published
    pipeline.topic.append(0, ("g", 7))
    pipeline.run(now)
    assert sorted(pipeline.table.rows) == pipeline.topic.every


def test_where_the_table_does_not_say_which_group_it_was_the_files_counts(pipeline: Pipeline) -> None:
    pipeline.run("manual_commit")
    pipeline.table.position = replace(pipeline.position, group="")
    pipeline.run("manual_commit")
    assert sorted(pipeline.table.rows) == pipeline.topic.every


def read_from_rows(pipeline: Pipeline, offsets: Offsets, **more: int) -> None:
    """The history that told the delivery is gone, as of a run that stayed up for longer than Delta keeps it."""
    stands = replace(pipeline.position, offsets=offsets, delivery="transactional", group="", topics={}, since=Offsets())
    pipeline.table.position = replace(stands, source="rows", **more)


@pytest.mark.parametrize("members", [False, True])
def test_where_only_the_rows_tell_a_group_that_is_ahead_keeps_its_offsets(
    members: bool, clock: Clock, pipeline: Pipeline
) -> None:
    """Its last records gave no rows. And what its members write still isn't of another delivery."""
    pipeline.run("manual_commit")
    ahead = pipeline.group.stored
    read_from_rows(pipeline, Offsets({at(0): 3}))
    pipeline.group.members = members
    position = hand_over(pipeline.work(), "manual_commit")
    assert (position.epoch, position.offsets, position.delivery) == (2, ahead, "manual_commit")
    assert pipeline.group.stored == ahead
    assert not clock.sleeps
    assert pipeline.notes[-1] == f"consumer group group starts at {ahead.to_json()}"


def test_where_only_the_rows_tell_they_count_for_what_the_group_has_forgotten(pipeline: Pipeline) -> None:
    pipeline.run("manual_commit")
    read_from_rows(pipeline, Offsets({at(0): 4, at(1): 1}))
    pipeline.group.stored = Offsets({at(0): 2})
    assert hand_over(pipeline.work(), "manual_commit").offsets == Offsets({at(0): 4, at(1): 1})
    assert pipeline.group.stored == Offsets({at(0): 4, at(1): 1})


def test_a_copy_of_a_table_does_not_take_the_offsets_of_the_group(pipeline: Pipeline) -> None:
    """No epoch was committed to it: the group's offsets are those of the table that it was copied from."""
    pipeline.run("manual_commit")
    read_from_rows(pipeline, Offsets({at(0): 2, at(1): 1}), epoch=0)
    assert hand_over(pipeline.work(), "manual_commit").offsets == Offsets({at(0): 2, at(1): 1})


def left_behind(pipeline: Pipeline, topic: str, **offsets: int) -> TopicPartition:
    """A topic that has left the file: where it began is in the table, and how far it was read only in the group."""
    its = TopicPartition(topic, 0)
    stands = pipeline.position
    pipeline.table.position = replace(
        stands, offsets=Offsets({**stands.offsets, its: 0}), topics={**stands.topics, topic: "its id"}
    )
    pipeline.group.stored = Offsets({**pipeline.group.stored, **dict.fromkeys([its][: len(offsets)], 500)})
    return its


def test_a_topic_that_has_left_the_file_keeps_how_far_the_group_has_read_it(pipeline: Pipeline) -> None:
    """Put back into the file, it would be read again from where it began."""
    pipeline.run("manual_commit")
    its = left_behind(pipeline, "left", read=500)
    position = hand_over(pipeline.work(), "transactional")
    assert position.offsets == Offsets({**pipeline.topic.look().ends, its: 500})
    pipeline.group.stored = Offsets()
    assert hand_over(pipeline.work(), "manual_commit").offsets[its] == 500
    assert pipeline.group.stored[its] == 500


def test_a_topic_that_has_left_the_file_and_that_the_group_has_forgotten_is_refused(pipeline: Pipeline) -> None:
    pipeline.run("manual_commit")
    its = left_behind(pipeline, "left")
    before = pipeline.table
    with pytest.raises(OffsetsForgotten, match="no offset of left-0 any more"):
        hand_over(pipeline.work(), "transactional")
    assert pipeline.table == before
    pipeline.group.store(Offsets({its: 500}))  # as the error says
    assert hand_over(pipeline.work(), "transactional").offsets[its] == 500


def test_since_a_group_has_read_them_nothing_tells_when_deletes_of_topics_that_left_were_seen(
    pipeline: Pipeline,
) -> None:
    pipeline.run("transactional")
    its, also = left_behind(pipeline, "left", read=5), left_behind(pipeline, "also", read=5)
    pipeline.table.position = replace(pipeline.position, read_to_of={"left": NOON})
    to_group = hand_over(pipeline.work(), "manual_commit")
    assert (to_group.offsets[its], to_group.offsets[also], to_group.read_to_of) == (0, 0, {"left": NOON})
    back = hand_over(pipeline.work(), "transactional")
    assert back.read_to_of == {"left": NOON, "also": None}


@pytest.mark.parametrize("topic", ["gone", "#its id/t"], ids=["deleted", "retired, when it was recreated"])
def test_a_topic_that_kafka_has_deleted_stops_no_hand_over(topic: str, pipeline: Pipeline) -> None:
    """A topic that was retired has a name that Kafka refuses: it doesn't say that it has no such topic."""
    pipeline.run("manual_commit")
    its = left_behind(pipeline, topic)
    assert hand_over(pipeline.work(), "transactional").offsets[its] == 0
    hand_over(pipeline.work(), "manual_commit")
    assert its not in pipeline.group.stored


@pytest.mark.parametrize("delivery", IN_GROUP)
def test_a_topic_that_was_added_to_the_file_later_gets_its_id_into_the_table(delivery: str, pipeline: Pipeline) -> None:
    """Without it a topic that was made again would be taken for the old one, and its records dropped."""
    pipeline.run(delivery)
    pipeline.table.position = replace(pipeline.position, topics={})
    pipeline.group.members = True
    assert hand_over(pipeline.work(), delivery).topics == {"t": "first"}
    assert (epoch := pipeline.position.epoch) == hand_over(pipeline.work(), delivery).epoch == 2
    pipeline.topic.id = "second"
    with pytest.raises(TopicRecreated):
        hand_over(pipeline.work(), delivery)
    assert pipeline.position.epoch == epoch


@pytest.mark.parametrize("delivery", IN_GROUP)
def test_a_partition_that_appeared_later_comes_into_the_table_once_the_group_has_read_it(
    delivery: str, pipeline: Pipeline
) -> None:
    pipeline.run(delivery)
    pipeline.topic.partitions.append([("f", 6)])
    assert at(2) not in hand_over(pipeline.work(), delivery).offsets
    pipeline.run(delivery)
    assert hand_over(pipeline.work(), delivery).offsets[at(2)] == 1
    pipeline.group.stored = Offsets({at(0): 4, at(1): 1})
    with pytest.raises(OffsetsForgotten, match="t-2"):
        pipeline.run("transactional")


@pytest.mark.parametrize("then", [*IN_GROUP, "transactional"])
@pytest.mark.parametrize("delivery", [*IN_GROUP])
def test_offsets_of_epochs_that_a_restore_has_undone_are_not_taken_from_the_group(
    delivery: str, then: str, pipeline: Pipeline
) -> None:
    pipeline.run(delivery)
    restored = replace(pipeline.position, epoch=20, source="restored", restored_to=pipeline.position.epoch)
    pipeline.table.position = replace(restored, undid_offsets=True)
    with pytest.raises(ConfigurationError, match=r"up to 20\. Their records would be missing") as refused:
        pipeline.run(then)
    assert "newest version" in refused.value.hint
    assert pipeline.position.epoch == 20
    pipeline.table.position = restored  # what was undone had its offsets in the group all the time
    pipeline.run("transactional")
    assert pipeline.position.delivery == "transactional"
