"""Names for what came from a topic that was deleted, and made again under its name.

A record is identified by topic, partition and offset, and the new topic's records have the same ones again. So what
is stored of the old topic keeps its coordinates, under a name that no topic can have: ``#<topic id>/<topic>``. From
then on it is a topic that has left the pipeline. The name sorts before every topic's: in an order by (topic, partition,
offset) whatever the new topic brings is newer.
"""

from __future__ import annotations

MARK = "#"
"""Topics' names are made of letters, digits, dots, hyphens and underscores, all of which sort after it."""


def retired(topic: str, topic_id: str) -> str:
    return f"{MARK}{topic_id}/{topic}"


def is_retired(name: str) -> bool:
    return name.startswith(MARK)


def topic_of(name: str) -> str:
    """What the topic was called, and still is unless it was retired."""
    return name.partition("/")[2] if is_retired(name) else name
