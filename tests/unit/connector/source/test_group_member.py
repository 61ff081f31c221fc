"""The member of a consumer group, with a client that plays back what Kafka would do: no broker."""

import itertools
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import Group
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import CommitFailedError, KafkaError, OffsetOutOfRangeError
from kafka.structs import TopicPartition as KafkaPartition

from connector.config import parse
from connector.protocol.recover import Remaining, Remains, TopicsHeld
from connector.protocol.steps import Event, Step
from connector.source import group_member as module
from connector.source.group_member import GroupMember, _Part
from sinks.contract import Epoch, Position
from sinks.errors import BrokerUnreachable, ConfigurationError, OffsetsForgotten, OffsetsLost
from sinks.offsets import Offsets, TopicPartition

P0, P1 = KafkaPartition("t", 0), KafkaPartition("t", 1)


def record(offset: int, partition: int = 0) -> Any:
    return SimpleNamespace(topic="t", partition=partition, offset=offset)


# --- configuration


def config(delivery: str = "manual_commit", kind: str = "append", **changes: Any) -> Any:
    sink = {"type": f"delta_{kind}", "path": "x", **({"key": "k"} if kind == "upsert" else {})}
    kafka = {"bootstrap.servers": "nowhere:1", **changes.pop("kafka", {})}
    return parse(
        {
            "name": "p",
            "delivery": delivery,
            "source": {"topics": ["t"], "kafka": kafka},
            "value": {"format": "json", "schema": "k STRING"},
            "sinks": [sink],
            **changes,
        }
    )


def test_idempotent_refuses_a_sink_that_adds_every_row() -> None:
    with pytest.raises(ConfigurationError, match="idempotent needs a sink that recognizes rows it already has"):
        config("idempotent", "append")
    config("idempotent", "upsert")


@pytest.mark.parametrize(
    ("delivery", "why"), [("transactional", "an epoch is a commit"), ("auto_commit", "commits at intervals")]
)
@pytest.mark.parametrize("every", ["record", {"records": 5}])
def test_commit_every_is_refused_where_the_delivery_decides(delivery: str, why: str, every: object) -> None:
    with pytest.raises(ConfigurationError, match=why):
        config(delivery, commit_every=every)


@pytest.mark.parametrize("every", ["records", {"records": 0}, {"rows": 3}, 5, None])
def test_commit_every_is_batch_record_or_a_number_of_records(every: object) -> None:
    with pytest.raises(ConfigurationError, match="commit_every"):
        config(commit_every=every)


def test_the_group_is_the_pipelines_name_or_the_users_choice() -> None:
    assert config().group == "p"
    assert config(kafka={"group.id": "mine"}).group == "mine"


# --- a part of a partition


@given(st.integers(0, 5), st.sets(st.integers(5, 14)), st.integers(0, 20))
def test_a_part_is_split_into_what_lies_before_an_offset_and_the_rest(start: int, offsets: set[int], at: int) -> None:
    part = _Part(start, 15, [record(offset) for offset in sorted(offsets)])
    before, rest = part.split(at)
    assert (before.start, before.end, rest.end) == (start, rest.start, 15)
    assert before.end == min(max(at, start), 15)
    assert [each.offset for each in before.records] == sorted(o for o in offsets if o < at)
    assert [each.offset for each in rest.records] == sorted(o for o in offsets if o >= at)


# --- polling, with a client that plays back


