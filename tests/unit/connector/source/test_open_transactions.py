"""Since when a transaction is open is a figure of a look: a look without it is right all the same."""

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import CorruptRecordError, KafkaConnectionError, KafkaError, TopicAuthorizationFailedError

from connector.config import Source as Options
from connector.source import few_records
from connector.source.topics import KafkaSource
from sinks.event_time import time_at
from sinks.kafka.leaders import End
from sinks.offsets import TopicPartition

AT = TopicPartition("t", 0)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("error", [KafkaConnectionError(), TopicAuthorizationFailedError(), CorruptRecordError()])
def test_a_look_that_may_not_read_the_first_record_of_a_transaction_goes_without_its_time(
    error: KafkaError, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[object] = []
    fails: list[KafkaError] = [error]

    def poll(timeout_ms: int) -> Any:
        if fails:
            raise fails.pop()
        return {("t", 0): [SimpleNamespace(timestamp=5000)]}

    def consumer(**_: Any) -> Any:
        if at_once and fails:
            raise fails.pop()
        return SimpleNamespace(
            assign=len,
            seek=lambda *_: None,
            unsubscribe=lambda: None,
            poll=poll,
            position=lambda _: 7,
            close=lambda autocommit: closed.append(1),
        )

    described = {"name": "t", "error_code": 0, "topic_id": "id", "partitions": []}
    monkeypatch.setattr(KafkaSource, "_admin", SimpleNamespace(describe_topics=lambda _: [described]))
    monkeypatch.setattr("connector.source.topics.log_ends", lambda *_: {AT: End(7, 2, 1)})
    monkeypatch.setattr("connector.source.topics.log_beginnings", lambda *_: {AT: 0})
    monkeypatch.setattr(few_records, "KafkaConsumer", consumer)
    monkeypatch.setattr(few_records, "client_options", lambda *_: {})
    source = KafkaSource(Options.model_validate({"topics": ["t"], "kafka": {"bootstrap.servers": "b:9092"}}))
    held = source.look()
    assert (held.held_back[AT].since, held.complete_to(None), len(closed)) == (None, None, 0 if at_once else 1)
    assert source.look().held_back[AT].since == time_at(5_000_000)
