"""The delivery against the reference sinks: crashes at every step, whatever the cut into epochs."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from fakes import Crash, Group, To, Topic
from hypothesis import given
from hypothesis import strategies as st

from connector.delivery.ports import Work
from connector.delivery.retries import Patience
from connector.delivery.transactional import deliver
from connector.protocol.steps import Event, Step
from sinks.contract import Committed, Epoch, Position
from sinks.errors import BrokerUnreachable, CommitUnknown, Fenced, OffsetsLost, PositionMismatch, TopicRecreated
from sinks.memory import MemoryAppend, MemoryTable, MemoryUpsert
from sinks.offsets import Offsets, TopicPartition

AT = TopicPartition("t", 0)


def run(
    topic: Topic,
    table: MemoryTable,
    *,
    sink: type[MemoryAppend] = MemoryAppend,
    owner: str = "run",
    max_records: int = 3,
    crash_before: int | None = None,
    crash_after: int | None = None,
    before_write: Callable[[Epoch], None] = lambda epoch: None,
):
    """One run, that crashes right before or right after its n-th commit."""
    writer, commits = sink(table), iter(range(1, 1_000_000))

    def run_epoch(epoch: Epoch, behind: int) -> Committed:
        number = next(commits)
        rows = topic.read(epoch)
        before_write(epoch)
        if number == crash_before:
            raise Crash
        committed = writer.write(epoch, rows)
        if number == crash_after:
            raise Crash
        return committed

    work = Work("p", owner, topic, To(writer.position, run_epoch), max_records, Group(), lambda event: None)
    return deliver(work, interval=None, stop=threading.Event())


def patient(topic: Topic, table: MemoryTable, fails: Callable[[str, Epoch], None], **options: int):
    """One run, that fails as ``fails`` says, before or after a commit, and tries again."""
    writer = MemoryAppend(table)

    def run_epoch(epoch: Epoch, behind: int) -> Committed:
        fails("before", epoch)
        committed = writer.write(epoch, topic.read(epoch))
        fails("after", epoch)
        return committed

    patience = Patience(attempts=options.get("attempts", 3), longest_wait=timedelta(milliseconds=1))
    work = Work(
        "p", "run", topic, To(writer.position, run_epoch), options.get("max_records", 3), Group(), lambda event: None,
        patience=patience,
    )  # fmt: skip
    return deliver(work, interval=None, stop=threading.Event())


def announced(
    topic: Topic,
    table: MemoryTable,
    *,
    fails: int = 0,
    until: Callable[[Event], bool],
    latency: timedelta | None = None,
) -> list[Event]:
    """The steps of a run that goes on until one is as wanted. Its first ``fails`` epochs fail for a moment."""
    writer, stop, events, failures = MemoryAppend(table), threading.Event(), [], iter(range(fails))

    def run_epoch(epoch: Epoch, behind: int) -> Committed:
        if next(failures, None) is not None:
            topic.append(0, ("more", 0))
            raise BrokerUnreachable("for a moment")
        return writer.write(epoch, topic.read(epoch))

    def observe(event: Event) -> None:
        events.append(event)
        if until(event):
            stop.set()

    patience = Patience(attempts=fails + 1, longest_wait=timedelta(milliseconds=1))
    work = Work(
        "p", "run", topic, To(writer.position, run_epoch), 100, Group(), observe, patience=patience,
        target_latency=latency,
    )  # fmt: skip
    deliver(work, interval=timedelta(milliseconds=1), stop=stop)
    return events


def test_while_every_epoch_fails_the_run_says_how_far_behind_it_gets() -> None:
    topic, table = Topic([[("a", 1)]]), MemoryTable()
    run(topic, table)
    topic.append(0, ("b", 2))
    events = announced(topic, table, fails=3, until=lambda event: event.step is Step.WAITING)
    assert [event.behind for event in events if event.step is Step.LOOKED] == [1, 2, 3, 4]
    failed = [type(event.error) for event in events if event.step is Step.RETRYING]
    assert failed == [BrokerUnreachable] * 3
    assert (events[-1].step, events[-1].behind) == (Step.WAITING, 0)


def test_while_records_may_wait_the_run_says_how_many_do() -> None:
    topic, table = Topic([[("a", 1)]]), MemoryTable()

    def grows(event: Event) -> bool:
        if event.step is Step.WAITING:
            topic.append(0, ("b", 2))
        return event.behind == 3

    events = announced(topic, table, until=grows, latency=timedelta(minutes=10))
    told = [(event.step, event.behind) for event in events[-4:]]
    assert told == [(Step.LOOKED, 2), (Step.WAITING, 2), (Step.LOOKED, 3), (Step.WAITING, 3)]


records = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers()), max_size=12)


@given(
    st.lists(records, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4), st.booleans()), max_size=8),
)
def test_every_record_counts_once_whatever_the_crashes_and_the_cut_into_epochs(partitions, crashes) -> None:
    # A key stays in its partition, as Kafka's partitioner has it.
    topic = Topic([[(f"{p}{key}", value) for key, value in rows] for p, rows in enumerate(partitions)])
    tables = {MemoryAppend: MemoryTable(), MemoryUpsert: MemoryTable()}
    for sink, table in tables.items():
        for bound, nth, after in crashes:
            with contextlib.suppress(Crash):
                run(topic, table, sink=sink, max_records=bound, **{"crash_after" if after else "crash_before": nth})
        run(topic, table, sink=sink)
    latest = {record.key: record for record in topic.every}
    assert sorted(tables[MemoryAppend].rows) == topic.every
    assert sorted(tables[MemoryUpsert].rows) == sorted(latest.values())
    for table in tables.values():
        numbers = [position.epoch for position in table.commits]
        assert numbers == list(range(1, len(numbers) + 1))
        for earlier, later in itertools.pairwise(table.commits):
            assert later.offsets.reaches(earlier.offsets)


@given(records, st.integers(1, 4), st.lists(st.sampled_from(["before", "after", "neither"]), max_size=20))
def test_every_record_counts_once_whatever_passes_before_and_after_commits(rows, bound, failures) -> None:
    topic, table, left = Topic([rows]), MemoryTable(), iter(failures)
    due: list[str] = []

    def fails(when: str, epoch: Epoch) -> None:
        if when == "before":
            due[:] = [next(left, "neither")]
        if due == [when]:
            raise CommitUnknown(f"{when} the commit of epoch {epoch.number}")

    patient(topic, table, fails, max_records=bound, attempts=len(failures) + 1)
    assert sorted(table.rows) == topic.every
    assert [position.epoch for position in table.commits] == list(range(1, len(table.commits) + 1))


def test_a_run_that_was_replaced_while_it_waited_to_try_again_stops() -> None:
    topic, table = Topic([[("a", n) for n in range(9)]]), MemoryTable()

    def fails(when: str, epoch: Epoch) -> None:
        if epoch.number == 2 and when == "before":
            run(topic, table, owner="another")
            raise BrokerUnreachable("for a moment")

    with pytest.raises(Fenced, match=r"run another has committed epoch 3; this run .* after its epoch 1"):
        patient(topic, table, fails)
    assert sorted(table.rows) == topic.every


def test_what_arrives_during_a_run_is_left_to_the_next() -> None:
    topic, table = Topic([[("a", 1), ("b", 2)]]), MemoryTable()
    run(topic, table, before_write=lambda epoch: topic.append(0, ("c", 3)))
    assert len(table.rows) == 2
    run(topic, table)
    assert len(table.rows) == 3


def test_an_idle_run_commits_nothing() -> None:
    topic, table = Topic([[("a", 1)]]), MemoryTable()
    run(topic, table)
    assert run(topic, table).epochs == 0
    assert len(table.commits) == 1


def test_the_first_run_stores_where_latest_was() -> None:
    topic, table = Topic([[("old", 1)]], start="latest"), MemoryTable()
    run(topic, table)
    topic.append(0, ("new", 2))
    run(topic, table)
    assert [record.key for record in table.rows] == ["new"]


def test_an_added_partition_is_read_from_its_beginning() -> None:
    topic, table = Topic([[("a", 1)]], start="latest"), MemoryTable()
    run(topic, table)
    topic.partitions.append([("b", 2)])
    run(topic, table)
    assert [record.key for record in table.rows] == ["b"]


def test_a_topic_made_again_while_running_stops_the_run_before_its_next_epoch() -> None:
    topic, table = Topic([[("a", n) for n in range(6)]]), MemoryTable()

    def recreate(epoch: Epoch) -> None:
        if epoch.number == 2:
            topic.id = "second"

    with pytest.raises(TopicRecreated):
        run(topic, table, max_records=2, before_write=recreate)
    assert len(table.commits) == 2


def test_a_topic_made_again_is_taken_in_from_its_beginning_where_that_is_asked_for() -> None:
    topic, table = Topic([[("a", n) for n in range(6)]]), MemoryTable()
    sink, retired = MemoryAppend(table), []

    def retire(epoch: Epoch, names: Mapping[str, str]) -> Committed:
        retired.append(names)
        return sink.write(epoch, [])

    def run_epoch(epoch: Epoch, behind: int) -> Committed:
        committed = sink.write(epoch, topic.read(epoch))
        if epoch.number == 2:
            topic.id, topic.partitions = "second", [[("b", 0)]]
        return committed

    work = Work("p", "run", topic, To(sink.position, run_epoch, retire), 2, Group(), lambda event: None)
    deliver(work, interval=None, stop=threading.Event())
    assert retired == [{"t": "#first/t"}]
    assert [record.key for record in table.rows] == ["a"] * 4 + ["b"]
    assert table.position is not None
    assert table.position.offsets.to_dict() == {"#first/t": {"0": 4}, "t": {"0": 1}}
    assert work.group.committed().to_dict() == {"t": {"0": 1}}


def test_a_run_makes_its_epochs_as_long_as_they_should_be() -> None:
    topic, table = Topic([[("a", n) for n in range(30)]]), MemoryTable()
    topic.record_bytes = lambda offsets, ends: dict.fromkeys(offsets, 100.0)
    sink, spans = MemoryAppend(table), []

    def run_epoch(epoch: Epoch, behind: int) -> Committed:
        spans.append(epoch.span)
        return sink.write(epoch, topic.read(epoch))

    work = Work("p", "run", topic, To(sink.position, run_epoch), 20, Group(), lambda event: None, max_bytes=1_250)
    deliver(work, interval=None, stop=threading.Event())
    assert spans == [12, 12, 6]


def test_a_replaced_run_is_fenced_and_names_the_winner() -> None:
    topic, table = Topic([[("a", n) for n in range(4)]]), MemoryTable()
    with pytest.raises(Fenced) as caught:
        run(topic, table, owner="zombie", before_write=lambda epoch: run(topic, table, owner="winner"))
    assert caught.value.owner == "winner"
    assert len(table.rows) == 4


def test_a_position_that_is_about_to_be_forgotten_is_written_again_once() -> None:
    topic, table = Topic([[("a", 1)]]), MemoryTable()
    run(topic, table)
    assert table.position is not None
    table.position = replace(table.position, refresh_after=datetime.now(timezone.utc) - timedelta(days=1))
    assert run(topic, table).epochs == 1
    assert run(topic, table).epochs == 0
    assert len(table.rows) == 1


class Quiet:
    """A compacted topic that keeps tombstones for a day, a run of it, and hours that pass between its looks.

    ``kept`` None: it isn't compacted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kept: timedelta | None = timedelta(days=1)) -> None:
        self.now = datetime(2026, 11, 27, 8, tzinfo=timezone.utc)
        self.topic, self.table = Topic([[("a", 1)]], kept=kept, clock=lambda: self.now), MemoryTable()
        monkeypatch.setattr("connector.delivery.transactional.datetime", SimpleNamespace(now=lambda _: self.now))
        run(self.topic, self.table)

    def looks(self, hours: Sequence[float], *, changes_at: int | None = None) -> list[Event]:
        """The steps of a run that looks after so many hours each, and once more in the end. A record comes before the
        look of that number."""
        looks, events = iter([*hours, None]), list[Event]()
        stop, writer = threading.Event(), MemoryAppend(self.table)
        passed = 0

        def observe(event: Event) -> None:
            nonlocal passed
            events.append(event)
            if event.step is Step.WAITING:
                wait = next(looks)
                if wait is None:
                    return stop.set()
                self.now += timedelta(hours=wait)
                if passed == changes_at:
                    self.topic.append(0, ("a", 2))
                passed += 1

        def run_epoch(epoch: Epoch, behind: int) -> Committed:
            return writer.write(epoch, self.topic.read(epoch))

        work = Work("p", "run", self.topic, To(writer.position, run_epoch), 3, Group(), observe)
        deliver(work, interval=timedelta(0), stop=stop)
        return events