@dataclass
class Client:
    """kafka-python's consumer. Each poll takes the next of ``script``: records, or a function that does something."""

    script: list[Any] = field(default_factory=list)
    log: dict[KafkaPartition, list[Any]] = field(default_factory=lambda: {P0: [], P1: []})
    gaps: dict[KafkaPartition, int] = field(default_factory=dict)
    """The end of a partition, where offsets follow its last record that are none."""
    assigned: tuple[KafkaPartition, ...] = ()
    positions: dict[KafkaPartition, int] = field(default_factory=dict)
    committed: list[dict[KafkaPartition, int]] = field(default_factory=list)
    polls: list[int] = field(default_factory=list)
    fails: list[Exception] = field(default_factory=list)
    now_paused: set[KafkaPartition] = field(default_factory=set)
    closed: bool = False

    def connect(self, **config: Any) -> "Client":
        self.config = {"auto_commit_interval_ms": 5000, **config}
        return self

    def subscribe(self, topics: list[str], listener: Any) -> None:
        self.listener = listener

    def end_offsets(self, partitions: list[KafkaPartition]) -> dict[KafkaPartition, int]:
        return {at: self.end(at) for at in partitions}

    def end(self, at: KafkaPartition) -> int:
        last = self.log[at][-1].offset + 1 if self.log[at] else 0
        return self.gaps.get(at, last)

    def rebalance(self, *partitions: KafkaPartition) -> None:
        self.listener.on_partitions_revoked(set(self.assigned))
        self.assigned = partitions
        self.positions.clear()
        self.listener.on_partitions_assigned(set(partitions))

    def poll(self, timeout_ms: int, max_records: int) -> dict[KafkaPartition, list[Any]]:
        assert not self.closed
        self.polls.append(max_records)
        if self.script:
            self.script.pop(0)()
        found: dict[KafkaPartition, list[Any]] = {}
        for at in self.assigned:
            if at in self.now_paused:
                continue
            some = [each for each in self.log[at] if each.offset >= self.positions[at]][:max_records]
            max_records -= len(some)
            if some:
                found[at] = some
                self.positions[at] = some[-1].offset + 1
            if not [each for each in self.log[at] if each.offset >= self.positions[at]] and max_records:
                self.positions[at] = max(self.positions[at], self.end(at))
            if not max_records:
                break
        return found

    def seek(self, at: KafkaPartition, offset: int) -> None:
        self.positions[at] = offset

    def position(self, at: KafkaPartition) -> int | None:
        return self.positions.get(at)

    def highwater(self, at: KafkaPartition) -> int | None:
        assert at in self.assigned
        return self.end(at)

    def assignment(self) -> set[KafkaPartition]:
        return set(self.assigned)

    def pause(self, *partitions: KafkaPartition) -> None:
        self.now_paused |= set(partitions)

    def paused(self) -> set[KafkaPartition]:
        return set(self.now_paused)

    def resume(self, *partitions: KafkaPartition) -> None:
        self.now_paused -= set(partitions)

    def commit(self, offsets: dict[KafkaPartition, Any]) -> None:
        if self.fails:
            raise self.fails.pop(0)
        self.committed.append({at: each.offset for at, each in offsets.items()})

    def close(self, autocommit: bool) -> None:
        assert not autocommit
        self.closed = True
        self.listener.on_partitions_revoked(set(self.assigned))


class Source:
    def __init__(self, client: Client) -> None:
        self._client = client

    def look(self) -> TopicsHeld:
        ends = Offsets({TopicPartition(*at): self._client.end(at) for at in self._client.log})
        return TopicsHeld(Offsets(dict.fromkeys(ends, 0)), ends, {"t": "id"}, datetime.now(timezone.utc))

    def starting(self, held: TopicsHeld) -> Callable[[], Offsets]:
        return Offsets

    def began(self, held: TopicsHeld) -> Callable[[], Offsets]:
        return Offsets

    def remaining(self, held: TopicsHeld) -> Remaining:
        return lambda partitions: {at: Remains(held.beginnings[at]) for at in partitions}


@dataclass
class KafkaGroup(Group):
    """The client commits into it on its own clock, when a test says so."""

    gone: bool = False
    asked: int = 0

    def committed(self, also: Collection[str] = ()) -> Offsets:
        self.asked += 1
        return self.stored

    def has_member(self, client_id: str) -> bool:
        return not self.gone


