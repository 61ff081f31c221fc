"""What Kafka says of the audited topics: offsets, ids, cleanup policy, and the consumer group's offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer
from kafka.admin import ConfigResource
from kafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError
from kafka.structs import TopicPartition

from connector.audit.claim import At, Held
from connector.config import Source, TopicPattern
from sinks.errors import SourceError, TopicMissing
from sinks.kafka import answering, client_options, not_authorized

_PATIENCE_MS = 10_000
_NO_SUCH_TOPIC = 3


class Topics:
    """Asks one Kafka cluster. Changes nothing there and joins no group. Call ``close`` after use."""

    def __init__(self, source: Source) -> None:
        options = source.kafka_options
        self._servers = options["bootstrap.servers"]
        with answering(self._servers):
            self._admin = KafkaAdminClient(**client_options(KafkaAdminClient, options))
            self._consumer = KafkaConsumer(
                **client_options(KafkaConsumer, options),
                isolation_level="read_committed",
                enable_auto_commit=False,
                allow_auto_create_topics=False,
            )

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close(autocommit=False)
        self._admin.close()

    def committed(self, group: str) -> dict[At, int]:
        """The next offsets that this consumer group has committed. Raises SourceError."""
        with answering(self._servers, group=group):
            stored_by_group = self._admin.list_group_offsets(group)
        return {At(*at): stored.offset for at, stored in stored_by_group.get(group, {}).items() if stored.offset >= 0}

    def named(self, topics: Sequence[str] | TopicPattern, stored: Iterable[str] = ()) -> set[str]:
        """The topics of the pipeline, and those of which it has ``stored`` offsets.

        Topics that a pattern has matched may be gone since. Rows of a recreated topic's predecessor are stored under a
        name that Kafka can't have; such names are left out.
        """
        known = {topic for topic in stored if not topic.startswith("#")}
        if not isinstance(topics, TopicPattern):
            return {*topics, *known}
        with answering(self._servers):
            return {topic for topic in self._admin.list_topics() if topic in topics or topic in known}

    def held(self, topics: Iterable[str]) -> Held:
        """What Kafka holds of these topics. Raises TopicMissing, BrokerUnreachable, SourceError."""
        ids, partitions, wanted = {}, [], sorted(topics)
        with answering(self._servers):
            for topic in self._admin.describe_topics(wanted):
                if topic["error_code"] == _NO_SUCH_TOPIC:
                    raise TopicMissing(
                        f"Topic {topic['name']!r} isn't in Kafka at {self._servers}: without its records there is "
                        "nothing to compare the table with.",
                        hint="Check source.topics and bootstrap.servers. A topic that was deleted can't be audited.",
                    )
                if topic["error_code"] == TopicAuthorizationFailedError.errno:
                    raise not_authorized(f"Kafka at {self._servers}", "Topic", f"topic {topic['name']!r}")
                if topic["error_code"]:
                    raise SourceError(
                        f"Kafka refuses to describe topic {topic['name']!r}: error {topic['error_code']}."
                    )
                ids[topic["name"]] = str(topic["topic_id"])
                partitions += [TopicPartition(topic["name"], part["partition_index"]) for part in topic["partitions"]]
            ends = self._offsets(self._consumer.end_offsets, partitions)
            # Asked last, as retention may move them at any time: what is gone before the query must count as unchecked.
            beginnings = self._offsets(self._consumer.beginning_offsets, partitions)
            asked = [ConfigResource("topic", name, ["cleanup.policy"]) for name in wanted]
            policies = self._admin.describe_configs(asked, config_filter="all").get("topic", {})
        compacted = {
            name
            for name, found in policies.items()
            if "compact" in str(found.get("cleanup.policy", {}).get("value") or "")
        }
        return Held(beginnings, ends, ids, frozenset(compacted))

    def _offsets(self, ask: Callable[..., Any], partitions: list[TopicPartition]) -> dict[At, int]:
        """Ask until every partition has an answer: kafka-python fails for a partition when it first hears of it."""
        limit = time.monotonic() + _PATIENCE_MS / 1000
        while True:
            try:
                offsets = ask(partitions, timeout_ms=_PATIENCE_MS)
            except KeyError:
                offsets = {}
            if offsets.keys() == set(partitions):
                return {At(*at): offset for at, offset in offsets.items()}
            if time.monotonic() > limit:
                raise KafkaTimeoutError("no offsets of some partitions")
            time.sleep(0.05)
