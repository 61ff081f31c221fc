"""One Kafka transaction with kafka-python's producer. Every wait has a limit, and a silent success isn't trusted.

The reasons are in kafka-python 3.0:

* ``commit_transaction`` and similar calls wait for ever. So they run in a thread that can be abandoned.
* A batch that fails with a wrong epoch or sequence makes the producer ask for a new epoch, on which the broker aborts
  the transaction. A ``commit_transaction`` that waits just then returns as if it had committed. So it is called only
  after every message has been acknowledged, and its result is checked against the position afterwards.
* The number of messages that wait to be sent is unlimited. So they are sent in portions.
* A batch above the topic's limit is split, and a flush that waits for it fails. So batches are made smaller.
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
"""The guarantee depends on these options: they keep kafka-python's values, whatever the user sets for other clients."""
_PORTION_BYTES = 16 * 1024 * 1024
_CLOSE_SECONDS = 2.0


class Message(NamedTuple):
    """A message to send."""

    key: bytes | None
    value: bytes
    header: tuple[str, bytes]


def producer_options(kafka: Mapping[str, str], largest: int | None = None) -> dict[str, Any]:
    """The options for kafka-python's producer. ``largest`` is the largest batch in bytes that the topic takes.

    Raises ConfigurationError.
    """
    from kafka import KafkaProducer

    named = {name: value for name, value in client_options(KafkaProducer, kafka).items() if name not in _OURS}
    if named.get("compression_type") == "none":
        del named["compression_type"]
    options = {**_DEFAULTS, **named, "allow_auto_create_topics": False}
    if largest is not None:
        options["batch_size"] = max(0, min(int(options["batch_size"]), largest))
    return options


def max_request_size(kafka: Mapping[str, str]) -> int:
    """The largest request in bytes that the producer sends."""
    from kafka import KafkaProducer

    default = KafkaProducer.DEFAULT_CONFIG["max_request_size"]
    return int(producer_options(kafka).get("max_request_size", default))


class Transaction:
    """A transaction of the newest producer of ``transactional_id``: producers created before can't commit any more.

    Always call ``end`` afterwards. A transaction that wasn't committed by then is aborted by the next producer, or by
    the broker at its timeout. Every method raises KafkaError.
    """

    def __init__(self, transactional_id: str, options: Mapping[str, Any]) -> None:
        from kafka import KafkaProducer

        self._producer: KafkaProducer = KafkaProducer(**options, transactional_id=transactional_id)
        self._open = False
        config = self._producer.config
        self._wait = (config["delivery_timeout_ms"] + config["request_timeout_ms"]) / 1000
        try:
            # Ends an earlier producer's transaction. It is committed or aborted, as far as it had come, on return.
            self._producer.init_transactions()
        except BaseException:
            self.end()
            raise

    def begin(self) -> None:
        """Begin the transaction."""
        self._producer.begin_transaction()
        self._open = True

    def send(self, topic: str, messages: Iterable[Message], portion: int) -> None:
        """Send messages. All are acknowledged when it returns. ``portion`` is the number that may be in flight."""
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
        """Add offsets of ``group`` to the transaction."""
        within(self._wait, lambda: self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        """Commit the transaction. From the call until it returns, the outcome is unknown."""
        self._open = False
        within(self._wait, self._producer.commit_transaction)

    def end(self) -> None:
        """Abort the transaction unless it is committed or in doubt, and close the producer.

        Aborting at once matters, because readers of the topic wait at the transaction. Closing would wait for messages
        in flight, so both calls have a short limit.
        """
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
    """Wait until a decided transaction is visible in all partitions, which takes a moment after the decision.

    An undecided transaction isn't waited for. Raises nothing: a caller that reads too early reads the state before.
    """
    from kafka.admin import TransactionState
    from kafka.errors import KafkaError

    deadline = time.monotonic() + ANSWER_WITHIN_MS / 1000
    while time.monotonic() < deadline:
        try:
            state = clients.admin.describe_transactions([transactional_id])[transactional_id].state
        except KafkaError as error:
            # There has been no transaction, the user may not ask, or the broker is too old to answer.
            if not error.retriable:
                return
            clients.close()
            time.sleep(0.1)
            continue
        if state is not TransactionState.PREPARE_COMMIT:
            return
        time.sleep(0.01)


def is_fenced(error: KafkaError) -> bool:
    """Whether another producer of the transactional id was created, or the broker has ended the transaction."""
    from kafka.errors import InvalidProducerEpochError, ProducerFencedError

    return isinstance(_innermost(error), (ProducerFencedError, InvalidProducerEpochError))


def is_final(error: KafkaError) -> bool:
    """Whether sending the same again can't help."""
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
    """The original error: kafka-python puts it into the arguments of the error that it raises."""
    from kafka.errors import KafkaError

    inner = next((each for each in error.args if isinstance(each, KafkaError)), None)
    return error if inner is None else _innermost(inner)


def within(seconds: float, call: Callable[[], object]) -> None:
    """Call ``call`` with a time limit, and raise what it raises.

    Raises KafkaTimeoutError after ``seconds``. The call then continues in its thread.
    """
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
