"""Which tombstones expire. Pure.

A delete is remembered for ``tombstone_retention``, counted up to the time until which the pipeline has read everything.
By the clock alone it wouldn't be remembered at all where a pipeline has stood still for longer, or is behind: an update
that Kafka got a minute after the delete would bring the row back. A pipeline that never gets to the end of its topics
forgets no delete.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sinks.contract import Epoch, Position
from sinks.recreated import is_retired


def expires_before(retention: timedelta, epoch: Epoch | None, now: datetime) -> datetime | None:
    """Tombstones that were noted before this time expire as an epoch notes its deletes; None: none does.

    ``epoch``: None if a consumer group has the offsets, and nothing tells how far it has read."""
    if epoch is None:
        return now - retention
    read_to = _read_to(epoch.expected) if epoch.expected is not None else None
    return min(read_to, now) - retention if read_to is not None else None


def _read_to(position: Position) -> datetime | None:
    """All that Kafka held at this time was read, of every topic that may be read again, also of one that the file
    doesn't name now. A version that stored no such time is taken to have been at the end. Before ``began_at`` there was
    no delete, or a consumer group had the offsets: then what was due by the clock may expire."""
    of_topics = [
        time for topic, time in position.read_to_of.items() if topic not in position.gone and not is_retired(topic)
    ]
    times = [position.read_to or position.began_at or position.committed_at, *of_topics]
    known = [time for time in times if time is not None]
    return min(known) if len(known) == len(times) else None
