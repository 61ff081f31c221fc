"""What Kafka says of the audited topics: offsets, ids, cleanup policy, and the consumer group's offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
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

    def held(self, topics: Sequence[str] | TopicPattern, stored: Mapping[str, str | None] | None = None) -> Held:
        """What Kafka holds of the pipeline's topics, and of those of which it has ``stored`` offsets.

        ``stored``: topic -> the id that the offsets belong to, None where it isn't known.
        Of the stored ones some may have left the pipeline, or are no longer matched by its pattern: what Kafka lacks of
        them, has under another id, or doesn't let be read, is left out. Raises TopicMissing, BrokerUnreachable,
        SourceError.
        """
        stored = stored or {}
        ids, partitions = {}, []
        with answering(self._servers):
            wanted = set(topics) if not isinstance(topics, TopicPattern) else set()
            # Rows of a recreated topic's predecessor are stored under a name that Kafka can't have.
            known = {topic for topic in stored if not topic.startswith("#")} - wanted
            if known or isinstance(topics, TopicPattern):
                there = self._admin.list_topics()
                wanted |= {topic for topic in there if topic in topics}
                known = known.intersection(there) - wanted
            for topic in self._admin.describe_topics(sorted(wanted | known)):
                name, topic_id = topic["name"], str(topic["topic_id"])
                if name in known and (topic["error_code"] or stored[name] not in (None, topic_id)):
                    continue
                self._refuse(topic)
                ids[name] = topic_id
                partitions += [TopicPartition(name, part["partition_index"]) for part in topic["partitions"]]
            ends = self._offsets(self._consumer.end_offsets, partitions)
            # Asked last, as retention may move them at any time: what is gone before the query must count as unchecked.
            beginnings = self._offsets(self._consumer.beginning_offsets, partitions)
            asked = [ConfigResource("topic", name, ["cleanup.policy"]) for name in sorted(ids)]
            policies = self._admin.describe_configs(asked, config_filter="all").get("topic", {})
        # kafka-python passes over a refusal: the topic then has no settings.
        told = {name: policies.get(name, {}).get("cleanup.policy", {}).get("value") for name in ids}
        untold = frozenset(name for name, policy in told.items() if policy is None)
        compacted = frozenset(name for name, policy in told.items() if policy is not None and "compact" in policy)
        return Held(beginnings, ends, ids, compacted | untold, untold)

    def _refuse(self, topic: Mapping[str, Any]) -> None:
        """Raises what Kafka says of a topic."""
        name, error = topic["name"], topic["error_code"]
        if error == _NO_SUCH_TOPIC:
            raise TopicMissing(
                f"Topic {name!r} isn't in Kafka at {self._servers}: without its records there is nothing to compare "
                "the table with.",
                hint="Check source.topics and bootstrap.servers. A topic that was deleted can't be audited.",
            )
        if error == TopicAuthorizationFailedError.errno:
            raise not_authorized(f"Kafka at {self._servers}", "Topic", f"topic {name!r}")
        if error:
            raise SourceError(f"Kafka refuses to describe topic {name!r}: error {error}.")

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
