"""The deliveries against a real broker: what they promise when nothing happens, and when partitions change hands."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import pytest
from conftest import Lake, Topic, wait_until
from kafka import KafkaAdminClient, KafkaProducer
from kafka.structs import OffsetAndMetadata, TopicPartition

from connector import Pipeline
from connector.audit import audit
from connector.delivery import handover
from connector.delivery.ports import Delivered
from connector.protocol.steps import Event, Step
from connector.source.topics import KafkaSource
from sinks.errors import BadRecord, GroupActive, OffsetsForgotten, OffsetsLost

QUICK = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000", "auto.commit.interval.ms": "500"}
WITHIN = 120.0
EVERY = [
    ("manual_commit", "append"),
    *(
        pytest.param(*each, marks=pytest.mark.breadth)
        for each in [
            ("auto_commit", "append"),
            ("auto_commit", "upsert"),
            ("manual_commit", "upsert"),
            ("idempotent", "upsert"),
            ("transactional", "append"),
            ("transactional", "upsert"),
        ]
    ),
]


def pipeline(
    lake: Lake,
    delivery: str,
    kind: str = "append",
    *,
    kafka: Mapping[str, str] = MappingProxyType({}),
    on_data_loss: str = "fail",
    **more: Any,
) -> Pipeline:
    """One name per test: the group's too."""
    source = {
        "kafka": {"bootstrap.servers": lake.topic.broker.bootstrap, **QUICK, **kafka},
        "on_data_loss": on_data_loss,
    }
    return lake.pipeline(kind, name=lake.topic.name, delivery=delivery, source=source, **more)


def some(first: int, count: int, keys: int = 7) -> list[tuple[str, int]]:
    return [(f"k{number % keys}", number) for number in range(first, first + count)]


def expected(kind: str, rows: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(rows) if kind == "append" else sorted(dict(rows).items())


@contextmanager
def admin(lake: Lake) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=lake.topic.broker.bootstrap)
    try:
        yield client
    finally:
        client.close()


def committed(lake: Lake, group: str | None = None) -> dict[int, int]:
    """The group's next offset per partition."""
    name = group or lake.topic.name
    with admin(lake) as client:
        found = client.list_group_offsets({name: None})[name]
    return {at.partition: each.offset for at, each in found.items() if at.topic == lake.topic.name}


def ends(lake: Lake) -> dict[int, int]:
    with closing(KafkaSource(pipeline(lake, "transactional").config.source)) as source:
        return {at.partition: end for at, end in source.look().ends.items()}


class Running:
    """A pipeline that runs in a thread once it is started, with what it announced. Leaving the block stops it."""

    def __init__(self, pipeline: Pipeline, block_at: Step | None = None) -> None:
        self._pipeline, self._block_at = pipeline, block_at
        self._stop, self._go_on = threading.Event(), threading.Event()
        self.blocked = threading.Event()
        self.events: list[Event] = []
        self.error: BaseException | None = None
        self.delivered: Delivered | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.delivered = self._pipeline.run(stop=self._stop, observers=[self._observe])
        except BaseException as error:
            self.error = error

    def _observe(self, event: Event) -> None:
        self.events.append(event)
        if event.step is self._block_at and event.epoch.ranges and not self.blocked.is_set():
            self.blocked.set()
            self._go_on.wait(WITHIN)

    def count(self, step: Step) -> int:
        return sum(event.step is step for event in self.events)

    def writing(self) -> dict[int, int]:
        """The offsets behind the batches that were written, or are on their way into the table."""
        epochs = [event.epoch for event in self.events if event.step is Step.WRITING]
        return {at.partition: offset for epoch in epochs for at, offset in epoch.offsets.items()}

    def go_on(self) -> None:
        self._go_on.set()

    def join(self) -> Delivered:
        """Wait for its own end."""
        self._thread.join(WITHIN)
        if self.error:
            raise self.error
        assert self.delivered is not None, "the run hasn't ended"
        return self.delivered

    def stop(self) -> Delivered:
        self._stop.set()
        self._go_on.set()
        return self.join()

    def start(self) -> None:
        self._thread.start()

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._go_on.set()
        if self._thread.is_alive():
            self._thread.join(WITHIN)


