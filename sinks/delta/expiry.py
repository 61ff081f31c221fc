"""Which tombstones expire, and which of those that are kept aside no RESTORE can need any more. Pure.

A delete is remembered for ``tombstone_retention``, counted up to the time until which the pipeline has read everything.
By the clock alone it wouldn't be remembered at all where a pipeline has stood still for longer, or is behind: an update
that Kafka got a minute after the delete would bring the row back. A pipeline that never gets to the end of its topics
forgets no delete.

What expires is kept aside, as a RESTORE may take the table, and its offsets, back to before: then the records are read
again that the delete is there for.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sinks.contract import Epoch, Position
from sinks.delta.detail import Detail
from sinks.delta.kept_deletes import read_to
from sinks.recreated import is_retired

_SLACK = timedelta(days=7)
"""Delta cleans its log now and then, and a pipeline may have been behind when it committed the oldest version."""
_CLEANS = "delta.enableExpiredLogCleanup"


@dataclass(frozen=True)
class Due:
    """What expires now."""

    before: datetime
    """Tombstones that were noted before this time."""
    read_to: datetime
    """The time up to which everything was read."""
    at: int | None = None
    """The number of the epoch that lets them expire: they are kept aside for a RESTORE to an earlier one. None: the
    offsets are a consumer group's, which no RESTORE takes back, and they are deleted."""

    def gone(self, detail: Detail) -> datetime | None:
        """The tombstones aside that are older than this are deleted: the table can't go back to where they counted.
        None: it always can."""
        if detail.properties.get(_CLEANS, "true").lower() == "false":
            return None
        return self.before - detail.log_retention - _SLACK

    def whole_after(self, detail: Detail) -> datetime:
        """What a table must have read to have all its deletes, once those are ``gone``."""
        gone = self.gone(detail)
        return self.read_to if gone is None else gone + (self.read_to - self.before)


def due(retention: timedelta, epoch: Epoch | None, now: datetime) -> Due | None:
    """What expires as an epoch notes its deletes; None: nothing. ``epoch``: None if a consumer group has the offsets,
    and nothing tells how far it has read."""
    if epoch is None:
        return Due(now - retention, now)
    known = _read_to_of_all(epoch.expected) if epoch.expected is not None else None
    if known is None:
        return None
    known = min(known, now)
    return Due(known - retention, known, epoch.number)


def _read_to_of_all(position: Position) -> datetime | None:
    """The time up to which every topic was read that may be read again, also one that the file doesn't name now."""
    of_topics = [
        time for topic, time in position.read_to_of.items() if topic not in position.gone and not is_retired(topic)
    ]
    times = [read_to(position), *of_topics]
    known = [time for time in times if time is not None]
    return min(known) if len(known) == len(times) else None
