"""A topic as a sink, on a real broker: what every two-phase sink must show, and what Kafka adds."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import wait_until

from sinks.conformance import TwoPhaseConformance
from sinks.contract import Epoch, Prepared
from sinks.errors import (
    CommitUnknown,
    ConfigurationError,
    Fenced,
    PositionMismatch,
    SchemaMismatch,
    SinkError,
    TableReplaced,
    TopicMissing,
)
from sinks.offsets import OffsetRange, Offsets, TopicPartition
from sinks.spark.settings import with_settings
from sinks.spark.staging import Staging
from sinks.topic import KafkaTopic
from sinks.topic.messages import OVERHEAD
from sinks.topic.transaction import Transaction

if TYPE_CHECKING:
    from kafka import KafkaConsumer
    from pyspark.sql import DataFrame, SparkSession

    from connector.lab.bench.broker import Broker

SCHEMA = "k STRING, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
AT = TopicPartition("t", 0)
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Place:
    """A target topic, a group and a staging folder of one test. Rows come from topic ``t``, which all tests share."""

    def __init__(
        self, broker: Broker, spark: SparkSession, folder: Path, pipeline: str, config: dict[str, str]
    ) -> None:
        self.broker, self.spark, self.folder, self.pipeline = broker, spark, folder, pipeline
        self.topic = f"out-{uuid.uuid4().hex[:12]}"
        self.group = f"g-{uuid.uuid4().hex[:12]}"
        self.kafka = {"bootstrap.servers": broker.bootstrap}
        broker.create_topic(self.topic, 3, config)
        self._open: list[KafkaTopic] = []

    def sink(self, **changes: Any) -> KafkaTopic:
        kafka = {**self.kafka, **changes.pop("kafka", {})}
        options = {"pipeline": self.pipeline, "group": self.group, "kafka": kafka, "key": ["k"], **changes}
        made = KafkaTopic(self.topic, Staging(self.spark, str(self.folder / "staged")), **options)
        self._open.append(made)
        return made

    def close(self) -> None:
        for each in self._open:
            each.close()

    def rows(self, values: Sequence[str], first_offset: int = 0) -> DataFrame:
        rows = [(value, "t", 0, offset, NOW) for offset, value in enumerate(values, start=first_offset)]
        return self.spark.createDataFrame(rows, SCHEMA)

    def epoch(self, end: int, *, attempt: int = 1, owner: str = "run-1") -> Epoch:
        expected = self.sink().position()
        start = expected.offsets[TopicPartition("t", 0)] if expected else 0
        return Epoch(
            pipeline=self.pipeline,
            number=expected.epoch + 1 if expected else 1,
            owner=owner,
            ranges=(OffsetRange("t", 0, start, end),),
            offsets=Offsets({TopicPartition("t", 0): end}),
            topics={"t": "topic-id"},
            read_to=NOW,
            expected=expected,
            attempt=attempt,
        )

    def consumer(self, isolation_level: str = "read_committed") -> KafkaConsumer:
        from kafka import KafkaConsumer

        return KafkaConsumer(
            bootstrap_servers=self.broker.bootstrap,
            isolation_level=isolation_level,
            enable_auto_commit=False,
            fetch_max_wait_ms=50,
        )

    def read(self, isolation_level: str = "read_committed") -> list[Any]:
        """What such a reader gets now, partition by partition."""
        from kafka.structs import TopicPartition as KafkaPartition

        reader = self.consumer(isolation_level)
        try:
            partitions = [KafkaPartition(self.topic, each) for each in range(3)]
            ends = reader.end_offsets(partitions)
            reader.assign(partitions)
            reader.seek_to_beginning()
            found = []
            wait_until(
                lambda: (
                    found.extend(each for part in reader.poll(50).values() for each in part)
                    or all(reader.position(at) >= end for at, end in ends.items())
                ),
                what="the end of the topic",
            )
            return sorted(found, key=lambda each: (each.partition, each.offset))
        finally:
            reader.close()

    def values(self) -> list[str]:
        return sorted(json.loads(each.value)["k"] for each in self.read())


@pytest.fixture(scope="module")
def source(broker: Broker) -> None:
    """Offsets can be committed only for partitions that are there."""
    broker.create_topic("t", 2)


@pytest.fixture
def make_place(broker: Broker, spark: SparkSession, source: None, tmp_path: Path) -> Iterator[Any]:
    made: list[Place] = []

    def make(pipeline: str | None = None, **config: str) -> Place:
        made.append(Place(broker, spark, tmp_path, pipeline or f"p-{uuid.uuid4().hex[:8]}", config))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def place(make_place: Any) -> Place:
    return make_place()


class TestKafkaTopic(TwoPhaseConformance["DataFrame"]):
    @pytest.fixture(autouse=True)
    def _place(self, make_place: Any) -> None:
        self.place = make_place("conformance")

    def make_sink(self) -> KafkaTopic:
        return self.place.sink()

    def make_rows(self, values: Sequence[str], first_offset: int) -> DataFrame:
        return self.place.rows(values, first_offset)

    def read_values(self) -> list[str]:
        return self.place.values()


def commit(place: Place, values: Sequence[str], **changes: Any) -> Epoch:
    expected = place.sink().position()
    first = expected.offsets[TopicPartition("t", 0)] if expected else 0
    epoch, sink = place.epoch(first + len(values)), place.sink(**changes)
    sink.commit(epoch, sink.prepare(epoch, place.rows(values, first)))
    return epoch


def test_a_message_has_the_rows_key_its_columns_and_where_it_came_from(place: Place) -> None:
    sink, epoch = place.sink(), place.epoch(9)
    rows = place.spark.createDataFrame(
        [("a", 1.5, None, "t", 1, 7, NOW), (None, 2.0, NOW, "t", 0, 8, NOW)],
        "k STRING, n DOUBLE, at TIMESTAMP, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP",
    )
    sink.commit(epoch, sink.prepare(epoch, rows))
    found = {each.key: (json.loads(each.value), each.headers) for each in place.read()}
    assert found == {
        b"a": ({"k": "a", "n": 1.5, "at": None}, [("lakelock", b"t-1@7")]),
        None: ({"k": None, "n": 2.0, "at": "2026-01-01T00:00:00.000000Z"}, [("lakelock", b"t-0@8")]),
    }


@pytest.mark.parametrize(
    ("key", "expected"), [([], None), (["n"], b"5"), (["k", "n"], b'{"k":"a","n":5}'), (["s"], b'{"x":null}')]
)
def test_keys_of_no_column_of_one_and_of_several(key: list[str], expected: bytes | None, place: Place) -> None:
    sink, epoch = place.sink(key=key), place.epoch(1)
    rows = place.rows("a").selectExpr("*", "5 AS n", "named_struct('x', CAST(NULL AS INT)) AS s")
    sink.commit(epoch, sink.prepare(epoch, rows))
    assert [each.key for each in place.read()] == [expected]


@pytest.mark.breadth
@pytest.mark.parametrize(("at", "key"), [("00:30:00", b"00:30:00"), ("01:30:00.25", b"01:30:00.25")])
def test_two_instants_have_two_keys_in_the_hour_that_clocks_show_twice(at: str, key: bytes, place: Place) -> None:
    sink, epoch = place.sink(key=["at"]), place.epoch(1)
    with with_settings(place.spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        rows = place.rows("a").selectExpr("*", f"TIMESTAMP'2026-10-25T{at}Z' AS at")
        prepared = sink.prepare(epoch, rows)
    sink.commit(epoch, prepared)
    assert [each.key for each in place.read()] == [b"2026-10-25 " + key]


def test_a_key_that_the_rows_dont_have_is_refused(place: Place) -> None:
    with pytest.raises(SchemaMismatch, match="'id'"):
        place.sink(key=["id"]).prepare(place.epoch(1), place.rows("a"))


@pytest.mark.breadth
def test_rows_of_one_key_come_in_the_order_of_their_offsets_over_portions_and_epochs(place: Place) -> None:
    for end in (3000, 6000):
        epoch, sink = place.epoch(end), place.sink(batch=700)
        rows = place.spark.range(end - 3000, end).selectExpr(
            "CAST(id % 7 AS STRING) AS k", "'t' AS _topic", "0 AS _partition", "id AS _offset", "now() AS _timestamp"
        )
        sink.commit(epoch, sink.prepare(epoch, rows.repartition(5)))
    by_key: dict[bytes, list[int]] = {}
    for each in place.read():
        by_key.setdefault(each.key, []).append(int(each.headers[0][1].split(b"@")[1]))
    assert sorted(offset for offsets in by_key.values() for offset in offsets) == list(range(6000))
    assert all(offsets == sorted(offsets) for offsets in by_key.values())


def test_a_message_that_is_too_large_is_refused_before_anything_is_decided(make_place: Any) -> None:
    place = make_place(**{"max.message.bytes": "2000"})
    with pytest.raises(SinkError, match=r"t-0, offset 1, .* takes 2000") as caught:
        place.sink().prepare(place.epoch(2), place.rows(["a", "b" * 1800]))
    assert "max.message.bytes" in caught.value.hint
    with pytest.raises(SinkError, match="takes 1000"):
        place.sink(kafka={"max.request.size": "1000"}).prepare(place.epoch(2), place.rows(["b" * 900]))


def test_small_messages_go_into_a_topic_that_takes_only_small_batches(make_place: Any) -> None:
    place = make_place(**{"max.message.bytes": "2000"})
    commit(place, [f"{number:0200}" for number in range(100)])
    assert len(place.read()) == 100


def test_the_largest_message_that_is_let_through_is_taken(make_place: Any) -> None:
    place = make_place(**{"max.message.bytes": "2000"})
    sink, epoch = place.sink(key=[]), place.epoch(1)
    letters = 2000 - OVERHEAD - len("t") - len('{"k":""}')
    with pytest.raises(SinkError, match="takes 2000"):
        sink.prepare(epoch, place.rows(["b" * (letters + 1)]))
    sink.commit(epoch, sink.prepare(epoch, place.rows(["b" * letters])))
    assert len(place.read()) == 1


def test_a_topic_that_isnt_there_is_told_in_prepare(place: Place) -> None:
    sink = KafkaTopic(
        "nowhere", Staging(place.spark, str(place.folder)), pipeline="p", group=place.group, kafka=place.kafka
    )
    with pytest.raises(TopicMissing, match="nowhere"):
        sink.prepare(place.epoch(1), place.rows("a"))
    sink.close()


def test_a_topic_that_is_read_from_another_cluster_is_told_in_prepare(place: Place) -> None:
    epoch = replace(place.epoch(1), offsets=Offsets({TopicPartition("elsewhere", 0): 1}))
    with pytest.raises(TopicMissing, match="elsewhere") as caught:
        place.sink().prepare(epoch, place.rows("a"))
    assert "one Kafka cluster" in caught.value.hint


def test_a_group_that_something_else_commits_for_is_refused(place: Place) -> None:
    from kafka import KafkaAdminClient
    from kafka.structs import OffsetAndMetadata
    from kafka.structs import TopicPartition as KafkaPartition

    with KafkaAdminClient(bootstrap_servers=place.broker.bootstrap) as admin:
        admin.alter_group_offsets(place.group, {KafkaPartition("t", 0): OffsetAndMetadata(5, "", -1)})
    with pytest.raises(ConfigurationError, match="didn't commit"):
        place.sink().position()


def test_a_group_of_another_pipeline_is_refused(place: Place) -> None:
    commit(place, "a")
    with pytest.raises(ConfigurationError, match="holds the position of pipeline"):
        place.sink(pipeline="other").position()


def test_a_position_that_the_broker_has_forgotten_is_not_taken_for_the_beginning(place: Place) -> None:
    from kafka import KafkaAdminClient

    commit(place, "ab")
    epoch, sink = place.epoch(3), place.sink()
    prepared = sink.prepare(epoch, place.rows("c", 2))
    with KafkaAdminClient(bootstrap_servers=place.broker.bootstrap) as admin:
        admin.delete_groups([place.group])
    with pytest.raises(PositionMismatch, match="found no position") as caught:
        sink.commit(epoch, prepared)
    assert "offsets.retention.minutes" in caught.value.hint
    assert place.values() == ["a", "b"]


@pytest.mark.breadth
def test_a_forgotten_position_is_found_again_and_every_message_is_there_once(place: Place) -> None:
    """As after a standstill of a week, and after a source topic that is no longer read was deleted."""
    from kafka import KafkaAdminClient

    retired = f"retired-{uuid.uuid4().hex[:8]}"
    place.broker.create_topic(retired, 1)
    first, sink = replace(place.epoch(2), offsets=Offsets({AT: 2, TopicPartition(retired, 0): 7})), place.sink()
    reads = sink.commit(first, sink.prepare(first, place.rows("ab"))).reads
    second = replace(first, number=2, expected=first.position(), ranges=(OffsetRange("t", 0, 2, 3),),
                     offsets=Offsets({**first.offsets, AT: 3}))  # fmt: skip
    prepared = sink.prepare(second, place.rows("c", 2))
    with KafkaAdminClient(bootstrap_servers=place.broker.bootstrap) as admin:
        admin.delete_groups([place.group])
        assert place.sink().remind(first, reads, done=True).holds(first)
        admin.delete_topics([retired])
        wait_until(lambda: place.sink().position().offsets == Offsets({AT: 2}), what="the group without the topic")
        admin.delete_groups([place.group])
        assert place.sink().remind(second, reads, done=False).holds(first), "it was never sent"
        place.sink().commit(second, prepared)
        assert place.sink().position().holds(second)
        admin.delete_groups([place.group])
        assert place.sink().remind(second, reads, done=False).holds(second), "it was sent"
        assert place.values() == ["a", "b", "c"]

        admin.delete_topics([place.topic])
        wait_until(lambda: place.topic not in admin.list_topics(), what="the topic's end")
        place.broker.create_topic(place.topic, 3)
        with pytest.raises(TableReplaced, match="was deleted"):
            place.sink().position()
        with pytest.raises(TableReplaced, match="was deleted"):
            place.sink().remind(second, reads, done=True)
        accepting = place.sink()
        assert accepting.accept()
        third = Epoch.of_no_records(second.position(), pipeline=place.pipeline, owner="run-1")
        third = replace(third, attempt=3)
        accepting.commit(third, accepting.prepare(third, place.rows("").limit(0)))
        assert place.sink().position().holds(third)


@pytest.mark.breadth
def test_the_ends_include_all_that_is_committed(place: Place) -> None:
    sink = place.sink()
    assert sum(sink.ends().values()) == 0
    for _ in range(3):
        commit(place, "abcdef")
        ends = sink.ends()
        assert sum(each.offset < ends[TopicPartition(place.topic, each.partition)] for each in place.read()) == len(
            place.read()
        )
    assert len(place.read()) == 18


CHILD = """
    import sys
    from datetime import datetime, timezone
    from sinks.topic.transaction import Transaction, Message, producer_options
    from kafka.structs import OffsetAndMetadata, TopicPartition
    servers, pipeline, topic, group, step = sys.argv[1:]
    transaction = Transaction(pipeline, producer_options({"bootstrap.servers": servers}))
    transaction.begin()
    messages = (Message(b"a", b'{"k": "a"}', ("lakelock", b"t-0@%d" % n)) for n in range(10_000_000))
    if step == "sending":
        class Told:
            def __iter__(self):
                for number, message in enumerate(messages):
                    if number == 5_000:
                        print("ready", flush=True)
                    yield message
        transaction.send(topic, Told(), 1_000)
    transaction.send(topic, [next(messages)], 10)
    mark = '{"lakelock":1,"pipeline":"%s","epoch":1,"owner":"run-1"}' % pipeline
    transaction.put_offsets({TopicPartition("t", 0): OffsetAndMetadata(2, mark, -1)}, group)
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.breadth
@pytest.mark.parametrize("step", ["sending", "offsets sent"])
def test_a_process_killed_in_its_transaction_leaves_nothing_to_be_seen(step: str, place: Place) -> None:
    epoch, sink = place.epoch(2), place.sink()
    prepared = sink.prepare(epoch, place.rows("ab"))
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), place.broker.bootstrap, place.pipeline, place.topic,
         place.group, step],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert child.stdin is not None
    child.stdin.close()
    assert place.values() == []
    assert place.sink().position() is None, "an open transaction is no position, and isn't waited for"
    assert not place.sink().commit(epoch, prepared).already
    assert place.values() == ["a", "b"]
    assert place.sink().commit(epoch, prepared).already


