"""Where a partition's log begins and ends, and under which leaders it was written (KIP-320).

A replica that becomes leader writes under a higher leader epoch. After an unclean election the new leader may lack
records, and its epoch then begins before them. This shows that the log was truncated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from sinks.kafka.options import ANSWER_WITHIN_MS
from sinks.offsets import TopicPartition

if TYPE_CHECKING:
    from kafka import KafkaAdminClient
    from kafka.admin import OffsetSpec
    from kafka.protocol.consumer import IsolationLevel


class End(NamedTuple):
    """The end of a partition's log."""

    offset: int
    """The next offset to be written, as far as a ``read_committed`` reader may read."""
    held_back: int
    """How many offsets behind it wait for the end of a transaction."""
    leader: int | None
    """The leader epoch of the answer. None if the broker has none."""


def log_ends(admin: KafkaAdminClient, partitions: Collection[TopicPartition]) -> dict[TopicPartition, End]:
    """The end of each partition's log.

    Raises KafkaError. It is retriable when a partition has no leader, or is too new to be known everywhere.
    """
    from kafka.admin import OffsetSpec
    from kafka.protocol.consumer import IsolationLevel

    # In this order: a record that comes in between, outside of a transaction, isn't taken for one that is held back.
    written = _listed(admin, partitions, OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED)
    readable = _listed(admin, partitions, OffsetSpec.LATEST, IsolationLevel.READ_COMMITTED)
    return {
        at: End(end.offset, max(0, written[at].offset - end.offset), end.leader_epoch) for at, end in readable.items()
    }


def log_beginnings(admin: KafkaAdminClient, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The first offset of each partition's log. Raises KafkaError, as ``log_ends`` does."""
    from kafka.admin import OffsetSpec
    from kafka.protocol.consumer import IsolationLevel

    found = _listed(admin, partitions, OffsetSpec.EARLIEST, IsolationLevel.READ_COMMITTED)
    return {at: first.offset for at, first in found.items()}


def _listed(
    admin: KafkaAdminClient, partitions: Collection[TopicPartition], which: OffsetSpec, isolation: IsolationLevel
) -> dict[TopicPartition, Any]:
    from kafka.structs import TopicPartition as KafkaPartition

    asked = {KafkaPartition(*at): which for at in partitions}
    found = admin.list_partition_offsets(asked, isolation_level=isolation, timeout_ms=ANSWER_WITHIN_MS)
    return {TopicPartition(*at): offset for at, offset in found.items()}


_UNFENCED = -1


def ends_of_leaders(
    admin: KafkaAdminClient,
    leaders: Mapping[TopicPartition, int],
    brokers: Mapping[TopicPartition, int],
    current: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """The end offset of the records of these leader epochs, and of earlier ones, in the current log.

    ``brokers`` are the current leaders of the partitions, -1 for none. ``current``: the newest leader epochs that are
    known, as a broker that was replaced, and doesn't know it yet, answers from a log that isn't cut. An end of -1 means
    that the log knows none of the epochs. Raises KafkaError, as ``log_ends`` does, UnknownLeaderEpochError from such a
    broker.
    """
    from kafka.errors import FencedLeaderEpochError, LeaderNotAvailableError, for_code
    from kafka.protocol.consumer import OffsetForLeaderEpochRequest

    topics_of: dict[int, dict[str, list[object]]] = defaultdict(lambda: defaultdict(list))
    topic_type = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition_type = topic_type.OffsetForLeaderPartition
    for at, epoch in leaders.items():
        if brokers[at] < 0:
            raise LeaderNotAvailableError(f"{at.topic}-{at.partition}")
        asked = partition_type(
            partition=at.partition, current_leader_epoch=current.get(at, _UNFENCED), leader_epoch=epoch
        )
        topics_of[brokers[at]][at.topic].append(asked)
    # In kafka-python only the consumer sends this request. The admin client's connection manager can send it too.
    manager = admin._manager

    async def answer(broker: int, request: OffsetForLeaderEpochRequest) -> Any:
        return await manager.send(request, node_id=broker)

    found, newer = {}, {}
    for broker, topics in topics_of.items():
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[topic_type(topic=name, partitions=parts) for name, parts in topics.items()]
        )
        for topic in manager.run(answer, broker, request).topics:
            for part in topic.partitions:
                at = TopicPartition(topic.topic, part.partition)
                if part.error_code == FencedLeaderEpochError.errno and at in current:
                    newer[at] = leaders[at]  # the leader has changed once more
                elif part.error_code:
                    raise for_code(part.error_code)(f"{topic.topic}-{part.partition}")
                else:
                    found[at] = part.end_offset
    return {**found, **ends_of_leaders(admin, newer, brokers, {})} if newer else found
