"""The parts of the topic sink that need neither a broker nor Spark: positions, options, and what an error means."""

from __future__ import annotations

import json
import threading
import uuid
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
    TableReplaced,
    TopicMissing,
    UnsupportedFormat,
)
from sinks.kafka import refused
from sinks.offsets import OffsetRange, Offsets, TopicPartition
from sinks.topic import KafkaTopic
from sinks.topic import sink as module
from sinks.topic.messages import HEADER, header
from sinks.topic.position import GroupPosition
from sinks.topic.sent import is_of
from sinks.topic.target import Target
from sinks.topic.transaction import is_fenced, is_final, max_request_size, producer_options, within

AT = TopicPartition("t", 0)
EPOCH = Epoch(
    pipeline="p", number=3, owner="run-1", ranges=(), offsets=Offsets({AT: 9}), topics={}, read_to=None,
    expected=Position(2, Offsets({AT: 5}), owner="run-0"), attempt=4,
)  # fmt: skip
SERVERS = {"bootstrap.servers": "nowhere:1"}


class Listed:
    """Clients whose admin lists these offsets of every group, and which knows these topics, with their ids."""

    servers = "nowhere:1"

    def __init__(self, offsets: dict[KafkaPartition, OffsetAndMetadata], topics: dict[str, int]) -> None:
        self._offsets = offsets
        self._topics = topics
        self.admin = self.consumer = self

    def describe_topics(self, names: list[str]) -> Any:
        return [
            {
                "name": name,
                "error_code": 0,
                "topic_id": uuid.UUID(int=self._topics[name]),
                "partitions": [{"partition_index": 0}],
            }
            if name in self._topics
            else {"name": name, "error_code": 3, "topic_id": None, "partitions": []}
            for name in names
        ]

    def committed(self, at: KafkaPartition, timeout_ms: int) -> None:
        assert at.partition == 0, "the broker answers that there is no such partition, and the client asks for ever"

    def ask(self, question: Any) -> Any:
        return question()

    def list_group_offsets(self, groups: dict[str, None]) -> Any:
        return dict.fromkeys(groups, self._offsets)


TOPICS = {"t": 1, "gone": 2, "out": 3}


def held(
    offsets: dict[KafkaPartition, OffsetAndMetadata], pipeline: str = "p", topics: dict[str, int] = TOPICS
) -> GroupPosition:
    return GroupPosition(Listed(offsets, topics), pipeline=pipeline, group="g", target="out")  # type: ignore[arg-type]


def test_a_position_is_read_as_it_was_written() -> None:
    position = held(held({}).to_commit(EPOCH)).now()
    assert position == Position(3, Offsets({AT: 9}), owner="run-1")
    assert held({}).now() is None


def test_offsets_of_a_topic_that_is_no_longer_read_dont_count() -> None:
    older = replace(EPOCH, number=2, offsets=Offsets({AT: 5, TopicPartition("gone", 0): 7}))
    position = held({**held({}).to_commit(older), **held({}).to_commit(EPOCH)}).now()
    assert position is not None
    assert position.offsets == Offsets({AT: 9})


def test_offsets_of_a_deleted_topic_are_gone_and_the_others_say_where_the_sink_is() -> None:
    """Kafka removes a deleted topic's offsets from every group, and takes none for it."""
    two = replace(EPOCH, offsets=Offsets({AT: 9, TopicPartition("gone", 0): 7}))
    left = {at: each for at, each in held({}).to_commit(two).items() if at.topic != "gone"}
    deleted = {name: topic_id for name, topic_id in TOPICS.items() if name != "gone"}
    position = held(left, topics=deleted).now()
    assert position is not None
    assert position.holds(two)
    assert replace(two, number=4, expected=two.position()).follows(position)
    assert not position.holds(replace(two, offsets=Offsets({AT: 8, TopicPartition("gone", 0): 7})))
    assert not position.holds(replace(two, owner="another"))
    assert held({}, topics=deleted).to_commit(two).keys() == {KafkaPartition("t", 0)}
    with pytest.raises(TopicMissing, match="gone, t"):
        held({}, topics={}).to_commit(two)


