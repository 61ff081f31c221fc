"""Records behind a transaction that hasn't ended: nobody may read them, and nobody calls a table complete."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timezone

from conftest import Lake, Topic
from kafka import KafkaProducer

from connector.source.topics import KafkaSource


def test_what_an_open_transaction_holds_back_is_behind_and_the_table_is_not_complete(lake: Lake, topic: Topic) -> None:
    pipeline = lake.pipeline()
    topic.send_rows([("a", 1)])
    pipeline.run()
    settled = pipeline.status()
    assert settled.position is not None
    assert settled.position.read_to is not None
    producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap, transactional_id=f"open-{topic.name}")
    producer.init_transactions()
    producer.begin_transaction()
    began = datetime.now(timezone.utc)
    producer.send(topic.name, b'{"k": "b", "n": 2}', partition=0).get(30)
    topic.send(("c", {"k": "c", "n": 3}), ("d", {"k": "d", "n": 4}), partition=0)
    topic.send(("e", {"k": "e", "n": 5}), partition=1)
    with closing(KafkaSource(pipeline.config.source)) as source:
        ((at, back),) = source.look().held_back.items()
    assert (at.partition, back.offsets) == (0, 3)
    assert back.since is not None
    assert abs((back.since - began).total_seconds()) < 5
    report = pipeline.run()
    assert (report.rows, report.behind) == (1, 3)
    waits = pipeline.status()
    assert waits.position is not None
    assert waits.position.read_to == back.since
    assert sum(waits.lag.values()) == 3
    assert "a transaction is open since" in str(waits)
    producer.commit_transaction()
    producer.close()
    assert pipeline.run().rows == 3
    done = pipeline.status()
    assert done.position is not None
    assert done.position.read_to is not None
    assert done.position.read_to > back.since
    assert (sum(done.lag.values()), done.held.held_back) == (0, {})