def test_a_zombie_fenced_between_sending_and_committing_writes_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch, zombie = place.epoch(2), place.sink()
    prepared = zombie.prepare(epoch, place.rows("ab"))
    real, others = Transaction.put_offsets, []

    def overtaken(self: Transaction, *arguments: Any) -> None:
        monkeypatch.setattr(Transaction, "put_offsets", real)
        others.append(place.sink().commit(epoch, prepared))
        real(self, *arguments)

    monkeypatch.setattr(Transaction, "put_offsets", overtaken)
    assert zombie.commit(epoch, prepared).already
    assert not others[0].already
    assert place.values() == ["a", "b"]
    assert len(place.read("read_uncommitted")) == 4, "the zombie's were sent, and aborted"


def test_a_zombie_fenced_before_its_last_step_writes_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    epoch, zombie = place.epoch(2), place.sink()
    prepared = zombie.prepare(epoch, place.rows("ab"))
    real = Transaction.commit

    def overtaken(self: Transaction) -> None:
        monkeypatch.setattr(Transaction, "commit", real)
        place.sink().commit(epoch, prepared)
        commit(place, "c")
        real(self)

    monkeypatch.setattr(Transaction, "commit", overtaken)
    with pytest.raises(Fenced, match="has committed epoch 2"):
        zombie.commit(epoch, prepared)
    assert place.values() == ["a", "b", "c"]


