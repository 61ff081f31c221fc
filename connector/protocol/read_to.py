"""Up to which time a position has seen the deletes of each topic. Pure.

Kafka keeps a tombstone of a compacted topic for ``delete.retention.ms`` only. So a run compares that with the time at
which a look last found everything of the topic in the sink. Mostly that is one time for all topics, ``read_to``. A
topic that looks lack, or that has more to read than the others, keeps a time of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from sinks.clocks import said
from sinks.contract import Position
from sinks.offsets import OffsetRange, TopicPartition
from sinks.recreated import topic_of

if TYPE_CHECKING:
    from connector.protocol.recover import TopicsHeld

KeptSince = tuple[tuple[datetime, timedelta], ...]
"""Times of looks at a topic, in order, each with the shortest ``delete.retention.ms`` that the looks from then on have
said. Only times after which that is longer. ``_NOT_COMPACTED``: they said that it isn't compacted."""

_NOT_COMPACTED = timedelta.max
_LATER = timedelta(minutes=1)
"""A topic's own time isn't worth keeping for less. It is taken to be the common one, which is earlier."""
_SHORT = timedelta(seconds=20)
"""Where tombstones stay for less, no epoch is committed for the time alone: there would be too many."""


def ahead(position: Position, now: datetime) -> datetime | None:
    """The last of the position's times that are still to come. None: there is none."""
    times = [time for time in (position.read_to, position.began_at, *position.read_to_of.values()) if time is not None]
    return max((time for time in times if said(time, now) is None), default=None)


def seen_to(position: Position, topic: str, now: datetime) -> datetime | None:
    """No delete of this topic is unseen by then: what was deleted before isn't in the sink. None: nothing tells.

    All that Kafka held at ``read_to`` is in the sink, and no row was read before ``began_at``. A version that stored
    neither is taken to have come in time: its commit tells when. ``read_to`` of version 0.2 is of the topics of its
    look, and nothing tells which these were. Each is taken for one of them: else one that rests would stop the first
    run.
    """
    if topic in position.read_to_of:
        return said(position.read_to_of[topic], now)
    stored = [time for time in (position.read_to, position.began_at) if time is not None]
    times = stored or ([position.committed_at] if position.committed_at is not None else [])
    return max((time for time in times if said(time, now) is not None), default=None)


def topics_with_rows(position: Position) -> set[str]:
    """The topics of which the sink may have rows. A recreated one has those of the topic before it: its records are of
    the same keys."""
    read = {at.topic for at in position.partitions_read}
    return read | {topic_of(topic) for topic in read}


class Times(NamedTuple):
    """The fields of a position that tell times."""

    read_to: datetime | None
    began_at: datetime | None
    read_to_of: Mapping[str, datetime | None]
    tombstones_kept: Mapping[str, timedelta]


def times_after(
    before: Position | None,
    ranges: Collection[OffsetRange],
    read: Mapping[TopicPartition, int],
    held: TopicsHeld,
    now: datetime,
) -> Times:
    """The times of the position that comes after ``before``, once ``ranges`` are read, up to the next offsets ``read``.

    A topic that is read for the first time has no row from before ``now``.
    """
    topics = topics_with_rows(before) if before is not None else set()
    began_at: datetime | None = now
    read_to, own = None, dict[str, datetime | None]()
    if before is not None:
        began_at = said(before.began_at, now) if topics else now
        read_to = said(before.read_to, now)
        own = {topic: seen_to(before, topic, now) for topic in {*topics, *before.read_to_of}}
    first = {range_.topic for range_ in ranges} - topics
    own |= dict.fromkeys(first, now)
    waiting = {at.topic for at, end in held.ends.items() if read.get(at, -1) < end}
    complete = own.keys() & held.ids.keys() - waiting
    own |= {topic: held.complete_to(own[topic], topic) for topic in complete}
    found = {**{topic: held.complete_to(None, topic) for topic in complete}, **dict.fromkeys(first, now)}
    shortest = kept_after(before.tombstones_kept if before is not None else {}, own.keys(), found, held)
    read_to = read_to if waiting else held.complete_to(read_to)
    common = max((time for time in (read_to, began_at) if time is not None), default=None)
    kept = {topic: time for topic, time in sorted(own.items()) if not _is_common(time, common)}
    return Times(read_to, began_at, kept, shortest)


