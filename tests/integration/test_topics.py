"""Topics as they are: found by a pattern, with open transactions, compacted, on a broker that goes away."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone

import pytest
from conftest import Lake, Topic, wait_until
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition

from connector.audit import audit
from connector.audit.verdict import Verdict
from connector.config import parse
from connector.config.source import Source
from connector.lab.bench.broker import Broker
from connector.protocol.steps import Event, Step
from connector.source.topics import KafkaSource
from sinks.errors import OffsetsLost, TopicMissing, TopicRecreated
from sinks.offsets import OffsetRange


def some(first: int, count: int, keys: int = 3) -> list[tuple[str, int]]:
    return [(f"k{number % keys}", number) for number in range(first, first + count)]


@pytest.mark.breadth
def test_topics_that_match_a_pattern_come_and_go(lake: Lake, topic: Topic) -> None:
    broker = topic.broker
    first, second, other = (Topic(broker, f"{topic.name}.{name}") for name in ("a", "b", "other"))
    pattern = {"topics": f"{topic.name}[.](a|b)", "start": "latest"}
    with pytest.raises(TopicMissing, match="No topic in Kafka"):
        lake.pipeline(source=pattern).run()
    for each in (first, other):
        broker.create_topic(each.name, 1)
        each.send_rows(some(0, 3))
    pipeline = lake.pipeline(source=pattern)
    pipeline.run()
    broker.create_topic(second.name, 2)
    for each in (first, second, other):
        each.send_rows(some(10, 3))
    pipeline.run()
    # What was there at first is before `latest`; what is in a topic that appears came after.
    assert lake.rows() == sorted(some(10, 3) * 2)
    broker.delete_topic(first.name)
    second.send_rows(some(20, 1))
    pipeline.run()
    assert lake.rows() == sorted(some(10, 3) * 2 + some(20, 1))
    stored = lake.metadata()[-1]
    assert stored["offsets"][first.name] == {"0": 6}
    assert stored["topics"].keys() == {first.name, second.name}
    assert pipeline.status().lag.keys() == pipeline.check().next_offsets.keys()
    # No run has seen its end since: there may have been more.
    assert stored["gone"].keys() == {first.name}
    assert stored["gone"][first.name] == lake.metadata()[-2]["read_to"]
    found = audit(parse(lake.options(source=pattern)))
    assert found.verdict is Verdict.UNKNOWN
    assert f"{first.name} (after " in str(found)
    assert audit(parse(lake.options(source={**pattern, "topics": f"{topic.name}[.]b"}))).ok
    broker.create_topic(first.name, 1)
    with pytest.raises(TopicRecreated):
        pipeline.run()


@pytest.mark.breadth
def test_a_topic_that_is_deleted_after_a_run_has_seen_its_end_leaves_no_doubt(lake: Lake, topic: Topic) -> None:
    broker, stop = topic.broker, threading.Event()
    day, next_day = (Topic(broker, f"{topic.name}.{name}") for name in ("27", "28"))
    for number, each in enumerate((day, next_day)):
        broker.create_topic(each.name, 1)
        each.send_rows(some(10 * number, 3))
    rounds = iter([lambda: broker.delete_topic(day.name)])

    def observe(event: Event) -> None:
        if event.step is Step.WAITING:
            next(rounds, lambda: None)()
        if event.step is Step.COMMITTED and event.epoch.gone:
            stop.set()

    source = {"topics": f"{topic.name}[.]2."}
    lake.pipeline(source=source, trigger={"interval": "100 milliseconds"}).run(stop=stop, observers=[observe])
    assert lake.metadata()[-1]["gone"] == {day.name: None}
    assert audit(parse(lake.options(source=source))).ok
    assert lake.pipeline(source=source).run().epochs == 0


@pytest.mark.breadth
def test_an_open_transaction_ends_what_can_be_read_and_is_not_waited_for(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 2), partition=0)
    producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap, transactional_id=f"open-{topic.name}")
    producer.init_transactions()
    producer.begin_transaction()
    for key, number in some(2, 2):
        producer.send(topic.name, json.dumps({"k": key, "n": number}).encode(), partition=0)
    producer.flush()
    topic.send_rows(some(4, 2), partition=0)
    topic.send_rows(some(10, 2), partition=1)
    pipeline = lake.pipeline()
    assert pipeline.run().rows == 4
    assert lake.rows() == sorted(some(0, 2) + some(10, 2))
    assert pipeline.run().epochs == 0
    waits = pipeline.status()
    ((at, back),) = waits.held.held_back.items()
    assert (at.partition, back.offsets, sum(waits.lag.values())) == (0, 4, 4)
    assert waits.position is not None
    assert waits.position.read_to == back.since
    assert "t-0: a transaction is open since" in str(waits).replace(topic.name, "t")
    producer.commit_transaction()
    producer.close()
    assert pipeline.run().rows == 4
    done = pipeline.status()
    assert done.position is not None
    assert done.position.read_to is not None
    assert back.since is not None
    assert done.position.read_to > back.since
    assert (sum(done.lag.values()), done.held.held_back) == (0, {})
    assert lake.rows() == sorted(some(0, 6) + some(10, 2))


@pytest.mark.breadth
def test_an_epoch_is_bounded_by_bytes(lake: Lake, topic: Topic) -> None:
    topic.send(*(("k", {"k": "x" * 980, "n": n}) for n in range(20)), partition=0)
    topic.send(*(("k", {"k": "", "n": n}) for n in range(20)), partition=1)
    sizes: list[int] = []

    def observe(event: Event) -> None:
        if event.step is Step.PLANNED:
            sizes.append(sum(range_.span * (1000 if range_.partition == 0 else 20) for range_ in event.epoch.ranges))

    lake.pipeline(epoch={"max_bytes": 8_000, "target_duration": "1 hour"}).run(observers=[observe])
    assert len(lake.rows()) == 40
    assert len(sizes) == 3
    assert max(sizes) <= 8_400


@pytest.mark.breadth
def test_status_tells_for_how_long_the_next_record_waits(lake: Lake, topic: Topic) -> None:
    long_ago = datetime.now(timezone.utc) - timedelta(hours=1)
    for minute in range(3):
        topic.send_rows([("a", minute)], partition=0, at=long_ago + timedelta(minutes=minute))
    pipeline = lake.pipeline(source={"start": {topic.name: {"0": 1, "1": -1}}})
    before = pipeline.status().lag_seconds
    assert 3600 <= before[TopicPartition(topic.name, 0)] < 3700  # nothing is stored yet: from the oldest record on
    assert before[TopicPartition(topic.name, 1)] == 0
    pipeline.run()
    assert set(pipeline.status().lag_seconds.values()) == {0}


@pytest.fixture(scope="module")
def own() -> Iterator[Broker]:
    """One that may be killed, and whose cleaner doesn't sleep for long."""
    with Broker(properties={"log.cleaner.backoff.ms": "100"}) as broker:
        yield broker