def test_a_topic_that_has_left_the_file_needs_no_rights() -> None:
    """Its rights may be gone with it. Without this every run would end at it, though no file names it any more."""

    class Refused(Listed):
        def describe_topics(self, names: list[str]) -> Any:
            return [
                {**each, "error_code": 29} if each["name"] == "gone" else each
                for each in super().describe_topics(names)
            ]

    def of(offsets: dict[KafkaPartition, OffsetAndMetadata], clients: type[Listed], *topics: str) -> GroupPosition:
        made: Any = clients(offsets, TOPICS)
        return GroupPosition(made, pipeline="p", group="g", target="out", topics=topics)

    two = replace(EPOCH, offsets=Offsets({AT: 9, TopicPartition("gone", 0): 7}))
    for clients in (Listed, Refused):  # also where it may be seen: the right to read it is another one
        made = of({}, clients, "t").to_commit(two)
        assert made.keys() == {KafkaPartition("t", 0)}
        position = of(made, clients, "t").settled(two.offsets)
        assert position is not None
        assert position.holds(two)
    with pytest.raises(TopicAuthorizationFailedError):
        of({}, Refused, "t", "gone").to_commit(two)
    assert len(of({}, Listed, "new").to_commit(two)) == 2, "an epoch that was decided before all topics changed"
    for ask in (lambda at: at.to_commit(two), lambda at: at.settled(two.offsets)):
        with pytest.raises(TopicAuthorizationFailedError):  # and not that a topic is missing
            ask(of({}, Refused, "new"))


def test_partitions_that_a_recreated_topic_does_not_have_are_left_out() -> None:
    """No broker takes their offsets: every run would end with an epoch in doubt."""
    of_two = replace(EPOCH, offsets=Offsets({AT: 9, TopicPartition("gone", 0): 7, TopicPartition("gone", 1): 8}))
    made = held({}).to_commit(of_two)
    assert made.keys() == {KafkaPartition("t", 0), KafkaPartition("gone", 0)}
    position = held(made).settled(of_two.offsets)
    assert position is not None
    assert position.holds(of_two)


def test_a_target_that_was_created_again_is_another_one() -> None:
    offsets = held({}).to_commit(EPOCH)
    for now in ({**TOPICS, "out": 4}, TOPICS, {"t": 1}):  # a missing target is told by name elsewhere
        position = held(offsets, topics=now).now()
        assert position is not None
        assert bool(position.replaced) == (now.get("out") == 4)
    older = {at: OffsetAndMetadata(each.offset, _without_target(each.metadata), -1) for at, each in offsets.items()}
    position = held(older, topics={**TOPICS, "out": 4}).now()
    assert position is not None
    assert not position.replaced, "earlier versions didn't say which topic it was"


@pytest.mark.parametrize(
    ("settings", "largest", "only_deletes"),
    [
        ({"max.message.bytes": {"value": "1000"}, "cleanup.policy": {"value": "delete"}}, 1000, True),
        ({"max.message.bytes": {"value": "1000"}, "cleanup.policy": {"value": "compact"}}, 1000, False),
        ({}, None, False),  # kafka-python's answer without the permission DESCRIBE_CONFIGS
    ],
)
def test_settings_that_the_user_may_not_read_are_unknown(
    settings: Any, largest: int | None, only_deletes: bool
) -> None:
    class Settings(Listed):
        def describe_configs(self, asked: Any, config_filter: str) -> Any:
            return {"topic": {each.name: settings for each in asked}}

    target = Target("out", Settings({}, TOPICS))  # type: ignore[arg-type]
    assert (target.largest(), target.only_deletes()) == (largest, only_deletes)


def _without_target(text: str) -> str:
    return json.dumps({name: value for name, value in json.loads(text).items() if name != "target"})


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
        self.ends_at = Offsets()
        self.offered: Epoch | None = None

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
            assert self.offered is not None
            self.stands = Position(self.offered.number, self.offered.offsets, owner=self.offered.owner)
        self._step("answer")

    def end(self) -> None: ...

    def now(self) -> Position | None:
        return self.stands

    def settled(self, of: Any) -> Position | None:
        self._step("position")
        return self.stands

    def ends(self) -> Offsets:
        return self.ends_at

    def id(self) -> str:
        return "the topic"

    def to_commit(self, epoch: Epoch) -> Any:
        self.offered = epoch
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