def transaction(topic: Topic, rows: list[tuple[str, int]], partition: int, *, keep: bool) -> None:
    producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap, transactional_id=f"x-{topic.name}")
    producer.init_transactions()
    producer.begin_transaction()
    for key, number in rows:
        producer.send(topic.name, b'{"k": "%s", "n": %d}' % (key.encode(), number), partition=partition)
    producer.flush()
    producer.commit_transaction() if keep else producer.abort_transaction()
    producer.close()


@pytest.mark.parametrize(("delivery", "kind"), EVERY)
def test_every_record_is_moved_once_when_nothing_crashes(delivery: str, kind: str, lake: Lake, topic: Topic) -> None:
    moving = pipeline(lake, delivery, kind)
    assert moving.run().rows == 0  # an empty topic
    topic.send_rows(some(0, 20))
    moving.run()
    assert lake.rows(kind) == expected(kind, some(0, 20))
    # The last offsets of both partitions are of no record.
    kept = [(f"only in 0: {number}", number) for number in range(20, 27)]
    transaction(topic, kept, 0, keep=True)
    transaction(topic, some(900, 3), 0, keep=False)
    transaction(topic, some(950, 3), 1, keep=False)
    assert sum(moving.status().lag.values()) == 7 + 3 + 3 + 3  # a marker each
    moving.run()
    assert lake.rows(kind) == expected(kind, some(0, 20) + kept)
    after = moving.status()
    assert sum(after.lag.values()) == 0
    assert after.delivery == delivery
    assert after.position is not None
    assert after.position.delivery == delivery
    assert {at.partition: offset for at, offset in after.offsets.items()} == committed(lake) == ends(lake)
    version = lake.version(kind)
    assert moving.run().rows == 0
    assert lake.version(kind) == version


@pytest.mark.parametrize(
    ("delivery", "kind", "every", "pieces"),
    [
        ("manual_commit", "append", {"records": 4}, [4, 4, 2]),
        pytest.param("idempotent", "upsert", "record", [1, 1, 1], marks=pytest.mark.breadth),
    ],
)
@pytest.mark.breadth
def test_commit_every_commits_that_many_records_at_once(
    delivery: str, kind: str, every: object, pieces: list[int], lake: Lake, topic: Topic
) -> None:
    topic.send_rows(some(0, sum(pieces)))
    steps: list[tuple[Step, int]] = []

    def observe(event: Event) -> None:
        steps.append((event.step, event.epoch.span))

    pipeline(lake, delivery, kind, commit_every=every).run(observers=[observe])
    assert [size for step, size in steps if step is Step.OFFSETS_COMMITTED] == pieces
    in_order = [step for step, _ in steps if step in (Step.COMMITTED, Step.OFFSETS_COMMITTED)][1:]  # [0]: the handover
    assert in_order == [Step.COMMITTED, Step.OFFSETS_COMMITTED] * len(pieces)
    assert lake.rows(kind) == expected(kind, some(0, sum(pieces)))
    assert committed(lake) == ends(lake)


@pytest.mark.parametrize(
    ("delivery", "kind"), [("manual_commit", "append"), pytest.param("idempotent", "upsert", marks=pytest.mark.breadth)]
)
@pytest.mark.breadth
def test_the_groups_offsets_dont_pass_a_bad_record(delivery: str, kind: str, lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 4), partition=0)
    topic.send(("k", b"no JSON"), partition=0)
    topic.send_rows(some(5, 2), partition=0)
    moving = pipeline(lake, delivery, kind, commit_every={"records": 2})
    for _ in range(2):
        with pytest.raises(BadRecord, match=f"{topic.name}-0, offset 4"):
            moving.run()
        assert committed(lake)[0] == 4
    assert lake.rows(kind) == expected(kind, some(0, 4))


def test_a_member_that_joins_in_mid_batch_repeats_nothing_and_loses_nothing(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 10), partition=0)
    topic.send_rows(some(10, 10), partition=1)
    moving = pipeline(lake, "manual_commit", trigger={"interval": "0.5 seconds"})
    with Running(moving, block_at=Step.WRITING) as first, Running(moving) as second:
        first.start()
        assert first.blocked.wait(WITHIN)
        second.start()
        with admin(lake) as client:
            wait_until(
                lambda: len(client.describe_groups([topic.name])[topic.name]["members"]) == 2, WITHIN, "a second member"
            )
        first.go_on()
        wait_until(lambda: second.count(Step.RESUMED), WITHIN, "partitions of the second member")
        wait_until(lambda: first.count(Step.OFFSETS_COMMITTED), WITHIN, "the first member's commit")
        topic.send_rows(some(20, 10), partition=0)
        topic.send_rows(some(30, 10), partition=1)
        wait_until(lambda: committed(lake) == ends(lake), WITHIN, "both partitions to be served")
        for run in (first, second):
            run.stop()
    assert lake.rows() == sorted(some(0, 40))
    # Each has served the partition that it was given.
    last = [[e.epoch.ranges for e in run.events if e.step is Step.OFFSETS_COMMITTED][-1] for run in (first, second)]
    assert sorted(range_.partition for ranges in last for range_ in ranges) == [0, 1]


