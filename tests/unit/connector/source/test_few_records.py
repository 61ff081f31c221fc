"""A sample of records only informs: it never decides whether a run goes on."""

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import (
    CorruptRecordError,
    KafkaError,
    NodeNotReadyError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)

from connector.config import Source as Options
from connector.source import few_records
from connector.source.topics import KafkaSource
from sinks.errors import BrokerUnreachable, NotAuthorized, SourceError
from sinks.offsets import OffsetRange

RANGES = [OffsetRange("t", 0, 0, 10)]


class Consumer:
    """Its first poll raises ``fails``, and none may follow that."""

    def __init__(self, fails: Exception | None) -> None:
        self.fails, self.closed, self.raised = fails, False, False

    def assign(self, *_: Any) -> None: ...
    def seek(self, *_: Any) -> None: ...
    def unsubscribe(self) -> None: ...

    def position(self, _: Any) -> int:
        return 0

    def poll(self, timeout_ms: int) -> Any:
        assert not self.raised, "kafka-python may never come back from this"
        if self.fails is not None:
            self.raised = True
            raise self.fails
        return {("t", 0): [SimpleNamespace(offset=0, value=b"{}")]}

    def close(self, autocommit: bool) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (CorruptRecordError(), None),
        (OffsetOutOfRangeError(), None),
        (NodeNotReadyError(), BrokerUnreachable),
        (TopicAuthorizationFailedError(), NotAuthorized),
    ],
)
def test_records_that_the_client_cannot_read_are_missing_in_a_sample_and_the_client_is_not_used_again(
    error: KafkaError, raised: type[SourceError] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Consumer] = []

    def consumer(**_: Any) -> Consumer:
        made.append(Consumer(None if made else error))
        return made[-1]

    monkeypatch.setattr(few_records, "KafkaConsumer", consumer)
    monkeypatch.setattr(few_records, "client_options", lambda *_: {})
    source = KafkaSource(Options.model_validate({"topics": ["t"], "kafka": {"bootstrap.servers": "b:9092"}}))
    if raised is None:
        assert source.sample(RANGES) == []
    else:
        with pytest.raises(raised):
            source.sample(RANGES)
    assert [record.value for record in source.sample(RANGES)] == [b"{}"]
    assert [each.closed for each in made] == [True, False]
