"""The offsets at which a pipeline without a position starts, as its file gives them."""

from __future__ import annotations

from connector.config import FromOffsets
from connector.protocol.recover import TopicsHeld
from sinks.errors import ConfigurationError
from sinks.offsets import TopicPartition

_EARLIEST, _LATEST = -2, -1


def given_offset(start: FromOffsets, at: TopicPartition, held: TopicsHeld) -> int:
    """That of one partition. Raises ConfigurationError if the file gives none, or one that Kafka doesn't have."""
    given = start.offsets.get(at.topic, {}).get(at.partition)
    first, end = held.beginnings[at], held.ends[at]
    if given is None:
        raise ConfigurationError(
            f"source.start: no offset for {at.topic}-{at.partition}, which is in Kafka but not in the position.",
            hint=f'List every partition, as in {{"{at.topic}": {{"{at.partition}": {first}}}}}; -2 is the earliest '
            "offset, -1 the latest.",
        )
    offset = {_EARLIEST: first, _LATEST: end}.get(given, given)
    if not first <= offset <= end:
        raise ConfigurationError(
            f"source.start: {at.topic}-{at.partition} holds [{first}, {end}), and offset {offset} is outside.",
            hint="Give an offset within that range, or -2 for the earliest.",
        )
    return offset