def test_a_compacted_topic_that_rests_is_not_taken_for_a_pipeline_that_rested(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = Quiet(monkeypatch)
    quiet.looks([1] * 72, changes_at=71)
    friday = datetime(2026, 11, 27, 8, tzinfo=timezone.utc)
    at_rest = [(1, friday + timedelta(hours=hours)) for hours in range(0, 72, 12)]
    committed = [(each.offsets[AT], each.read_to) for each in quiet.table.commits]
    assert committed == [*at_rest, (2, friday + timedelta(days=3))], "two epochs a day, without records"
    for _ in range(8):  # a job that runs every few hours
        quiet.now += timedelta(hours=10)
        run(quiet.topic, quiet.table)
    quiet.topic.append(0, ("a", 3))
    assert run(quiet.topic, quiet.table).rows == 1


def test_a_look_counts_for_its_run_though_no_commit_tells_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = Quiet(monkeypatch)
    quiet.looks([11.9, 13], changes_at=1)
    assert [each.offsets[AT] for each in quiet.table.commits] == [1, 2]
    quiet = Quiet(monkeypatch)
    quiet.looks([11.9])
    quiet.now += timedelta(hours=13)
    quiet.topic.append(0, ("a", 2))
    with pytest.raises(OffsetsLost, match="Deletes since 2026-11-27 08:00:00 UTC"):
        run(quiet.topic, quiet.table)


def test_a_run_that_has_not_looked_for_that_long_still_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = Quiet(monkeypatch)
    with pytest.raises(OffsetsLost, match="Deletes since 2026-11-29 08:00:00 UTC"):
        quiet.looks([*[1] * 48, 24], changes_at=48)


def test_where_nothing_is_compacted_no_epoch_is_without_records(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = Quiet(monkeypatch, kept=None)
    quiet.looks([24] * 5)
    assert len(quiet.table.commits) == 1


def test_a_time_of_a_clock_that_was_ahead_is_warned_of_once_and_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quiet = Quiet(monkeypatch)
    quiet.now -= timedelta(days=365)
    quiet.looks([1, 1])
    assert [each.read_to for each in quiet.table.commits[1:]] == [quiet.now - timedelta(hours=2)]
    (told,) = caplog.messages
    assert told.startswith("pipeline p: the commit of epoch 1 says 2026-11-27 08:00:00 UTC, which is still to come: ")


def test_offsets_of_a_topic_that_left_the_pipeline_are_kept() -> None:
    topic, table = Topic([[("a", 1)]]), MemoryTable()
    run(topic, table)
    assert table.position is not None
    left = Offsets({TopicPartition("left", 0): 9})
    table.position = replace(
        table.position, offsets=table.position.offsets.join(left), topics={"t": "first", "left": "x"}
    )
    topic.append(0, ("b", 2))
    run(topic, table)
    assert table.position.offsets.to_dict() == {"left": {"0": 9}, "t": {"0": 2}}
    assert table.position.topics == {"t": "first", "left": "x"}


def test_read_to_is_told_only_by_the_epoch_that_reached_the_ends() -> None:
    topic, table = Topic([[("a", n) for n in range(5)]]), MemoryTable()
    run(topic, table, max_records=2)
    assert [position.read_to is not None for position in table.commits] == [False, False, True]


def test_a_table_that_was_rewound_under_the_run_is_noticed() -> None:
    topic, table = Topic([[("a", n) for n in range(6)]]), MemoryTable()

    def rewind(epoch: Epoch) -> None:
        if epoch.number == 3:
            table.position = replace(table.commits[0], owner="run")

    with pytest.raises(PositionMismatch):
        run(topic, table, max_records=2, before_write=rewind)


def test_what_was_left_behind_is_removed_before_the_first_epoch_and_after_each_restore() -> None:
    topic, table, stop, calls = Topic([[("a", 1)]]), MemoryTable(), threading.Event(), list[str]()
    sink = MemoryAppend(table)

    def run_epoch(epoch: Epoch, behind: int) -> Committed:
        calls.append(f"epoch {epoch.number}")
        if epoch.number < 3:
            topic.append(0, ("more", epoch.number))
        else:
            stop.set()
        return sink.write(epoch, topic.read(epoch))

    class Restored(To):
        def position(self) -> Position | None:
            found = sink.position()
            restored = found is not None and found.epoch == 2
            return replace(found, restored_to=2, version=5) if restored else found

        def restored(self, position: Position) -> None:
            calls.append("restored")

        def tidied(self, position: Position | None) -> Position | None:
            calls.append("tidied")
            if len(calls) == 1:
                raise BrokerUnreachable("just now")
            return position

    quick = Patience(attempts=2, longest_wait=timedelta(milliseconds=1))
    work = Work("p", "run", topic, Restored(sink.position, run_epoch), 1, Group(), lambda event: None, patience=quick)
    deliver(work, interval=timedelta(milliseconds=1), stop=stop)
    assert calls == ["tidied", "tidied", "epoch 1", "epoch 2", "restored", "tidied", "epoch 3"]


def test_with_an_interval_it_goes_on_until_it_is_stopped() -> None:
    topic, table, stop = Topic([[("a", 1)]]), MemoryTable(), threading.Event()
    sink = MemoryAppend(table)

    def run_epoch(epoch: Epoch, behind: int) -> Committed:
        committed = sink.write(epoch, topic.read(epoch))
        if epoch.number < 4:
            topic.append(0, ("more", epoch.number))
        else:
            stop.set()
        return committed

    work = Work("p", "run", topic, To(sink.position, run_epoch), 10, Group(), lambda event: None)
    assert deliver(work, interval=timedelta(milliseconds=1), stop=stop).epochs == 4
    assert len(table.rows) == 4


def test_a_run_that_was_replaced_between_two_intervals_is_fenced() -> None:
    topic, table, stop = Topic([[("a", 1)]]), MemoryTable(), threading.Event()
    sink = MemoryAppend(table)

    def run_epoch(epoch: Epoch, behind: int) -> Committed:
        committed = sink.write(epoch, topic.read(epoch))
        topic.append(0, ("b", 2))
        run(topic, table, owner="winner")
        return committed

    work = Work("p", "zombie", topic, To(sink.position, run_epoch), 10, Group(), lambda event: None)
    with pytest.raises(Fenced) as caught:
        deliver(work, interval=timedelta(milliseconds=1), stop=stop)
    assert caught.value.owner == "winner"
    assert [record.key for record in table.rows] == ["a", "b"]


class Waits(threading.Event):
    """Notes for how long it is waited for, and ends the run then."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        return True


def test_between_two_rounds_it_waits_for_what_is_left_of_the_interval() -> None:
    topic, stop = Topic([[("a", 1)]]), Waits()
    writer = MemoryAppend(MemoryTable())
    work = Work(
        "p", "run", topic, To(writer.position, lambda epoch, _: writer.write(epoch, topic.read(epoch))), 3, Group(),
        lambda event: None,
    )  # fmt: skip
    deliver(work, interval=timedelta(seconds=60), stop=stop)
    (waited,) = stop.seconds
    assert waited is not None
    assert 50 < waited <= 60


def test_rows_that_a_sink_cannot_count_are_not_counted() -> None:
    topic, writer = Topic([[("a", 1), ("b", 2)]]), MemoryAppend(MemoryTable())

    def run_epoch(epoch: Epoch, behind: int) -> Committed:
        return replace(writer.write(epoch, topic.read(epoch)), rows=None)

    work = Work("p", "run", topic, To(writer.position, run_epoch), 1, Group(), lambda event: None)
    done = deliver(work, interval=None, stop=threading.Event())
    assert (done.epochs, done.rows, done.behind) == (2, 0, 0)