@pytest.mark.breadth
def test_a_compacted_topic_has_gaps_and_no_loss(own: Broker, lake: Lake) -> None:
    compacted = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    own.create_topic("compacted", 1, compacted)
    lake.topic = Topic(own, "compacted")
    lake.topic.send_rows(some(0, 30))
    pipeline = lake.pipeline(epoch={"max_records": 10})
    stop = threading.Event()
    pipeline.run(stop=stop, observers=[lambda event: stop.set() if event.step is Step.COMMITTED else None])
    assert lake.rows() == sorted(some(0, 10))

    def offsets() -> list[int]:
        consumer = KafkaConsumer(bootstrap_servers=own.bootstrap)
        at = TopicPartition("compacted", 0)
        consumer.assign([at])
        consumer.seek(at, 0)
        end, found = consumer.end_offsets([at])[at], []
        while consumer.position(at) < end:
            found += [record.offset for records in consumer.poll(timeout_ms=200).values() for record in records]
        consumer.close()
        return found

    def cleaned() -> bool:
        lake.topic.send_rows([("last", len(offsets()))])  # a segment is closed by what comes after it
        return 28 not in offsets() or offsets()[0] > 20

    wait_until(cleaned, 60, "the cleaner")
    left = offsets()
    assert left[0] > 10  # the stored offset is in a gap
    pipeline.run()
    assert [row[0] for row in lake.sql("SELECT _offset FROM {t} WHERE _offset >= 10 ORDER BY 1")] == left
    assert sum(pipeline.status().lag.values()) == 0
    assert "lost" not in lake.metadata()[-1]