@dataclass
class Run:
    client: Client
    group: KafkaGroup
    member: GroupMember
    events: list[Event]
    stop: threading.Event

    def batches(self) -> list[list[tuple[int, int]]]:
        """What manual commit would do: every batch's (partition, offset)s, committed."""
        done = []
        for batch in self.member.batches():
            done.append(self.written())
            self.member.commit(batch)
            if batch.offsets.items() <= {TopicPartition(*k): v for k, v in self.last_commit().items()}.items():
                self.group.stored = Offsets({**self.group.stored, **batch.offsets})
        return done

    def last_commit(self) -> dict[KafkaPartition, int]:
        return self.client.committed[-1] if self.client.committed else {}

    def written(self) -> list[tuple[int, int]]:
        return sorted((each.partition, each.offset) for each in self.member.records)

    def auto_commit(self) -> None:
        """The client's clock: what it has polled is committed."""
        polled = {TopicPartition(*at): offset for at, offset in self.client.positions.items()}
        self.group.stored = Offsets({**self.group.stored, **polled})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The member's: it goes by hand, or by ``step`` each time it is looked at."""
    clock = SimpleNamespace(now=0.0, step=0.0)

    def monotonic() -> float:
        clock.now += clock.step
        return float(clock.now)

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=monotonic))
    return clock


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    def start(client: Client | None = None, delivery: str = "manual_commit", **changes: Any) -> Run:
        client = client or Client()
        made = {"DEFAULT_CONFIG": {"max_poll_records": 500}, "__new__": lambda _, **options: client.connect(**options)}
        monkeypatch.setattr(module, "KafkaConsumer", type("KafkaConsumer", (), made))
        handed_over = Offsets({TopicPartition(*at): 0 for at in client.log})
        group, events, stop = KafkaGroup(stored=handed_over), [], threading.Event()
        position = Position(1, handed_over, {"t": "id"}, delivery=delivery)
        member = GroupMember(
            config(delivery, **changes),
            owner="run",
            source=Source(client),  # type: ignore[arg-type]
            group=group,  # type: ignore[arg-type]
            position=position,
            stop=stop,
            observe=events.append,
        )
        if not client.script:
            client.script = [lambda: client.rebalance(P0, P1)]
        return Run(client, group, member, events, stop)

    return start


Start = Callable[..., Run]


def filled(first: int, second: int = 0) -> Client:
    return Client(log={P0: [record(n) for n in range(first)], P1: [record(n, 1) for n in range(second)]})


def test_a_batch_is_what_was_polled_and_its_ranges_are_committed(start: Start) -> None:
    run = start(filled(3, 2))
    assert run.batches() == [[(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]]
    assert run.client.committed == [{P0: 3, P1: 2}]
    assert [event.step for event in run.events] == [Step.RESUMED, Step.PLANNED, Step.OFFSETS_COMMITTED]
    assert [event.behind for event in run.events] == [5, 0, 0]


@pytest.mark.parametrize(
    ("changes", "sizes"),
    [
        ({}, [7]),
        ({"commit_every": "batch"}, [7]),
        ({"commit_every": "record"}, [1] * 7),
        ({"commit_every": {"records": 3}}, [3, 3, 1]),
        ({"commit_every": {"records": 100}}, [7]),
        ({"commit_every": {"records": 5}, "epoch": {"max_records": 2}}, [2, 2, 2, 1]),
        ({"kafka": {"max.poll.records": "4"}}, [4, 3]),
    ],
)
def test_no_more_is_polled_than_is_committed_at_once(changes: dict[str, Any], sizes: list[int], start: Start) -> None:
    """So the time between two polls is that of one commit, and no rebalance waits for the others."""
    run = start(filled(4, 3), **changes)
    batches = run.batches()
    assert [len(batch) for batch in batches] == sizes
    assert sorted(itertools.chain(*batches)) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)]
    assert max(run.client.polls) <= sizes[0] or len(sizes) == 1
    assert run.group.stored == Offsets({TopicPartition("t", 0): 4, TopicPartition("t", 1): 3})


@pytest.mark.parametrize("every", ["batch", "record", {"records": 2}])
def test_gaps_are_committed_like_records_whatever_the_cut(every: object, start: Start) -> None:
    """Offsets of aborted records and of markers: within, at the end, and alone in a partition."""
    client = Client(log={P0: [record(1), record(4), record(5)], P1: []}, gaps={P0: 9, P1: 3})
    run = start(client, commit_every=every)
    assert list(itertools.chain(*run.batches())) == [(0, 1), (0, 4), (0, 5)]
    assert run.group.stored == Offsets({TopicPartition("t", 0): 9, TopicPartition("t", 1): 3})


def test_an_empty_topic_ends_the_run_at_once(start: Start) -> None:
    run = start()
    assert run.batches() == []
    assert not run.client.committed


def test_a_run_ends_at_what_kafka_held_at_its_start_though_records_keep_coming(start: Start) -> None:
    client = filled(4)
    run = start(client, commit_every={"records": 2})

    def one_more() -> None:
        client.log[P0].append(record(len(client.log[P0])))

    client.script = [lambda: client.rebalance(P0, P1), *[one_more] * 50]
    assert len(run.batches()) <= 3
    assert len(client.polls) < 10


