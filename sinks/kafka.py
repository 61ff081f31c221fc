"""Kafka's clients: their options under Kafka's own names, and what it means when no broker answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from sinks.errors import BrokerUnreachable, ConfigurationError, SinkError

if TYPE_CHECKING:
    from kafka import KafkaAdminClient, KafkaConsumer
    from kafka.errors import KafkaError

Answer = TypeVar("Answer")
ANSWER_WITHIN_MS = 10_000


@contextmanager
def answering(servers: str) -> Iterator[None]:
    from kafka.errors import KafkaError

    try:
        yield
    except KafkaError as error:
        raise BrokerUnreachable(
            f"No Kafka broker at {servers} answered within {ANSWER_WITHIN_MS // 1000} seconds "
            f"({type(error).__name__}).",
            hint="Check source.kafka: bootstrap.servers, and security.protocol where the broker wants TLS or SASL.",
        ) from error


def client_options(kafka: Mapping[str, str]) -> dict[str, str]:
    """Kafka's names as kafka-python spells them."""
    options = {name.replace(".", "_"): value for name, value in kafka.items() if name != "group.id"}
    patience = str(ANSWER_WITHIN_MS)
    return {"bootstrap_timeout_ms": patience, "request_timeout_ms": patience, **options}


def known_options(client: Any, options: Mapping[str, str]) -> dict[str, Any]:
    """The options that this client has, in the type that it wants; the others are for Spark's reader alone."""
    known: dict[str, Any] = {}
    for name, value in options.items():
        if name not in client.DEFAULT_CONFIG:
            continue
        default = client.DEFAULT_CONFIG[name]
        try:
            if isinstance(default, bool):
                known[name] = value == "true"
            elif isinstance(default, int):
                known[name] = int(value)
            else:
                known[name] = value
        except ValueError:
            raise ConfigurationError(
                f"source.kafka.{name.replace('_', '.')}: {value!r} is not a whole number."
            ) from None
    return known


class Clients:
    """Kafka's clients of one consumer group, connected at the first question. The consumer never joins the group."""

    def __init__(self, kafka: Mapping[str, str], *, group: str) -> None:
        self.servers = kafka["bootstrap.servers"]
        self._options = client_options(kafka)
        self._group = group
        self._admin: KafkaAdminClient | None = None
        self._consumer: KafkaConsumer | None = None

    @property
    def admin(self) -> KafkaAdminClient:
        from kafka import KafkaAdminClient

        if self._admin is None:
            self._admin = KafkaAdminClient(**known_options(KafkaAdminClient, self._options))
        return self._admin

    @property
    def consumer(self) -> KafkaConsumer:
        from kafka import KafkaConsumer

        if self._consumer is None:
            self._consumer = KafkaConsumer(
                **{
                    **known_options(KafkaConsumer, self._options),
                    "group_id": self._group,
                    "enable_auto_commit": False,
                    # With it the broker refuses to tell an offset that an undecided transaction may still change.
                    "isolation_level": "read_committed",
                    "allow_auto_create_topics": False,
                }
            )
        return self._consumer

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Put a question that makes use of these clients, again while the broker asks for patience.

        kafka-python's clients don't forget who coordinates a group, so it is put anew by new ones. Raises
        BrokerUnreachable, SinkError.
        """
        from kafka.errors import KafkaError

        deadline = time.monotonic() + ANSWER_WITHIN_MS / 1000
        while True:
            try:
                return question()
            except KafkaError as error:
                self.close()
                if not error.retriable:
                    raise refused(error, self.servers) from error
                if time.monotonic() > deadline:
                    with answering(self.servers):
                        raise
            time.sleep(0.1)

    def close(self) -> None:
        consumer, admin, self._consumer, self._admin = self._consumer, self._admin, None, None
        if consumer is not None:
            consumer.close(autocommit=False)
        if admin is not None:
            admin.close()


def refused(error: KafkaError, servers: str) -> SinkError:
    """What to tell of an error that trying again can't help."""
    from kafka.errors import AuthorizationError, KafkaError

    # Only the plainest class has words of its own: others repeat the request.
    said = f"{type(error).__name__}{f', {error}' if type(error) is KafkaError else ''}"
    hint = ""
    if isinstance(error, AuthorizationError):
        hint = (
            "The pipeline's user needs WRITE and DESCRIBE on the target topic and on the transactional id (the "
            "pipeline's name), and READ on the consumer group."
        )
    return SinkError(f"Kafka at {servers} refuses: {said}.", hint=hint)
