"""A topic that was deleted and made again: its predecessor retires, in an epoch that reads nothing. Pure.

After it the position, and with it whatever the table holds of the old topic, bears a name that no topic can have (see
``sinks.recreated``), and the new topic begins at its beginning: all that is in it came after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from connector.protocol.recover import TopicsHeld
from sinks.contract import Epoch, Position
from sinks.offsets import Offsets, TopicPartition
from sinks.recreated import retired


def recreated(position: Position, held: TopicsHeld) -> Mapping[str, str]:
    """Topics that have another id than the one that the offsets belong to -> the name that the old one gets."""
    return {
        topic: retired(topic, topic_id)
        for topic, topic_id in position.topics.items()
        if topic in held.ids and held.ids[topic] != topic_id
    }


def of_unknown_id(position: Position, held: TopicsHeld) -> frozenset[str]:
    """Topics of which the position has offsets, and doesn't say which topic of that name they belong to: it was found
    from the table's rows, until the next commit."""
    return frozenset(at.topic for at in position.offsets if at.topic in held.ids and at.topic not in position.topics)


def retirement(
    pipeline: str, owner: str, position: Position, held: TopicsHeld, names: Mapping[str, str], starts: Offsets
) -> Epoch:
    """The epoch after which the old topics have these names, and the new ones are to be read from ``starts``, or from
    offset 0: what Kafka has removed of them meanwhile is lost, and the next epoch's plan says so."""

    def moved(offsets: Offsets) -> Offsets:
        old = {TopicPartition(names.get(at.topic, at.topic), at.partition): offset for at, offset in offsets.items()}
        new = {at: starts.get(at, 0) for at in held.beginnings if at.topic in names}
        return Offsets({**old, **new})

    epoch = Epoch.of_no_records(position, pipeline=pipeline, owner=owner)
    return replace(
        epoch,
        offsets=moved(position.offsets),
        topics={
            **{names.get(topic, topic): topic_id for topic, topic_id in position.topics.items()},
            **{topic: held.ids[topic] for topic in names},
        },
        since=moved(position.since),
        lost=tuple(replace(gap, topic=names.get(gap.topic, gap.topic)) for gap in position.lost),
        delivery=position.delivery,
        leaders={**{at: epoch for at, epoch in position.leaders.items() if at.topic not in names}, **held.leaders},
        # The old topic brings nothing more: it must not hold the watermark back.
        clock=replace(
            epoch.clock, so_far={at: seen for at, seen in epoch.clock.so_far.items() if at.topic not in names}
        ),
    )