@pytest.mark.breadth
def test_two_members_that_start_at_once_make_one_table_and_share_the_topic(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 40))
    moving = pipeline(lake, "manual_commit", commit_every={"records": 10})
    with Running(moving) as first, Running(moving) as second:
        first.start()
        second.start()
        first.join()
        second.join()
    assert lake.rows() == sorted(some(0, 40))
    assert committed(lake) == ends(lake)
    assert [metadata["epoch"] for metadata in lake.metadata()] == [1]


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("delivery", "kind", "block_at"),
    [
        ("manual_commit", "append", Step.WRITING),
        ("idempotent", "upsert", Step.WRITING),
        ("auto_commit", "append", Step.PLANNED),  # not committed: left to the other member
        ("auto_commit", "append", Step.WRITING),  # committed: nobody else's
    ],
)
def test_a_member_that_was_replaced_in_mid_batch(
    delivery: str, kind: str, block_at: Step, lake: Lake, topic: Topic
) -> None:
    """It exceeds max.poll.interval.ms: only at least once writes its batch twice."""
    topic.send_rows(some(0, 10))
    kafka = {"max.poll.interval.ms": "3000"}
    slow = pipeline(lake, delivery, kind, kafka=kafka)
    with Running(slow, block_at=block_at) as first:
        first.start()
        assert first.blocked.wait(WITHIN)
        with admin(lake) as client:
            wait_until(
                lambda: not client.describe_groups([topic.name])[topic.name]["members"], WITHIN, "the member to be out"
            )
        pipeline(lake, delivery, kind).run()
        topic.send_rows(some(10, 4))
        first.go_on()
        first.join()
    assert committed(lake)[0] + committed(lake)[1] >= 10
    pipeline(lake, delivery, kind).run()
    rows = Counter(lake.rows(kind))
    if delivery == "manual_commit":
        assert rows == Counter({row: 2 if row[1] < 10 else 1 for row in some(0, 14)})
    else:
        assert rows == Counter(expected(kind, some(0, 14)))
    assert committed(lake) == ends(lake)


def test_a_pipeline_moves_between_deliveries_without_loss_or_repetition(lake: Lake, topic: Topic) -> None:
    for kind, deliveries in {
        "append": ["manual_commit", "transactional", "manual_commit"],
        "upsert": ["idempotent", "transactional"],
    }.items():
        events: list[Event] = []
        for number, delivery in enumerate(deliveries):
            topic.send_rows(some(10 * number, 10))
            moving = lake.pipeline(
                kind,
                name=f"{kind}-{topic.name}",
                delivery=delivery,
                source={"kafka": {"bootstrap.servers": topic.broker.bootstrap, **QUICK}},
            )
            moving.run(observers=[events.append])
        told = [event.note for event in events if event.note.startswith("delivery was")]
        assert [note.split(" from now on: ")[0] for note in told] == [
            f"delivery was {before}, is {after}" for before, after in pairwise(deliveries)
        ]
        assert f"took the offsets of consumer group {kind}-{topic.name}, once: " in told[0]
        if delivery == "manual_commit":  # as Kafka does after offsets.retention.minutes
            with admin(lake) as client:
                client.delete_groups([moving.config.group])
            with pytest.raises(OffsetsForgotten, match="only it knew how far"):
                moving.run()
    every = [*some(0, 10), *some(10, 10), *some(20, 10)]
    assert lake.rows("append") == sorted(every)
    assert lake.rows("upsert") == expected("upsert", [*every, *some(0, 10), *some(10, 10)])