def test_with_an_interval_what_came_since_the_start_is_behind_too(start: Start, clock: SimpleNamespace) -> None:
    client = filled(1)
    run = start(client, trigger={"interval": "10 seconds"}, epoch={"max_records": 2})

    def three_more() -> None:
        clock.now += 20
        client.log[P0] += [record(len(client.log[P0]) + n) for n in range(3)]

    client.script = [lambda: client.rebalance(P0, P1), *[three_more] * 3]
    batches = run.member.batches()
    assert [(next(batches).span, run.member.behind) for _ in range(3)] == [(2, 2), (2, 3), (2, 4)]


def test_with_an_interval_a_batch_ends_with_its_time_though_records_keep_coming(
    start: Start, clock: SimpleNamespace
) -> None:
    client = filled(1)
    run = start(client, trigger={"interval": "10 seconds"})

    def one_more_each_second() -> None:
        clock.now += 1
        client.log[P0].append(record(len(client.log[P0])))

    client.script = [lambda: client.rebalance(P0, P1), *[one_more_each_second] * 50]
    batches = run.member.batches()
    next(batches)
    assert len(run.written()) == 11
    run.stop.set()
    assert list(batches) == []


def test_a_stop_hands_out_what_is_held_and_ends(start: Start) -> None:
    client = filled(3)
    run = start(client, trigger={"interval": "10 seconds"})
    client.script = [lambda: client.rebalance(P0, P1), run.stop.set]
    assert run.batches() == [[(0, 0), (0, 1), (0, 2)]]
    assert run.client.committed == [{P0: 3}]


def test_what_is_held_of_a_partition_that_is_taken_away_is_dropped(start: Start) -> None:
    client = filled(2, 2)
    run = start(client, trigger={"interval": "10 seconds"})
    client.script = [lambda: client.rebalance(P0, P1), lambda: client.rebalance(P1), run.stop.set]
    assert run.batches() == [[(1, 0), (1, 1)]]
    assert run.client.committed == [{P1: 2}]


def test_a_commit_that_comes_too_late_is_no_error_and_what_comes_back_is_read_again(start: Start) -> None:
    client = filled(2)
    run = start(client)
    client.fails = [CommitFailedError()]
    client.script = [lambda: client.rebalance(P0, P1), lambda: client.rebalance(P0, P1)]
    assert run.batches() == [[(0, 0), (0, 1)], [(0, 0), (0, 1)]]
    assert run.client.committed == [{P0: 2}]


def test_a_member_whose_commit_failed_is_not_through(start: Start) -> None:
    """Neither before it has partitions again, nor while another member hasn't committed them."""
    client = filled(2)
    run = start(client)
    client.fails = [CommitFailedError()]
    another = Offsets({TopicPartition("t", 0): 2, TopicPartition("t", 1): 0})
    client.script = [
        lambda: client.rebalance(P0, P1),
        lambda: client.rebalance(),
        lambda: None,
        lambda: setattr(run.group, "stored", another),
    ]
    assert run.batches() == [[(0, 0), (0, 1)]]
    assert len(client.polls) == 4


def test_any_other_failure_of_a_commit_ends_the_run(start: Start) -> None:
    run = start(filled(2))
    run.client.fails = [KafkaError("no answer")]
    with pytest.raises(BrokerUnreachable):
        run.batches()


def test_a_partition_is_read_from_the_groups_offset_and_not_without_one(start: Start) -> None:
    run = start(filled(3, 3))
    run.group.stored = Offsets({TopicPartition("t", 0): 0, TopicPartition("t", 1): 2})
    assert run.batches() == [[(0, 0), (0, 1), (0, 2), (1, 2)]]
    run = start(filled(3, 3))
    run.group.stored = Offsets({TopicPartition("t", 1): 2})
    with pytest.raises(OffsetsForgotten, match="has no offset of t-0 any more"):
        run.batches()


# --- auto_commit: the client's own clock


def written_by_auto_commit(run: Run) -> tuple[list[Epoch], list[tuple[int, int]]]:
    planned, written = [], []
    for batch in run.member.batches():
        planned.append(batch)
        run.member.auto_committed()
        written += run.written()
    return planned, written


