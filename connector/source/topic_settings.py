"""How Kafka cleans topics: what is compacted, and for how long a tombstone stays."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Set
from datetime import timedelta

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource

from sinks.kafka import answering

log = logging.getLogger("lakelock.source")

_POLICY, _KEPT = "cleanup.policy", "delete.retention.ms"
_KEPT_BY_DEFAULT = 86_400_000
_FOR_EVER = 31_536_000_000_000
"""A thousand years. Kafka takes more, which no timedelta holds."""
_KNOWN_SECONDS = 60.0


def cleanup_policies(admin: KafkaAdminClient, servers: str, topics: Collection[str]) -> Mapping[str, str | None]:
    """The ``cleanup.policy`` of these topics. None: it can't be read. Raises BrokerUnreachable."""
    asked = _settings(admin, servers, topics, _POLICY)
    return {topic: settings.get(_POLICY) for topic, settings in asked.items()}


class Tombstones:
    """For how long topics keep tombstones. An answer counts for a minute, as every epoch asks."""

    def __init__(self) -> None:
        self._known: Mapping[str, timedelta] = {}
        self._of: Set[str] = frozenset()
        self._untold: set[str] = set()
        self._until = 0.0

    def kept(self, admin: KafkaAdminClient, servers: str, topics: Collection[str]) -> Mapping[str, timedelta]:
        """Of these topics the compacted ones, and ``delete.retention.ms`` of each. Raises BrokerUnreachable.

        A topic whose settings the user may not read isn't in it. The log says so, once.
        """
        if not set(topics) <= self._of or time.monotonic() >= self._until:
            asked = _settings(admin, servers, topics, _POLICY, _KEPT)
            self._known = {
                topic: timedelta(milliseconds=min(int(settings.get(_KEPT) or _KEPT_BY_DEFAULT), _FOR_EVER))
                for topic, settings in asked.items()
                if "compact" in (settings.get(_POLICY) or "")
            }
            self._warn({topic for topic, settings in asked.items() if _POLICY not in settings})
            self._of, self._until = frozenset(topics), time.monotonic() + _KNOWN_SECONDS
        return {topic: time for topic, time in self._known.items() if topic in topics}

    def _warn(self, untold: set[str]) -> None:
        if new := sorted(untold - self._untold):
            log.warning(
                "Kafka doesn't tell whether %s is compacted, so a run doesn't see whether deletes are gone that it has "
                "never read: allow its user DESCRIBE_CONFIGS of the topic",
                ", ".join(new),
            )
        self._untold |= untold


def _settings(
    admin: KafkaAdminClient, servers: str, topics: Collection[str], *names: str
) -> Mapping[str, Mapping[str, str | None]]:
    asked = [ConfigResource("topic", topic, list(names)) for topic in sorted(topics)]
    with answering(servers):
        found = admin.describe_configs(asked, config_filter="all").get("topic", {})
    # Without the right to ask, kafka-python gives a topic without settings.
    return {
        topic: {name: found[topic][name].get("value") for name in names if name in found.get(topic, {})}
        for topic in topics
    }
