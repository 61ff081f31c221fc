"""Names for the records of a recreated topic: one that was deleted and created again under the same name.

A record is identified by topic, partition and offset, and the new topic assigns the same offsets again. Stored records
of the old topic therefore keep their coordinates under a name that no topic can have, ``#<topic id>/<topic>``. From
then on the old topic counts as one that has left the pipeline. The name sorts before every topic's name, so in an order
by (topic, partition, offset) the records of the new topic are the newer ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from sinks.offsets import Offsets, TopicPartition

MARK = "#"
"""Topic names consist of letters, digits, dots, hyphens and underscores. All of these sort after the mark."""


def retired(topic: str, topic_id: str) -> str:
    """The name under which records of an old, deleted topic stay in a table."""
    return f"{MARK}{topic_id}/{topic}"


def is_retired(name: str) -> bool:
    """Whether ``name`` stands for an old, deleted topic."""
    return name.startswith(MARK)


def topic_of(name: str) -> str:
    """The topic's name in Kafka, also for an old, deleted topic."""
    return name.partition("/")[2] if is_retired(name) else name


def retired_names(topics: Mapping[str, str]) -> Mapping[str, str]:
    """Topic -> the name that it gets when it retires. ``topics``: topic -> id."""
    return {topic: retired(topic, topic_id) for topic, topic_id in topics.items() if not is_retired(topic)}


def with_retired_names(offsets: Offsets, topics: Mapping[str, str]) -> Offsets:
    """The offsets, and each once more under the name that its topic gets when it retires. ``topics``: topic -> id."""
    names = retired_names(topics)
    renamed = {
        TopicPartition(names[at.topic], at.partition): next_ for at, next_ in offsets.items() if at.topic in names
    }
    return Offsets({**offsets, **renamed})
