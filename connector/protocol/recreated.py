"""A recreated topic: its predecessor retires, in an epoch that reads nothing. Pure.

After that epoch the position, and whatever the table holds of the old topic, has a name that no topic can have (see
``sinks.recreated``). The new topic is read from its beginning, because all of its records came later.

That isn't so of a topic that has retired before, as where producers move to another cluster and back. Its first records
are in the sink, and older than those of the topic that was read meanwhile. To go on behind them would be right for
updates, but not where its offsets have been taken by copies of the other topic's records, and nobody but
``lakelock translate`` can tell. So it has to be told where to go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from connector.protocol.gone import of_retired
from connector.protocol.read_to import seen_to
from connector.protocol.recover import TopicsHeld
from connector.protocol.topic_ids import came_back
from sinks.contract import Epoch, Position
from sinks.gaps import joined
from sinks.offsets import OffsetRange, Offsets, TopicPartition
from sinks.recreated import retired


def recreated(position: Position, held: TopicsHeld) -> Mapping[str, str]:
    """Topics whose id in Kafka isn't the one that the offsets belong to -> the name that the old topic gets."""
    return {
        topic: retired(topic, topic_id)
        for topic, topic_id in position.topics.items()
        if topic in held.ids and held.ids[topic] != topic_id
    }


def of_unknown_id(position: Position, held: TopicsHeld) -> frozenset[str]:
    """Topics of which the position has offsets, but no topic id.

    That is so if the position was found from the table's rows, until the next commit.
    """
    return frozenset(at.topic for at in position.offsets if at.topic in held.ids and at.topic not in position.topics)


def retirement(
    pipeline: str,
    owner: str,
    position: Position,
    held: TopicsHeld,
    names: Mapping[str, str],
    starts: Offsets,
) -> Epoch:
    """The epoch after which the old topics have the names ``names``, and the new ones are read from ``starts``.

    A topic that isn't in ``starts`` is read from offset 0. If Kafka has removed records of it meanwhile, the plan of
    the next epoch reports them as lost. The epoch is one commit: a crash before it leaves the old names, and the next
    run retires the topics again; a crash after it leaves the new names.

    What this run has seen of an old one, and not read, is named as lost. Raises TopicRecreated if a new one has retired
    before, and would be read again.
    """
    _refuse_read_again(position, held, names, starts)
    ended = of_retired(position, held, names, starts)

    def moved(offsets: Offsets, of_both: Callable[[int, int], int]) -> Offsets:
        stored: dict[TopicPartition, int] = {}
        for at, offset in offsets.items():
            name = TopicPartition(names.get(at.topic, at.topic), at.partition)
            # A topic that came back, and retires again, has its name already.
            stored[name] = of_both(stored[name], offset) if name in stored else offset
        new = {at: starts.get(at, 0) for at in held.beginnings if at.topic in names}
        return Offsets({**stored, **new})

    epoch = Epoch.of_no_records(position, pipeline=pipeline, owner=owner)
    return replace(
        epoch,
        offsets=Offsets({**moved(position.offsets, max), **{gap.at: gap.end for gap in ended.lost}}),
        topics={
            **{names.get(topic, topic): topic_id for topic, topic_id in position.topics.items()},
            **{topic: held.ids[topic] for topic in names},
        },
        since=moved(position.since, min),
        lost=joined(_renamed(position.lost, names), ended.lost),
        missed=_renamed(position.missed, names),
        gone={**{names.get(topic, topic): since for topic, since in position.gone.items()}, **ended.gone},
        delivery=position.delivery,
        # Those of other topics stay: they tell whether a log was cut.
        leaders={
            **{at: epoch for at, epoch in position.leaders.items() if at.topic not in names},
            **{at: epoch for at, epoch in held.leaders.items() if at.topic in names},
        },
        clock=epoch.clock.without_topics(names),
        tombstones_kept={
            **position.tombstones_kept,
            **{names[topic]: kept for topic, kept in position.tombstones_kept.items() if topic in names},
        },
        read_to_of={
            **{names.get(topic, topic): time for topic, time in position.read_to_of.items()},
            **{name: seen_to(position, topic, held.looked_at) for topic, name in names.items()},
            **{topic: _deletes_seen_to(position, topic, name, held, starts) for topic, name in names.items()},
        },
    )


def _renamed(gaps: Sequence[OffsetRange], names: Mapping[str, str]) -> tuple[OffsetRange, ...]:
    return tuple(replace(gap, topic=names.get(gap.topic, gap.topic)) for gap in gaps)


def _deletes_seen_to(position: Position, topic: str, name: str, held: TopicsHeld, starts: Offsets) -> datetime | None:
    """No delete in the new topic is unseen by then. With ``starts`` its records are those that the old one had left.
    Else it came later than any look that has seen the old one, or was told that none is there."""
    seen = None if topic in starts.topics else held.gone.get(name) or held.lacked.get(name)
    times = (seen_to(position, topic, held.looked_at), seen.at if seen is not None else None)
    return max((time for time in times if time is not None), default=None)


def _refuse_read_again(position: Position, held: TopicsHeld, names: Mapping[str, str], starts: Offsets) -> None:
    for at in held.beginnings:
        before = TopicPartition(retired(at.topic, held.ids[at.topic]), at.partition)
        if at.topic in names and starts.get(at, 0) < position.offsets.get(before, 0):
            raise came_back(at.topic, position.topics[at.topic], held.ids[at.topic])