@pytest.mark.breadth
def test_a_delete_that_compaction_took_before_it_was_read_is_never_passed_in_silence(own: Broker, lake: Lake) -> None:
    settings = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    own.create_topic("deleted", 1, {**settings, "delete.retention.ms": "0"})
    topic = lake.topic = Topic(own, "deleted")
    topic.send_rows([("a", 1), ("b", 1)])
    by_key = {"key": {"format": "string"}, "sink": {"key": "_key", "path": str(lake.path("by_key"))}, "name": "by_key"}
    pipelines = [lake.pipeline("upsert"), lake.pipeline("upsert", **by_key)]
    for pipeline in pipelines:
        pipeline.run()
        assert pipeline.run().epochs == 0, "nothing is waiting, so nothing can be missing"
    topic.send(("a", None))

    def left() -> list[str]:
        consumer = KafkaConsumer(bootstrap_servers=own.bootstrap)
        at = TopicPartition("deleted", 0)
        consumer.assign([at])
        consumer.seek(at, 0)
        end, found = consumer.end_offsets([at])[at], []
        while consumer.position(at) < end:
            found += [record.key.decode() for records in consumer.poll(timeout_ms=200).values() for record in records]
        consumer.close()
        return found

    def cleaned() -> bool:
        topic.send_rows([("last", len(left()))])  # a segment is closed by what comes after it
        return "a" not in left()

    wait_until(cleaned, 60, "the cleaner")
    for pipeline in pipelines:
        with pytest.raises(OffsetsLost, match=r"(?s)Deletes since .* may be gone .* deleted-0 \[2, "):
            pipeline.run()
    assert "a" in dict(lake.rows("upsert"))
    past = {"source": {"on_data_loss": "continue"}}
    for again in (lake.pipeline("upsert", **past), lake.pipeline("upsert", **by_key, **past)):
        again.run()
        found = again.verify()
        assert (found.verdict.value, found.tables[0].totals["doubtful"]) == ("unknown", 1), str(found.tables[0])
    assert lake.metadata("upsert")[-1]["missed"][0][:3] == ["deleted", 0, 2]


@pytest.mark.breadth
def test_while_a_compacted_topic_rests_looks_are_committed_now_and_then(own: Broker, lake: Lake) -> None:
    own.create_topic("quiet", 1, {"cleanup.policy": "compact", "delete.retention.ms": "20000"})
    lake.topic = Topic(own, "quiet")
    lake.topic.send_rows([("a", 1), ("b", 1)])
    pipelines = [lake.pipeline("upsert"), lake.pipeline()]
    for pipeline in pipelines:
        pipeline.run()
    time.sleep(11)
    assert [pipeline.run().epochs for pipeline in pipelines] == [1, 0], "an append has no deletes"
    before, after = lake.metadata("upsert")[-2:]
    later = datetime.fromisoformat(after["read_to"]) - datetime.fromisoformat(before["read_to"])
    assert (later > timedelta(seconds=10), after["offsets"]) == (True, before["offsets"])
    assert pipelines[0].verify().ok


@pytest.mark.breadth
def test_a_broker_that_is_killed_and_comes_back_while_it_is_read_costs_time_only(own: Broker, lake: Lake) -> None:
    own.create_topic("restarted", 2)
    lake.topic = Topic(own, "restarted")
    lake.topic.send_rows(some(0, 2000))
    back = threading.Thread(target=own.start)

    def kill(event: Event) -> None:
        if event.step is Step.WRITING and event.epoch.number == 2:
            own.kill()
            back.start()

    # So little at once that nothing of the second epoch was fetched ahead with the first.
    kafka = {"bootstrap.servers": own.bootstrap, "max.partition.fetch.bytes": "1024", "fetch.max.bytes": "1024"}
    lake.pipeline(source={"kafka": kafka}, epoch={"max_records": 700}).run(observers=[kill])
    back.join()
    assert lake.rows() == sorted(some(0, 2000))
    assert [metadata["epoch"] for metadata in lake.metadata()] == [1, 2, 3]


@pytest.mark.breadth
def test_a_broker_that_restarts_is_waited_for(own: Broker, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connector.source.topics.ANSWER_WITHIN_MS", 60_000)  # a start takes longer than usual in tests
    own.create_topic("patience", 1)
    topic = Topic(own, "patience")
    topic.send_rows(some(0, 3))
    with closing(KafkaSource(Lake(lake.folder, topic).pipeline().config.source)) as source:
        source.look()
        own.kill()
        back = threading.Thread(target=own.start)
        back.start()
        assert source.look().ends == {TopicPartition("patience", 0): 3}
        back.join()


def test_a_look_at_later_records_finds_those_of_every_partition_at_once(topic: Topic) -> None:
    for partition in (0, 1):
        topic.send_rows(some(0, 2000), partition=partition)
    kafka = {"bootstrap.servers": topic.broker.bootstrap}
    options = {"topics": [topic.name], "kafka": kafka}
    with closing(KafkaSource(Source.model_validate(options))) as source:
        for start in (*range(0, 2000, 300), 0, 1900):
            began = time.monotonic()
            found = source.sample([OffsetRange(topic.name, partition, start, 2000) for partition in (0, 1)])
            assert {(record.partition, record.offset) for record in found} >= {(0, start), (1, start)}
            assert time.monotonic() - began < 4, "a look gives up after five seconds"
