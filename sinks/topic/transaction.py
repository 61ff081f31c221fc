"""One Kafka transaction by kafka-python's producer, with a limit to every wait and no trust in a silent success.

Of kafka-python 3.0:

* ``commit_transaction`` and its like wait for ever, and are called in a thread that can be left behind;
* a batch that fails with a wrong epoch or sequence makes the producer ask for a new epoch, on which the broker aborts
  the transaction; a ``commit_transaction`` that waits just then returns as if it had committed. So it is called only
  when every message has been acknowledged, and its word is checked against the position afterwards;
* nothing bounds the messages that wait to be sent, so they are sent in bounded portions;
* a batch that is larger than its topic allows is split, and a flush that waits for it fails: batches are made smaller.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from sinks.kafka import ANSWER_WITHIN_MS, Clients, client_options

if TYPE_CHECKING:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata
    from kafka.structs import TopicPartition as KafkaPartition

_DEFAULTS = {
    "transaction_timeout_ms": 15 * 60_000,
    "max_block_ms": 30_000,
    "linger_ms": 5,
    "retry_backoff_ms": 20,
    "batch_size": 128 * 1024,
}
_OURS = {
    "acks", "retries", "enable_idempotence", "transactional_id", "max_in_flight_requests_per_connection",
    "key_serializer", "value_serializer", "partitioner", "allow_auto_create_topics",
}  # fmt: skip
"""What the guarantee rests on: at kafka-python's values, whatever the user has set for other clients."""
_PORTION_BYTES = 16 * 1024 * 1024
_CLOSE_SECONDS = 2.0


class Message(NamedTuple):
    key: bytes | None
    value: bytes
    header: tuple[str, bytes]


def producer_options(kafka: Mapping[str, str], largest: int | None = None) -> dict[str, Any]:
    """kafka-python's, from Kafka's; ``largest``: bytes that the topic takes in one batch. Raises ConfigurationError."""
    from kafka import KafkaProducer

    named = {name: value for name, value in client_options(KafkaProducer, kafka).items() if name not in _OURS}
    if named.get("compression_type") == "none":
        del named["compression_type"]
    options = {**_DEFAULTS, **named, "allow_auto_create_topics": False}
    if largest is not None:
        options["batch_size"] = max(0, min(int(options["batch_size"]), largest))
    return options


def max_request_size(kafka: Mapping[str, str]) -> int:
    from kafka import KafkaProducer

    default = KafkaProducer.DEFAULT_CONFIG["max_request_size"]
    return int(producer_options(kafka).get("max_request_size", default))


class Transaction:
    """The producer of ``transactional_id``: the last one that was made, so that all before it can commit nothing more.

    To be left by ``end`` whatever happened; what wasn't committed then is aborted by the next one, or by the broker
    when its time is over. Every method raises KafkaError.
    """

    def __init__(self, transactional_id: str, options: Mapping[str, Any]) -> None:
        from kafka import KafkaProducer

        self._producer: KafkaProducer = KafkaProducer(**options, transactional_id=transactional_id)
        self._open = False
        config = self._producer.config
        self._wait = (config["delivery_timeout_ms"] + config["request_timeout_ms"]) / 1000
        try:
            # Ends what an earlier producer began: it is committed or aborted when this returns, as far as it had come.
            self._producer.init_transactions()
        except BaseException:
            self.end()
            raise

    def begin(self) -> None:
        self._producer.begin_transaction()
        self._open = True

    def send(self, topic: str, messages: Iterable[Message], portion: int) -> None:
        """All are acknowledged when it returns. ``portion``: how many may be on their way."""
        on_their_way: list[Any] = []
        size = 0
        for message in messages:
            on_their_way.append(self._producer.send(topic, message.value, key=message.key, headers=[message.header]))
            size += len(message.value)
            if len(on_their_way) >= portion or size >= _PORTION_BYTES:
                self._acknowledged(on_their_way)
                on_their_way, size = [], 0
        self._acknowledged(on_their_way)

    def put_offsets(self, offsets: Mapping[KafkaPartition, OffsetAndMetadata], group: str) -> None:
        within(self._wait, lambda: self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        """From the call on its outcome is in doubt, until it has returned."""
        self._open = False
        within(self._wait, self._producer.commit_transaction)

    def end(self) -> None:
        """What is neither committed nor in doubt is aborted at once: until then, the topic's readers wait behind it.
        Closing waits for messages that are still on their way: not longer than a moment, not here."""
        from kafka.errors import KafkaError

        if self._open:
            with suppress(KafkaError):
                within(_CLOSE_SECONDS, self._producer.abort_transaction)
        with suppress(KafkaError):
            within(_CLOSE_SECONDS, self._producer.close)

    def _acknowledged(self, futures: Iterable[Any]) -> None:
        self._producer.flush(self._wait)
        for future in futures:
            if not future.succeeded():
                raise future.exception if future.exception is not None else _timed_out()


def settle(clients: Clients, transactional_id: str) -> None:
    """Wait until what is decided is to be seen in all partitions, which takes a moment after the decision.

    A transaction that nobody has decided yet isn't waited for. Raises nothing: who reads too early reads the state
    before, no other.
    """
    from kafka.admin import TransactionState
    from kafka.errors import KafkaError

    deadline = time.monotonic() + ANSWER_WITHIN_MS / 1000
    while time.monotonic() < deadline:
        try:
            state = clients.admin.describe_transactions([transactional_id])[transactional_id].state
        except KafkaError as error:
            # There has been none; the user may not ask; the broker is too old to tell.
            if not error.retriable:
                return
            clients.close()
            time.sleep(0.1)
            continue
        if state is not TransactionState.PREPARE_COMMIT:
            return
        time.sleep(0.01)


def is_fenced(error: KafkaError) -> bool:
    """Another producer of the same transactional id was made, or the broker has ended the transaction."""
    from kafka.errors import InvalidProducerEpochError, ProducerFencedError

    return isinstance(_innermost(error), (ProducerFencedError, InvalidProducerEpochError))


def is_final(error: KafkaError) -> bool:
    """Sending the same again can't help."""
    from kafka.errors import (
        AuthorizationError,
        InvalidTopicError,
        KafkaConfigurationError,
        MessageSizeTooLargeError,
        RecordListTooLargeError,
        UnsupportedVersionError,
    )

    return isinstance(
        _innermost(error),
        (
            AuthorizationError, InvalidTopicError, KafkaConfigurationError, MessageSizeTooLargeError,
            RecordListTooLargeError, UnsupportedVersionError,
        ),
    )  # fmt: skip


def _innermost(error: KafkaError) -> KafkaError:
    """kafka-python puts what went wrong into the arguments of what it raises for it."""
    from kafka.errors import KafkaError

    inner = next((each for each in error.args if isinstance(each, KafkaError)), None)
    return error if inner is None else _innermost(inner)


def within(seconds: float, call: Callable[[], object]) -> None:
    """Raises what the call raises, and KafkaTimeoutError where it takes longer: it goes on without anybody waiting."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="lakelock-kafka", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise _timed_out()
    if errors:
        raise errors[0]


def _timed_out() -> Exception:
    from kafka.errors import KafkaTimeoutError

    error: Exception = KafkaTimeoutError("no answer in time")
    return error
