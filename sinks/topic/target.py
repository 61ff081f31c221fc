"""The target topic of a sink: whether it exists, how large a message it takes, and where it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.errors import TopicMissing
from sinks.kafka import ANSWER_WITHIN_MS, Clients
from sinks.offsets import Offsets, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNKNOWN_TOPIC = 3
_LARGEST = "max.message.bytes"


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
        from kafka.admin import ConfigResource, ConfigResourceType
        from kafka.errors import AuthorizationError

        def largest() -> int | None:
            try:
                asked = [ConfigResource(ConfigResourceType.TOPIC, self._topic, {_LARGEST: None})]
                found = self._clients.admin.describe_configs(asked, config_filter="all")
            except AuthorizationError:
                return None
            return int(found["topic"][self._topic][_LARGEST]["value"])

        return self._clients.ask(largest)

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
