"""The parts of the topic sink that need neither a broker nor Spark: positions, options, and what an error means."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from kafka.errors import (
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition

from sinks.contract import Epoch, Position, Prepared
from sinks.errors import (
    BrokerUnreachable,
    CommitSkipped,
    CommitUnknown,
    ConfigurationError,
    Fenced,
    PositionMismatch,
    SinkError,
    UnsupportedFormat,
)
from sinks.kafka import refused
from sinks.offsets import Offsets, TopicPartition
from sinks.topic import KafkaTopic
from sinks.topic import sink as module
from sinks.topic.messages import header
from sinks.topic.position import GroupPosition
from sinks.topic.transaction import is_fenced, is_final, max_request_size, producer_options, within

AT = TopicPartition("t", 0)
EPOCH = Epoch(
    pipeline="p", number=3, owner="run-1", ranges=(), offsets=Offsets({AT: 9}), topics={}, read_to=None,
    expected=Position(2, Offsets({AT: 5}), owner="run-0"), attempt=4,
)  # fmt: skip
SERVERS = {"bootstrap.servers": "nowhere:1"}


class Listed:
    """Clients whose admin lists these offsets of every group."""

    def __init__(self, offsets: dict[KafkaPartition, OffsetAndMetadata]) -> None:
        self._offsets = offsets
        self.admin = self

    def ask(self, question: Any) -> Any:
        return question()

    def list_group_offsets(self, groups: dict[str, None]) -> Any:
        return dict.fromkeys(groups, self._offsets)


def held(offsets: dict[KafkaPartition, OffsetAndMetadata], pipeline: str = "p") -> GroupPosition:
    return GroupPosition(Listed(offsets), pipeline=pipeline, group="g")  # type: ignore[arg-type]


def test_a_position_is_read_as_it_was_written() -> None:
    position = held(held({}).to_commit(EPOCH)).now()
    assert position == Position(3, Offsets({AT: 9}), owner="run-1")
    assert held({}).now() is None


def test_offsets_of_a_topic_that_is_no_longer_read_dont_count() -> None:
    older = replace(EPOCH, number=2, offsets=Offsets({AT: 5, TopicPartition("gone", 0): 7}))
    position = held({**held({}).to_commit(older), **held({}).to_commit(EPOCH)}).now()
    assert position is not None
    assert position.offsets == Offsets({AT: 9})


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"lakelock":1}', '{"epoch":1,"owner":"o"}'])
def test_offsets_that_something_else_committed_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="didn't commit"):
        held({KafkaPartition("t", 0): OffsetAndMetadata(5, text, -1)}).now()


def test_offsets_of_another_pipeline_and_of_a_newer_version_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="pipeline 'p'"):
        held(held({}).to_commit(EPOCH), pipeline="q").now()
    newer = '{"lakelock":2,"pipeline":"p","epoch":1,"owner":"o"}'
    with pytest.raises(UnsupportedFormat):
        held({KafkaPartition("t", 0): OffsetAndMetadata(5, newer, -1)}).now()


def test_what_the_guarantee_rests_on_cant_be_set() -> None:
    kafka = {
        **SERVERS, "acks": "1", "retries": "0", "enable.idempotence": "false", "transactional.id": "other",
        "max.in.flight.requests.per.connection": "100", "isolation.level": "read_uncommitted", "group.id": "g",
        "compression.type": "none", "security.protocol": "SSL", "transaction.timeout.ms": "1000",
    }  # fmt: skip
    options = producer_options(kafka)
    assert options["security_protocol"] == "SSL"
    assert options["transaction_timeout_ms"] == 1000
    assert not options["allow_auto_create_topics"]
    refused_options = {"acks", "retries", "enable_idempotence", "transactional_id", "isolation_level", "group_id"}
    assert not options.keys() & (refused_options | {"compression_type", "max_in_flight_requests_per_connection"})


def test_a_transaction_may_take_15_minutes_and_its_batches_fit_the_topic() -> None:
    assert producer_options(SERVERS)["transaction_timeout_ms"] == 900_000
    assert producer_options(SERVERS, 2_000)["batch_size"] == 2_000
    assert producer_options(SERVERS, 2_000_000)["batch_size"] == 131_072
    assert max_request_size(SERVERS) == 1_048_576
    assert max_request_size({**SERVERS, "max.request.size": "5"}) == 5


def test_a_header_says_where_the_record_came_from() -> None:
    assert header("orders", 3, 17) == ("lakelock", b"orders-3@17")


def test_an_error_is_known_by_its_innermost_cause() -> None:
    assert is_fenced(ProducerFencedError())
    assert is_fenced(KafkaError("can't send", InvalidProducerEpochError()))
    assert not is_fenced(KafkaTimeoutError())
    assert is_final(KafkaError("can't send", MessageSizeTooLargeError()))
    assert is_final(TopicAuthorizationFailedError("t"))
    assert not is_final(ProducerFencedError())
    assert not is_final(KafkaTimeoutError())


def test_a_refusal_tells_the_rights_that_are_needed_and_no_more_than_the_errors_name() -> None:
    error = refused(TransactionalIdAuthorizationFailedError("request with a secret"), "nowhere:1")
    assert "secret" not in str(error)
    assert "transactional id" in error.hint


def test_no_call_is_waited_for_longer_than_it_may_take() -> None:
    let_go = threading.Event()
    with pytest.raises(KafkaTimeoutError):
        within(0.01, let_go.wait)
    let_go.set()
    with pytest.raises(ValueError, match="own"):
        within(10, lambda: int("own"))
    within(10, lambda: None)


class Broker:
    """What the sink would ask: a script of positions and of failures, one per try; then all goes well."""

    def __init__(self, *script: tuple[str, Exception]) -> None:
        self.script = list(script)
        self.stands: Position | None = EPOCH.expected
        self.made = 0
        self.loses_commits = False

    def transaction(self, transactional_id: str, options: object) -> Broker:
        assert transactional_id == "p"
        self.made += 1
        self._step("init")
        return self

    def _step(self, name: str) -> None:
        if self.script and self.script[0][0] == name:
            raise self.script.pop(0)[1]

    def begin(self) -> None: ...

    def send(self, topic: str, messages: Any, portion: int) -> None:
        assert list(messages) == []
        self._step("send")

    def put_offsets(self, offsets: Any, group: str) -> None:
        self._step("offsets")

    def commit(self) -> None:
        self._step("commit")
        if not self.loses_commits:
            self.stands = Position(EPOCH.number, EPOCH.offsets, owner=EPOCH.owner)
        self._step("answer")

    def end(self) -> None: ...

    def now(self) -> Position | None:
        return self.stands

    def settled(self, of: Any) -> Position | None:
        self._step("position")
        return self.stands

    def ends(self) -> Offsets:
        return Offsets()

    def to_commit(self, epoch: Epoch) -> Any:
        return {}


PREPARED = Prepared(0, "0", {"parts": "0", "largest": "1000"})


def sink_on(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> KafkaTopic:
    monkeypatch.setattr(module, "Transaction", broker.transaction)
    monkeypatch.setattr(module, "settle", lambda *_: None)
    monkeypatch.setattr(module, "random", type("NoWait", (), {"uniform": staticmethod(lambda *_: 0.001)}))
    sink = KafkaTopic("out", None, pipeline="p", group="g", kafka=SERVERS)  # type: ignore[arg-type]
    sink._offsets = broker  # type: ignore[assignment]
    sink._target = broker  # type: ignore[assignment]
    return sink


@pytest.mark.parametrize("step", ["init", "send", "offsets", "commit", "answer"])
def test_a_producer_that_was_fenced_at_any_step_is_made_again(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker((step, ProducerFencedError()))
    committed = sink_on(broker, monkeypatch).commit(EPOCH, PREPARED)
    assert not committed.already
    assert broker.stands == Position(3, Offsets({AT: 9}), owner="run-1")
    assert broker.made == (1 if step == "answer" else 2)


def test_an_epoch_that_another_process_committed_meanwhile_is_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(("send", ProducerFencedError()))
    sink = sink_on(broker, monkeypatch)
    real = broker.send

    def overtaken(*arguments: Any) -> None:
        broker.stands = Position(3, EPOCH.offsets, owner="run-1")
        real(*arguments)

    monkeypatch.setattr(broker, "send", overtaken)
    assert sink.commit(EPOCH, PREPARED).already


@pytest.mark.parametrize("step", ["init", "position"])
def test_unreachable_before_a_commit_was_asked_for_nothing_is_in_doubt(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = BrokerUnreachable("x") if step == "position" else KafkaTimeoutError()
    with pytest.raises(BrokerUnreachable):
        sink_on(Broker((step, error)), monkeypatch).commit(EPOCH, PREPARED)


@pytest.mark.parametrize("then", [("init", KafkaTimeoutError()), ("position", BrokerUnreachable("x"))])
def test_unreachable_after_it_the_outcome_is_unknown(
    then: tuple[str, Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(("commit", KafkaTimeoutError()), then)
    with pytest.raises(CommitUnknown):
        sink_on(broker, monkeypatch).commit(EPOCH, PREPARED)


def test_a_producer_that_is_fenced_each_time_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(*[("send", ProducerFencedError())] * 100)
    with pytest.raises(CommitUnknown, match="in 5 attempts"):
        sink_on(broker, monkeypatch).commit(EPOCH, PREPARED)
    assert broker.made == module.TRIES


def test_what_trying_again_cant_help_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(("offsets", TopicAuthorizationFailedError("t")))
    with pytest.raises(SinkError, match="refuses"):
        sink_on(broker, monkeypatch).commit(EPOCH, PREPARED)
    assert broker.made == 1


def test_a_commit_that_isnt_found_afterwards_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    broker.loses_commits = True
    with pytest.raises(CommitSkipped):
        sink_on(broker, monkeypatch).commit(EPOCH, PREPARED)


@pytest.mark.parametrize(
    ("found", "error"),
    [
        (Position(3, Offsets({AT: 9}), owner="other"), Fenced),
        (Position(7, Offsets({AT: 99}), owner="other"), Fenced),
        (Position(4, Offsets({AT: 12}), owner="run-1"), Fenced),
        (Position(2, Offsets({AT: 6}), owner="run-0"), PositionMismatch),
        (Position(1, Offsets({AT: 5}), owner="run-0"), PositionMismatch),
        (None, PositionMismatch),
    ],
)
def test_another_position_than_the_expected_one_is_not_committed_upon(
    found: Position | None, error: type[SinkError], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    broker.stands = found
    with pytest.raises(error):
        sink_on(broker, monkeypatch).commit(EPOCH, PREPARED)
    assert broker.stands == found