@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_whose_answer_was_lost_is_found_by_asking(
    landed: bool, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka.errors import KafkaTimeoutError

    epoch, sink = place.epoch(2), place.sink()
    prepared = sink.prepare(epoch, place.rows("ab"))
    real = Transaction.commit

    def lost(self: Transaction) -> None:
        monkeypatch.setattr(Transaction, "commit", real)
        if landed:
            real(self)
        raise KafkaTimeoutError("lost")

    monkeypatch.setattr(Transaction, "commit", lost)
    committed = sink.commit(epoch, prepared)
    assert (committed.already, committed.rows) == (False, 2)
    assert place.values() == ["a", "b"]
    assert len(place.read("read_uncommitted")) == (2 if landed else 4)


@pytest.mark.breadth
@pytest.mark.parametrize("api_key", [26, 22, 0, 25, 28], ids=["EndTxn", "InitProducerId", "Produce", "Add", "Offsets"])
def test_an_answer_lost_on_its_way_loses_and_doubles_nothing(api_key: int, place: Place) -> None:
    with place.broker.proxy() as proxy:
        sink, epoch = place.sink(kafka={"bootstrap.servers": proxy.bootstrap}), place.epoch(2)
        prepared = sink.prepare(epoch, place.rows("ab"))
        with proxy.drop_response(api_key) as lost:
            sink.commit(epoch, prepared)
            assert lost.wait(0)
    assert place.values() == ["a", "b"]
    assert place.sink().commit(epoch, prepared).already


def test_what_the_broker_will_refuse_in_commit_is_told_in_prepare(place: Place) -> None:
    sink = place.sink(kafka={"transaction.timeout.ms": "999999999"})
    with pytest.raises(SinkError, match="refuses"):
        sink.prepare(place.epoch(1), place.rows("a"))


def test_a_client_that_says_it_has_committed_and_hasnt_is_not_believed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch, sink = place.epoch(2), place.sink()
    prepared = sink.prepare(epoch, place.rows("ab"))
    monkeypatch.setattr(Transaction, "commit", lambda self: self._producer.abort_transaction())
    with pytest.raises(SinkError, match="reported as successful"):
        sink.commit(epoch, prepared)
    assert place.values() == []


@pytest.mark.breadth
def test_an_outcome_that_nobody_can_be_asked_about_is_unknown(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with place.broker.proxy() as proxy:
        sink = place.sink(
            kafka={
                "bootstrap.servers": proxy.bootstrap, "bootstrap.timeout.ms": "1000", "request.timeout.ms": "1000",
                "delivery.timeout.ms": "2000", "max.block.ms": "1000",
            }
        )  # fmt: skip
        epoch = place.epoch(2)
        prepared = sink.prepare(epoch, place.rows("ab"))
        real = Transaction.commit

        def cut(self: Transaction) -> None:
            monkeypatch.setattr(Transaction, "commit", real)
            proxy.close()
            real(self)

        monkeypatch.setattr(Transaction, "commit", cut)
        with pytest.raises(CommitUnknown):
            sink.commit(epoch, prepared)
    committed = place.sink().commit(epoch, prepared)
    assert committed.position.epoch == 1
    assert place.values() == ["a", "b"]


@pytest.mark.breadth
def test_two_processes_in_the_middle_of_one_large_epoch_commit_it_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = place.epoch(3_000)
    rows = place.spark.range(3_000).selectExpr(
        "CAST(id AS STRING) AS k", "'t' AS _topic", "0 AS _partition", "id AS _offset", "now() AS _timestamp"
    )
    prepared = place.sink().prepare(epoch, rows)
    outcomes: list[Any] = []
    real, half_sent = Transaction._acknowledged, threading.Event()

    def acknowledged(self: Transaction, futures: Any) -> None:
        real(self, futures)
        half_sent.set()

    def run(sink: KafkaTopic) -> None:
        with contextlib.suppress(SinkError):
            outcomes.append(sink.commit(epoch, prepared))

    monkeypatch.setattr(Transaction, "_acknowledged", acknowledged)
    first, second = (threading.Thread(target=run, args=(place.sink(batch=500),)) for _ in range(2))
    first.start()
    assert half_sent.wait(60)
    second.start()
    for each in (first, second):
        each.join()
    assert len(outcomes) == 2
    assert len(place.values()) == 3_000


@pytest.mark.breadth
def test_a_log_of_the_epoch_is_all_that_another_process_needs(place: Place) -> None:
    epoch, sink = place.epoch(2), place.sink()
    logged = sink.prepare(epoch, place.rows("ab"))
    receipt = json.loads(json.dumps(dict(logged.receipt)))
    assert place.sink().commit(epoch, Prepared(logged.rows, logged.checksum, receipt)).rows == 2
