"""Which tombstones expire. Pure.

A delete is remembered for ``tombstone_retention``, counted up to the time until which the pipeline has read everything.
By the clock alone it wouldn't be remembered at all where a pipeline has stood still for longer, or is behind: an update
that Kafka got a minute after the delete would bring the row back. A pipeline that never gets to the end of its topics
forgets no delete.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sinks.clocks import said
from sinks.contract import Epoch, Position
from sinks.recreated import is_retired


def expires_before(retention: timedelta, epoch: Epoch | None, now: datetime) -> datetime | None:
    """Tombstones that were noted before this time expire as an epoch notes its deletes; None: none does.

    ``epoch``: None if a consumer group has the offsets, and nothing tells how far it has read."""
    if epoch is None:
        return now - retention
    read_to = _read_to(epoch.expected, now) if epoch.expected is not None else None
    return min(read_to, now) - retention if read_to is not None else None


def _read_to(position: Position, now: datetime) -> datetime | None:
    """All that Kafka held at this time was read, of every topic that may be read again, also of one that the file
    doesn't name now. A version that stored no such time is taken to have been at the end. Before ``began_at`` there was
    no delete, or a consumer group had the offsets: then what was due by the clock may expire. A time that is still to
    come is of a wrong clock, and so is that of its commit: it says nothing."""
    of_topics = [
        said(time, now)
        for topic, time in position.read_to_of.items()
        if topic not in position.gone and not is_retired(topic)
    ]
    stored = position.read_to or position.began_at
    common = said(position.read_to, now) or said(position.began_at, now) if stored else said(position.committed_at, now)
    times = [common, *of_topics]
    known = [time for time in times if time is not None]
    return min(known) if len(known) == len(times) else None
