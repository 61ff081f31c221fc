"""kafka-python clients that look at a consumer group without joining it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from sinks.kafka.options import ANSWER_WITHIN_MS, client_options
from sinks.kafka.refusals import answering, refused

if TYPE_CHECKING:
    from kafka import KafkaAdminClient, KafkaConsumer

Answer = TypeVar("Answer")


class Clients:
    """Kafka clients for one consumer group. They connect at the first request, and the consumer never joins."""

    def __init__(self, kafka: Mapping[str, str], *, group: str) -> None:
        self.servers = kafka["bootstrap.servers"]
        self._kafka = kafka
        self._group = group
        self._admin: KafkaAdminClient | None = None
        self._consumer: KafkaConsumer | None = None

    @property
    def admin(self) -> KafkaAdminClient:
        """The admin client. Raises KafkaError when it can't connect."""
        from kafka import KafkaAdminClient

        if self._admin is None:
            self._admin = KafkaAdminClient(**client_options(KafkaAdminClient, self._kafka))
        return self._admin

    @property
    def consumer(self) -> KafkaConsumer:
        """The consumer, which reads committed records only. Raises KafkaError when it can't connect."""
        from kafka import KafkaConsumer

        if self._consumer is None:
            self._consumer = KafkaConsumer(
                **{
                    **client_options(KafkaConsumer, self._kafka),
                    "group_id": self._group,
                    "enable_auto_commit": False,
                    # With read_committed the broker refuses offsets that an undecided transaction may still change.
                    "isolation_level": "read_committed",
                    "allow_auto_create_topics": False,
                }
            )
        return self._consumer

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Call ``question``, which uses these clients, and retry it while the broker reports retriable errors.

        kafka-python's clients keep a group's coordinator for ever, so each retry uses new clients. Raises
        BrokerUnreachable, AuthenticationFailed, TlsFailed or SinkError.
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
        """Close both clients. The next request connects again."""
        consumer, admin, self._consumer, self._admin = self._consumer, self._admin, None, None
        if consumer is not None:
            consumer.close(autocommit=False)
        if admin is not None:
            admin.close()