def test_auto_commit_hands_out_what_the_client_has_committed(start: Start) -> None:
    client = filled(3, 1)
    run = start(client, delivery="auto_commit")
    client.script = [lambda: client.rebalance(P0, P1), lambda: None, run.auto_commit]
    planned, written = written_by_auto_commit(run)
    assert len(planned) == 1
    assert written == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert client.polls == [10_000, 1, 1]  # the first one reached the ends, the others only keep the clock
    assert not client.now_paused
    assert not client.committed


def test_what_was_committed_before_a_rebalance_is_written_though_nothing_is_polled_after_it(start: Start) -> None:
    """kafka-python commits what was polled right before it gives partitions away: nobody else will read that."""
    client = filled(3)
    run = start(client, delivery="auto_commit", trigger={"interval": "10 seconds"})

    def rebalanced() -> None:
        run.auto_commit()
        client.rebalance(P1)

    client.script = [lambda: client.rebalance(P0, P1), rebalanced, run.stop.set]
    assert written_by_auto_commit(run)[1] == [(0, 0), (0, 1), (0, 2)]


def test_what_was_not_committed_before_a_rebalance_is_left_to_the_next_owner(start: Start) -> None:
    client = filled(3, 1)
    run = start(client, delivery="auto_commit")
    client.script = [
        lambda: client.rebalance(P0, P1),
        lambda: client.rebalance(P1),
        lambda: None,
        lambda: None,
        run.auto_commit,
    ]
    assert written_by_auto_commit(run)[1] == [(1, 0)]


def test_a_member_that_was_thrown_out_takes_no_commit_of_others_for_its_own(start: Start) -> None:
    client = filled(3)
    run = start(client, delivery="auto_commit")

    def thrown_out() -> None:
        run.group.gone = True
        run.group.stored = Offsets({TopicPartition("t", 0): 3, TopicPartition("t", 1): 0})  # the new owner's
        client.listener.on_partitions_lost(set(client.assigned))
        client.assigned = ()

    client.script = [lambda: client.rebalance(P0, P1), thrown_out]
    assert written_by_auto_commit(run)[1] == []


def test_partitions_that_come_while_the_clock_is_waited_for_are_not_polled_on_and_on(start: Start) -> None:
    client = filled(2, 400)
    run = start(client, delivery="auto_commit", epoch={"max_records": 2})
    client.script = [
        lambda: client.rebalance(P0),
        lambda: client.rebalance(P0, P1),
        *[lambda: None] * 20,
        run.auto_commit,
    ]
    batches = run.member.batches()
    next(batches)
    run.member.auto_committed()
    assert len(run.written()) <= 3
    assert not client.now_paused


def test_a_client_that_never_commits_ends_the_run_and_nothing_is_written(start: Start, clock: SimpleNamespace) -> None:
    clock.step = 1.0
    run = start(filled(3), delivery="auto_commit")
    batches = run.member.batches()
    next(batches)
    with pytest.raises(BrokerUnreachable, match="within 35 seconds"):
        run.member.auto_committed()


def test_leaving_asks_the_broker_nothing(start: Start) -> None:
    """The error that ends the run must not be hidden by another one."""
    run = start(filled(3), delivery="auto_commit")
    next(run.member.batches())
    asked = run.group.asked
    run.member.close()
    assert run.client.closed
    assert run.group.asked == asked


# --- errors


@pytest.mark.parametrize("cause", [OffsetsLost("gone"), ConfigurationError("no such topic"), RuntimeError("a bug")])
def test_an_error_in_a_rebalance_is_told_as_it_is(cause: Exception, start: Start) -> None:
    def rebalance() -> None:
        raise KafkaError("User rebalance callback throws an error") from cause

    run = start(Client(script=[rebalance]))
    with pytest.raises(type(cause)) as caught:
        run.batches()
    assert caught.value is cause


def test_retention_that_passes_a_running_member_is_told_as_lost_offsets(start: Start) -> None:
    def poll() -> None:
        raise OffsetOutOfRangeError({P0: 3})

    with pytest.raises(OffsetsLost, match="was about to read"):
        start(Client(script=[poll])).batches()


def test_a_silent_broker_is_looked_for(start: Start, clock: SimpleNamespace) -> None:
    clock.step = 1.0
    client = filled(1)
    client.script = [lambda: None] * 1000  # never assigned
    run = start(client)

    def look() -> TopicsHeld:
        raise BrokerUnreachable("nobody there")

    run.member._source.look = look  # type: ignore[method-assign]
    with pytest.raises(BrokerUnreachable, match="nobody there"):
        run.batches()