OUT = TopicPartition("out", 0)
READS = {"ends": {"out": {"0": 10}}, "id": "the topic"}


@pytest.mark.parametrize("step", ["none", "init", "offsets", "commit", "answer"])
def test_a_position_that_kafka_has_forgotten_is_written_anew(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log says that the epoch is in the topic: no message is sent again, and the next epoch goes on from there."""
    broker = Broker(*([(step, ProducerFencedError())] if step != "none" else []))
    broker.stands, broker.ends_at = None, Offsets({OUT: 12})
    sink = sink_on(broker, monkeypatch)
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    found = sink.remind(EPOCH, READS, done=True)
    assert found is not None
    assert found.holds(EPOCH)
    assert broker.stands == found


def test_what_another_process_has_written_anew_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    broker.stands, broker.ends_at = Position(5, Offsets({AT: 20}), owner="other"), Offsets({OUT: 12})
    assert sink_on(broker, monkeypatch).remind(EPOCH, READS, done=True) == broker.stands
    assert broker.offered is None


@pytest.mark.parametrize(("there", "epoch"), [(True, 3), (False, 2)])
def test_an_epoch_in_doubt_is_looked_for_in_the_topic(there: bool, epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    broker.stands, broker.ends_at = None, Offsets({OUT: 12})
    read = replace(EPOCH, ranges=(OffsetRange("t", 0, 5, 9),))
    asked: list[Any] = []
    monkeypatch.setattr(module, "sent", lambda *arguments: asked.append(arguments[:2]) or there)
    found = sink_on(broker, monkeypatch).remind(read, READS, done=False)
    assert asked == [(read.ranges, Offsets({OUT: 10}))]
    assert found is not None
    assert found.epoch == epoch
    assert found.holds(read) == there
    assert read.follows(found) != there
    broker.stands = None
    monkeypatch.setattr(module, "sent", lambda *_: "it is compacted")
    with pytest.raises(PositionMismatch, match="the topic doesn't show it: it is compacted") as refused:
        sink_on(broker, monkeypatch).remind(read, READS, done=False)
    assert "t-0 [5, 9)" in refused.value.hint
    assert broker.stands is None


def test_a_first_epoch_in_doubt_that_isnt_there_leaves_no_position(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    broker.stands = None
    monkeypatch.setattr(module, "sent", lambda *_: False)
    first = replace(EPOCH, number=1, expected=None, ranges=(OffsetRange("t", 0, 0, 9),))
    assert sink_on(broker, monkeypatch).remind(first, {}, done=False) is None
    assert broker.stands is None


@pytest.mark.parametrize(("end", "topic"), [(12, "an older topic"), (9, "the topic")])
def test_a_target_that_was_created_again_stops_the_run_unless_it_is_accepted(
    end: int, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    broker.stands, broker.ends_at = None, Offsets({OUT: end})
    sink = sink_on(broker, monkeypatch)
    with pytest.raises(TableReplaced, match="are gone") as told:
        sink.remind(EPOCH, {**READS, "id": topic}, done=True)
    assert "lakelock accept" in told.value.hint
    assert EPOCH.expected is not None
    broker.stands = replace(EPOCH.expected, replaced="created again")
    for ask in (sink.position, lambda: sink.commit(EPOCH, PREPARED)):
        with pytest.raises(TableReplaced, match="created again"):
            ask()
    assert sink.accept()
    assert sink.position() == broker.stands
    assert not sink.commit(EPOCH, PREPARED).already


def test_a_message_says_whether_it_is_of_an_epoch() -> None:
    ranges = [OffsetRange("a-b", 1, 5, 9)]
    for text, of_it in {"a-b-1@5": True, "a-b-1@9": False, "a-b-2@5": False, "a-1@5": False, "": False}.items():
        assert is_of([("other", b"a-b-1@5"), (HEADER, text.encode())], ranges) == of_it
    assert not is_of([], ranges)
