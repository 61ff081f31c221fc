"""The target topic of a sink: whether it exists, how large a message it takes, and where it ends."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, NamedTuple

from sinks.errors import TopicMissing
from sinks.kafka import ANSWER_WITHIN_MS, Clients
from sinks.offsets import Offsets, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

_UNKNOWN_TOPIC, _NOT_AUTHORIZED = 3, 29
_NO_ID = uuid.UUID(int=0)
"""What brokers without topic ids say."""
_LARGEST, _CLEANUP = "max.message.bytes", "cleanup.policy"


class Described(NamedTuple):
    """A topic that is there."""

    id: str
    """Empty where the broker doesn't say."""
    partitions: frozenset[int]


def described(topics: Iterable[str], clients: Clients, *, left: Collection[str] = ()) -> Mapping[str, Described]:
    """These topics by name, without those that aren't there. Raises KafkaError.

    ``left``: topics that the pipeline reads no more, which are left out where the user may not see them.
    """
    from kafka.errors import for_code

    found = {}
    for each in clients.admin.describe_topics(sorted(topics)):
        if each["error_code"] == _UNKNOWN_TOPIC or (each["error_code"] == _NOT_AUTHORIZED and each["name"] in left):
            continue
        if each["error_code"]:
            raise for_code(each["error_code"])()
        its_id = "" if each["topic_id"] in (None, _NO_ID) else str(each["topic_id"])
        found[each["name"]] = Described(its_id, frozenset(part["partition_index"] for part in each["partitions"]))
    return found


class Target:
    """A topic in the source's Kafka cluster. Every call asks the broker.

    Every method raises TopicMissing, BrokerUnreachable or SinkError.
    """

    def __init__(self, topic: str, clients: Clients) -> None:
        self._topic = topic
        self._clients = clients

    def check(self) -> None:
        """Check that the topic exists."""
        self._clients.ask(self._partitions)

    def largest(self) -> int | None:
        """The largest batch in bytes that the topic takes. None if the user may not read the setting."""
        found = self._setting(_LARGEST)
        return int(found) if found is not None else None

    def only_deletes(self) -> bool:
        """Whether the topic loses its oldest messages only, as one that is compacted doesn't."""
        return self._setting(_CLEANUP) == "delete"

    def id(self) -> str:
        """The topic's id: another one, once the topic was deleted and created again."""
        found = self._clients.ask(lambda: described([self._topic], self._clients)).get(self._topic)
        return found.id if found is not None else ""

    def _setting(self, name: str) -> str | None:
        from kafka.admin import ConfigResource, ConfigResourceType

        def setting() -> str | None:
            asked = [ConfigResource(ConfigResourceType.TOPIC, self._topic, {name: None})]
            found = self._clients.admin.describe_configs(asked, config_filter="all")
            # kafka-python passes over a refusal: the topic then has no settings.
            value = found.get("topic", {}).get(self._topic, {}).get(name, {}).get("value")
            return None if value is None else str(value)

        return self._clients.ask(setting)

    def ends(self) -> Offsets:
        """The end offset of each partition for a ``read_committed`` reader."""
        from kafka.errors import KafkaTimeoutError
        from kafka.structs import TopicPartition as KafkaPartition

        def ends() -> Offsets:
            partitions = [KafkaPartition(self._topic, partition) for partition in self._partitions()]
            try:
                found = self._clients.consumer.end_offsets(partitions, timeout_ms=ANSWER_WITHIN_MS)
            except KeyError:  # kafka-python fails on a partition that was just added
                found = {}
            if found.keys() != set(partitions):
                raise KafkaTimeoutError("the ends of some partitions")
            return Offsets({TopicPartition(*at): offset for at, offset in found.items()})

        return self._clients.ask(ends)

    def _partitions(self) -> Sequence[int]:
        from kafka.errors import for_code

        (found,) = self._clients.admin.describe_topics([self._topic])
        if found["error_code"] == _UNKNOWN_TOPIC:
            raise TopicMissing(
                f"Topic {self._topic!r} isn't in Kafka at {self._clients.servers}.",
                hint="Create it before the pipeline starts. The topics of the source and the target topic must be in "
                "one Kafka cluster.",
            )
        if found["error_code"]:
            raise for_code(found["error_code"])()
        return sorted(each["partition_index"] for each in found["partitions"])