def kept_since(held: TopicsHeld, earlier: Mapping[str, KeptSince]) -> dict[str, KeptSince]:
    """Of the topics of this look, what it and the ``earlier`` looks say of tombstones."""
    if held.keeps is None:
        return {}
    now = {topic: held.keeps.get(topic, _NOT_COMPACTED) for topic in held.ids}
    after = {}
    for topic, time in now.items():
        before = earlier.get(topic, ())
        shorter = tuple(each for each in before if each[1] < time)
        # This look's time counts from the first look on that said no less.
        since = before[len(shorter)][0] if len(shorter) < len(before) else held.looked_at
        after[topic] = (*shorter, (since, time))
    return after


def kept_after(
    stored: Mapping[str, timedelta],
    topics: Collection[str],
    found: Mapping[str, datetime | None],
    held: TopicsHeld,
) -> Mapping[str, timedelta]:
    """The shortest times for which these topics may have kept a delete that isn't in the sink.

    Of a topic that is read up to a time, as ``found`` now, only that counts which has been so since the last look
    before it: a longer time may have begun right before the look that told of it. What is ``stored`` counts until then.
    An open transaction lets everything be found up to before the look only, so one look alone wouldn't do.
    """
    if held.keeps is None:
        return {}
    looks = held.kept_since or kept_since(held, {})
    kept = {}
    for topic in sorted(topics):
        steps = looks.get(topic, ())
        to = found.get(topic)
        since = [time for at, time in steps if to is not None and at <= to]
        # Without such a look of this run, all that is known counts.
        times = since[-1:] or [stored.get(topic, _NOT_COMPACTED), *(time for _, time in steps)]
        if min(times) < _NOT_COMPACTED:
            kept[topic] = min(times)
    return kept


def shortest_kept(stored: Mapping[str, timedelta], now: Mapping[str, timedelta]) -> Mapping[str, timedelta]:
    """For how long Kafka has kept tombstones at least. A topic that isn't compacted by now was when that was stored."""
    return {**now, **{topic: min(time, now.get(topic, time)) for topic, time in stored.items()}}


def _is_common(time: datetime | None, common: datetime | None) -> bool:
    return time is not None and common is not None and common <= time < common + _LATER


def times_of(position: Position) -> Times:
    """The times that a position tells."""
    return Times(position.read_to, position.began_at, position.read_to_of, position.tombstones_kept)


def looked(position: Position, read: Mapping[TopicPartition, int], held: TopicsHeld) -> Position:
    """``position``, with what a look says of it. ``read``: the next offset of every partition that Kafka has."""
    return replace(position, **times_after(position, (), read, held, held.looked_at)._asdict())


def wants_renewal(stored: Position, known: Position, held: TopicsHeld) -> bool:
    """Whether the times that the sink has stored are to be replaced by those that are ``known``, though there is no
    record to read. Else a topic that rests for ``delete.retention.ms`` would look like a pipeline that rests.

    They are once half of that time has passed, for any compacted topic.
    """
    keeps = shortest_kept(stored.tombstones_kept, held.keeps) if held.keeps is not None else {}
    for topic in topics_with_rows(stored) & held.ids.keys() & keeps.keys():
        time = keeps[topic]
        old, new = (seen_to(each, topic, held.looked_at) for each in (stored, known))
        if time >= _SHORT and new is not None and (old is None or new - old >= time / 2):
            return True
    return False


def of_wrong_clock(position: Position, time: datetime) -> str:
    """What to say of a time of the position that is still to come, as ``ahead`` gives it."""
    return (
        f"the commit of epoch {position.epoch} says {time:%Y-%m-%d %H:%M:%S} UTC, which is still to come: the clock of "
        "the machine that wrote it was ahead, or this one's is behind. The time isn't used"
    )
