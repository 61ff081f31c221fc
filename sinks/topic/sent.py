"""Whether the messages of an epoch are in the target topic, for when Kafka has forgotten the position that says so.

Each message has a header that says which record it comes from. The messages of an epoch are in one transaction, so one
of them says that all are there. That none is there is certain only if nothing can have been removed since the epoch
before, and if no open transaction of somebody else hides what comes after it. No other pipeline may write the same
records to the topic: its messages would have the same headers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sinks.kafka import ANSWER_WITHIN_MS, Clients, client_options
from sinks.offsets import OffsetRange, Offsets
from sinks.topic.messages import HEADER
from sinks.topic.target import Target

if TYPE_CHECKING:
    from kafka import KafkaConsumer
    from kafka.structs import TopicPartition as KafkaPartition


def sent(
    ranges: Sequence[OffsetRange], after: Offsets, target: Target, clients: Clients, kafka: Mapping[str, str]
) -> bool | str:
    """Whether messages of the records in ``ranges`` are in the topic. Text: nothing shows it, and why.

    ``after``: where the topic ended after the epoch before; partitions that aren't in it are searched from 0 on. No
    transaction of the sink may be open. Raises BrokerUnreachable.
    """
    from kafka.structs import TopicPartition as KafkaPartition

    starts = {KafkaPartition(*at): after.get(at, 0) for at in target.ends()}
    if clients.ask(lambda: _found(ranges, starts, clients.consumer)):
        return True
    first = clients.ask(lambda: clients.consumer.beginning_offsets(list(starts)))
    if any(first[at] > start for at, start in starts.items()):
        return "retention has removed messages that may have been the epoch's"
    whole = clients.ask(lambda: _ends(starts, kafka))
    read = clients.ask(lambda: clients.consumer.end_offsets(list(starts)))
    if whole != read:
        return "an open transaction hides messages that may be the epoch's"
    if read != starts and not target.only_deletes():
        return "the topic is compacted, which may have removed the epoch's messages"
    return False


def is_of(headers: Iterable[tuple[str, bytes]], ranges: Sequence[OffsetRange]) -> bool:
    """Whether a message with these headers comes from a record in one of the ranges."""
    for name, value in headers:
        at, _, offset = value.decode(errors="replace").rpartition("@") if name == HEADER else ("", "", "")
        topic, _, partition = at.rpartition("-")
        if partition.isdigit() and offset.isdigit():
            place = (topic, int(partition))
            return any(
                (each.topic, each.partition) == place and each.start <= int(offset) < each.end for each in ranges
            )
    return False


def _found(ranges: Sequence[OffsetRange], starts: Mapping[KafkaPartition, int], consumer: KafkaConsumer) -> bool:
    from kafka.errors import KafkaTimeoutError

    ends, first = consumer.end_offsets(list(starts)), consumer.beginning_offsets(list(starts))
    consumer.assign(list(starts))
    try:
        for at, start in starts.items():
            consumer.seek(at, max(start, first[at]))
        moved, before = time.monotonic(), -1
        while any(consumer.position(at) < end for at, end in ends.items()):
            polled: Mapping[Any, Sequence[Any]] = consumer.poll(500)
            if any(is_of(message.headers, ranges) for messages in polled.values() for message in messages):
                return True
            now = sum(consumer.position(at) for at in starts)
            if now != before:
                moved, before = time.monotonic(), now
            elif time.monotonic() - moved > ANSWER_WITHIN_MS / 1000:
                raise KafkaTimeoutError("the messages of the target topic")
        return False
    finally:
        consumer.unsubscribe()


def _ends(starts: Mapping[KafkaPartition, int], kafka: Mapping[str, str]) -> Mapping[KafkaPartition, int]:
    """The ends for a reader that sees open transactions, too."""
    from kafka import KafkaConsumer

    options = {**client_options(KafkaConsumer, kafka), "enable_auto_commit": False, "allow_auto_create_topics": False}
    consumer = KafkaConsumer(**{**options, "isolation_level": "read_uncommitted"})
    try:
        ends: Mapping[KafkaPartition, int] = consumer.end_offsets(list(starts), timeout_ms=ANSWER_WITHIN_MS)
        return ends
    finally:
        consumer.close(autocommit=False)
