"""How far a log goes, and under which leaders it was written (KIP-320).

A replica that becomes leader writes under a higher leader epoch. Where it lacked records, as only one can that is
elected uncleanly, its own epoch begins before them: that is how a log tells that it was cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from sinks.kafka.options import ANSWER_WITHIN_MS
from sinks.offsets import TopicPartition

if TYPE_CHECKING:
    from kafka import KafkaAdminClient


class End(NamedTuple):
    offset: int
    """Next to be written, as far as a ``read_committed`` reader may read."""
    leader: int | None
    """The leader epoch that it was told under; None: the broker keeps none."""


def log_ends(admin: KafkaAdminClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, End]:
    """Raises KafkaError; retriable where a partition has no leader, or is too new to be known everywhere."""
    from kafka.admin import OffsetSpec
    from kafka.protocol.consumer import IsolationLevel
    from kafka.structs import TopicPartition as KafkaPartition

    found = admin.list_partition_offsets(
        {KafkaPartition(*at): OffsetSpec.LATEST for at in partitions},
        isolation_level=IsolationLevel.READ_COMMITTED,
        timeout_ms=ANSWER_WITHIN_MS,
    )
    return {TopicPartition(*at): End(end.offset, end.leader_epoch) for at, end in found.items()}


def ends_of_leaders(
    admin: KafkaAdminClient, leaders: Mapping[TopicPartition, int], brokers: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Where the records of these leader epochs, and of earlier ones, end in the log that is there now; -1: it knows
    none of them. ``brokers``: who leads the partition now, -1 for none. Raises KafkaError, as ``log_ends`` does."""
    from kafka.errors import LeaderNotAvailableError, for_code
    from kafka.protocol.consumer import OffsetForLeaderEpochRequest

    topics_of: dict[int, dict[str, list[object]]] = defaultdict(lambda: defaultdict(list))
    topic_type = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition_type = topic_type.OffsetForLeaderPartition
    for at, epoch in leaders.items():
        if brokers[at] < 0:
            raise LeaderNotAvailableError(f"{at.topic}-{at.partition}")
        asked = partition_type(partition=at.partition, current_leader_epoch=-1, leader_epoch=epoch)
        topics_of[brokers[at]][at.topic].append(asked)
    # Of kafka-python only its consumer asks this, of what it has read itself; this is what its admin client asks with.
    manager = admin._manager

    async def answer(broker: int, request: OffsetForLeaderEpochRequest) -> Any:
        return await manager.send(request, node_id=broker)

    found = {}
    for broker, topics in topics_of.items():
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[topic_type(topic=name, partitions=parts) for name, parts in topics.items()]
        )
        for topic in manager.run(answer, broker, request).topics:
            for part in topic.partitions:
                if part.error_code:
                    raise for_code(part.error_code)(f"{topic.topic}-{part.partition}")
                found[TopicPartition(topic.topic, part.partition)] = part.end_offset
    return found
