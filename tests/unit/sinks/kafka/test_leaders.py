"""Where a leader's records end is asked of a broker that knows the newest leader (KIP-320)."""

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import FencedLeaderEpochError, UnknownLeaderEpochError

from connector.config import Source as Options
from connector.source.topics import KafkaSource
from sinks.kafka.leaders import End, ends_of_leaders
from sinks.offsets import TopicPartition

AT = TopicPartition("t", 0)


class Manager:
    """Brokers by their id: the leader epoch that each believes to be the current one, and where it says that epoch 1
    ends."""

    def __init__(self, brokers: dict[int, tuple[int, int]]) -> None:
        self.brokers = brokers
        self.asked: list[tuple[int, int]] = []

    def run(self, _: Any, broker: int, request: Any) -> Any:
        epoch, end = self.brokers[broker]
        (topic,) = request.topics
        (part,) = topic.partitions
        self.asked.append((broker, part.current_leader_epoch))
        given = part.current_leader_epoch
        error = 0
        if given >= 0 and given != epoch:
            error = UnknownLeaderEpochError.errno if given > epoch else FencedLeaderEpochError.errno
        answer = SimpleNamespace(partition=0, error_code=error, end_offset=end)
        return SimpleNamespace(topics=[SimpleNamespace(topic="t", partitions=[answer])])


@pytest.mark.parametrize(
    ("believed", "asked"), [(2, [2]), (3, [2, -1])], ids=["the leader of the look", "the leader has changed once more"]
)
def test_a_clean_failover_is_answered(believed: int, asked: list[int]) -> None:
    manager = Manager({7: (believed, 200)})
    admin: Any = SimpleNamespace(_manager=manager)
    assert ends_of_leaders(admin, {AT: 1}, {AT: 7}, {AT: 2}) == {AT: 200}
    assert manager.asked == [(7, each) for each in asked]


def test_a_leader_that_does_not_know_yet_that_it_was_replaced_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broker 7 still leads by its own metadata, with a log that isn't cut. Broker 8 has answered the look."""
    manager = Manager({7: (1, 200), 8: (2, 150)})
    told = [7, 7, 8]  # by which metadata the look goes, then the first and the second question

    def describe_topics(_: Any) -> Any:
        part = {"partition_index": 0, "leader_id": told.pop(0)}
        return [{"name": "t", "error_code": 0, "topic_id": "id", "partitions": [part]}]

    monkeypatch.setattr(KafkaSource, "_admin", SimpleNamespace(describe_topics=describe_topics, _manager=manager))
    monkeypatch.setattr("connector.source.topics.log_ends", lambda *_: {AT: End(400, 0, 2)})
    monkeypatch.setattr("connector.source.topics.log_beginnings", lambda *_: {AT: 0})
    source = KafkaSource(Options.model_validate({"topics": ["t"], "kafka": {"bootstrap.servers": "b:9092"}}))
    assert source.look().ends_of({AT: 1}) == {AT: 150}
    assert manager.asked == [(7, 2), (8, 2)]