@pytest.mark.breadth
@pytest.mark.parametrize("delivery", ["idempotent", "manual_commit"])
def test_an_aggregate_becomes_transactional_after_a_crash_and_adds_each_record_once(
    delivery: str, lake: Lake, topic: Topic
) -> None:
    """The batch was written, and the group never committed it."""

    def die(event: Event) -> None:
        if event.step is Step.COMMITTED and event.epoch.ranges:
            raise KeyboardInterrupt

    def moving(delivery: str) -> Pipeline:
        sink = {"group_by": "k", "aggregates": {"records": "count(*)", "total": "sum(n)"}}
        return pipeline(lake, delivery, "aggregate", sink=sink)

    topic.send_rows([("a", 1), ("b", 2), ("a", 4)], partition=0)
    with pytest.raises(KeyboardInterrupt):
        moving(delivery).run(observers=[die])
    assert committed(lake)[0] == 0
    topic.send_rows([("a", 8), ("c", 16)], partition=0)
    moving("transactional").run()
    found = lake.spark.read.format("delta").load(str(lake.path("aggregate"))).select("k", "records", "total")
    assert sorted(tuple(row) for row in found.collect()) == [("a", 3, 13), ("b", 1, 2), ("c", 1, 16)]
    assert audit(moving("transactional").config).ok


def test_transactional_publishes_its_offsets_and_never_reads_them_back(lake: Lake, topic: Topic) -> None:
    group = f"of-the-user-{topic.name}"
    topic.send_rows(some(0, 10))
    moving = pipeline(lake, "transactional", kafka={"group.id": group})
    events: list[Step] = []
    moving.run(observers=[lambda event: events.append(event.step)])
    assert events[-3:] == [Step.COMMITTED, Step.OFFSETS_COMMITTED, Step.WAITING]
    assert committed(lake, group) == ends(lake)
    with admin(lake) as client:
        client.alter_group_offsets(
            group, {TopicPartition(topic.name, partition): OffsetAndMetadata(0, "", -1) for partition in (0, 1)}
        )
    topic.send_rows(some(10, 5))
    assert sum(moving.status().lag.values()) == 5
    moving.run()
    assert lake.rows() == sorted(some(0, 15))
    assert committed(lake, group) == ends(lake)


@pytest.mark.breadth
def test_no_delivery_takes_over_from_members_that_are_still_there_and_a_stop_leaves_all_in_order(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = {"group.id": f"of-the-user-{topic.name}"}
    topic.send_rows(some(0, 10))
    monkeypatch.setattr(handover, "EMPTY_WITHIN_SECONDS", 0.5)
    with Running(pipeline(lake, "manual_commit", kafka=group, trigger={"interval": "0.5 seconds"})) as run:
        run.start()
        wait_until(lambda: run.count(Step.OFFSETS_COMMITTED), WITHIN, "the first batch")
        for delivery in ("transactional", "auto_commit"):
            with pytest.raises(GroupActive, match=f"of-the-user-{topic.name}' still has members"):
                pipeline(lake, delivery, kafka=group).run()
        topic.send_rows(some(10, 5))
        last = ends(lake)
        # In however many batches: what was sent one after the other may be polled so.
        wait_until(lambda: run.writing().items() >= last.items(), WITHIN, "the last batch")
        delivered = run.stop()
    assert delivered.rows == 15
    assert lake.rows() == sorted(some(0, 15))
    assert committed(lake, group["group.id"]) == ends(lake)
    with admin(lake) as client:
        assert not client.describe_groups([group["group.id"]])[group["group.id"]]["members"]
    pipeline(lake, "transactional", kafka=group).run()
    assert lake.rows() == sorted(some(0, 15))


@pytest.mark.breadth
def test_retention_that_passed_the_groups_offset_stops_the_run_and_names_the_range(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 5), partition=0)
    pipeline(lake, "manual_commit").run()
    topic.send_rows(some(5, 10), partition=0)
    with admin(lake) as client:
        client.delete_records({TopicPartition(topic.name, 0): 8})
    with pytest.raises(OffsetsLost, match=rf"{topic.name}-0: .* \[5, 8\) is missing"):
        pipeline(lake, "manual_commit").run()
    assert lake.rows() == sorted(some(0, 5))
    notes: list[str] = []
    pipeline(lake, "manual_commit", on_data_loss="continue").run(observers=[lambda event: notes.append(event.note)])
    assert f"lost {topic.name}-0 [5, 8): no longer in Kafka" in notes
    assert lake.rows() == sorted(some(0, 5) + some(8, 7))
