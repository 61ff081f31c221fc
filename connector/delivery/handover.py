"""Hands the offsets over, once, when a pipeline changes its delivery.

``transactional`` keeps its offsets in the table. The other deliveries keep theirs in the consumer group, and in the
table only the offsets where they began. Each change is an epoch without rows, so the table says which delivery it
belongs to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timezone

from connector.delivery.ports import Work
from connector.protocol.recover import TopicsHeld, reached, refuse_forgotten, refuse_replaced, resumed
from connector.protocol.same_group import refuse_another_group, refuse_undone
from connector.protocol.steps import Event, Step
from connector.protocol.topic_ids import refuse_other_topics
from sinks.contract import Epoch, Position
from sinks.errors import Fenced, GroupActive, PositionMismatch
from sinks.gaps import joined, latest
from sinks.offsets import Offsets, TopicPartition
from sinks.recreated import is_retired

TRANSACTIONAL = "transactional"
EMPTY_WITHIN_SECONDS = 60.0
"""How long to wait for members to leave. A killed one stays for ``session.timeout.ms``, 45 seconds by default."""


def hand_over(work: Work, delivery: str) -> Position:
    """The position that ``delivery`` goes on from. Commits an epoch only if the table belongs to another delivery.

    The group must have no members meanwhile: a member that goes on would commit or write under the new delivery. Waits
    up to 60 seconds for them to leave.

    From ``transactional`` to a consumer group: first store the table's next offsets in the group, then commit the
    epoch.

    ====================  ==============================================================================================
    crash                 what is left
    ====================  ==============================================================================================
    before the group      The table is transactional. Nothing has changed.
    before the epoch      The group has the table's offsets, and the table is transactional. The next run does both
                          steps again, with the same offsets.
    after the epoch       The table belongs to the new delivery, and the group has its offsets.
    ====================  ==============================================================================================

    From a consumer group to ``transactional``: one step, an epoch that takes the group's offsets into the table. A
    crash before it leaves everything as it was; a crash after it leaves the table transactional. A batch that the group
    never committed may be in the table: where it is in sums, the epoch takes the offsets behind it.

    Raises GroupActive, Fenced, ConfigurationError if another group has the offsets, and what
    ``protocol.recover.resume`` raises.
    """
    deadline = time.monotonic() + EMPTY_WITHIN_SECONDS
    while True:
        position, held = work.destination.position(), work.topics.look()
        refuse_replaced(position)
        refuse_another_group(position, work.group.name, work.pipeline)
        refuse_undone(position, work.group.name)
        if position is not None and _stands(position, delivery):
            refuse_other_topics(position, held.ids)
            if not _lacks(position, held, work.group.committed):
                return position
        try:
            changes = (position is None or position.delivery != delivery) and not _of_rows(position)
            if changes and work.group.has_members():
                raise _active(work, delivery)
            epoch, note = _handed_over(work, delivery, position, held)
            committed = work.destination.run_epoch(epoch, 0)
        except GroupActive:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
            continue
        except (Fenced, PositionMismatch):
            # Another run of the group started at the same time and has committed the epoch first.
            winner = work.destination.position()
            if winner is None or not _stands(winner, delivery):
                raise
            continue
        work.observe(Event(Step.RESUMED, epoch, committed, note=note))
        return committed.position


def _stands(position: Position, delivery: str) -> bool:
    """Whether the table belongs to this delivery already, and its position is safe from Delta's retention for now."""
    return position.delivery == delivery and not is_due(position)


def _lacks(position: Position, held: TopicsHeld, committed: Callable[[], Offsets]) -> bool:
    """Whether a position whose offsets are in a consumer group doesn't name a topic, or a partition, that the group
    reads by now. Without the id a recreated topic would be taken for the old one; without the partition nobody would
    see that the group has forgotten it."""
    if position.delivery == TRANSACTIONAL:
        return False
    appeared = held.ends.keys() - position.offsets.keys()
    return not held.ids.keys() <= position.topics.keys() or (bool(appeared) and not appeared.isdisjoint(committed()))


def is_due(position: Position) -> bool:
    """Whether Delta may soon forget this position, so that `hand_over` writes it again."""
    return position.refresh_after is not None and datetime.now(timezone.utc) >= position.refresh_after


def _handed_over(work: Work, delivery: str, position: Position | None, held: TopicsHeld) -> tuple[Epoch, str]:
    before = position or Position(0, Offsets())
    stored, lost, missed, began_at = before.offsets, before.lost, before.missed, before.began_at
    read_to_of, kept = before.read_to_of, before.tombstones_kept
    if position is None or position.delivery == TRANSACTIONAL:
        known = work.group.committed() if _of_rows(position) else Offsets()
        stands = position.moved_to(position.offsets.join(known)) if position is not None else None
        resumption = resumed(stands, held, work.topics, continue_on_data_loss=work.continue_on_data_loss)
        offsets = resumption.offsets
        lost, missed = joined(lost, resumption.lost), latest(missed, resumption.missed)
        given = Offsets({**_left_behind(work, before, held), **offsets})
        if not known.reaches(given):
            work.group.store(given)
        note = f"consumer group {work.group.name} starts at {offsets.to_json()}"
    else:
        refuse_other_topics(position, held.ids)
        committed = work.group.committed(position.offsets.topics)
        if delivery == TRANSACTIONAL:
            refuse_forgotten(_left_behind(work, position, held), committed, work.group.name)
        offsets = reached(position, committed, held, work.group.name)
        # Nothing tells when the group's last batch was read. From now on it is known.
        began_at = held.asked_at
        read_to_of = {topic: before.read_to_of.get(topic) for topic in before.topics if topic not in held.ids}
        kept = {**{topic: kept[topic] for topic in read_to_of.keys() & kept.keys()}, **(held.keeps or {})}
        note = f"took the offsets of consumer group {work.group.name}, once: {offsets.to_json()}"
        if delivery == TRANSACTIONAL:
            # A batch that was written before a crash, and never committed, can't be told from others in a sum.
            added = work.destination.added(offsets.topics)
            further = Offsets({at: max(next_, added.get(at, 0)) for at, next_ in offsets.items()})
            if further != offsets:
                note += f". The groups have more than that: {further.to_json()}"
            offsets = further
    if position is not None and position.delivery != delivery and not _of_rows(position):
        note = f"delivery was {position.delivery}, is {delivery} from now on: {note}"
    epoch = replace(
        Epoch.of_no_records(before, pipeline=work.pipeline, owner=work.owner),
        expected=position,
        offsets=Offsets({**stored, **offsets}),
        topics={**before.topics, **held.ids},
        since=before.since if position else offsets,
        lost=lost,
        missed=missed,
        began_at=began_at,
        read_to_of=read_to_of,
        tombstones_kept=kept,
        delivery=delivery,
        group=work.group.name if delivery != TRANSACTIONAL else "",
        leaders=held.leaders,
        # The other deliveries look at no event time.
        clock=before.clock.without_times(),
    )
    return epoch, note


def _left_behind(work: Work, position: Position, held: TopicsHeld) -> Mapping[TopicPartition, int]:
    """The offsets of topics that the pipeline file doesn't name any more, and that Kafka still has: the file may name
    them again."""
    left = {
        at: next_ for at, next_ in position.offsets.items() if at.topic not in held.ids and not is_retired(at.topic)
    }
    gone = work.topics.deleted({at.topic for at in left}) if left else ()
    return {at: next_ for at, next_ in left.items() if at.topic not in gone}


def _of_rows(position: Position | None) -> bool:
    """Whether the table's history no longer says which delivery it belongs to, and the pipeline has committed to it.

    A run of a consumer group may have stayed up for longer than Delta keeps the history. The group's offsets are right
    then, also ahead of the rows, as some records give none; and its members may be at work.
    """
    return position is not None and position.source == "rows" and position.epoch > 0


def _active(work: Work, delivery: str) -> GroupActive:
    return GroupActive(
        f"Consumer group {work.group.name!r} still has members after {EMPTY_WITHIN_SECONDS:.0f} seconds. Pipeline "
        f"{work.pipeline!r} can't start as {delivery} while a run of another delivery may still commit or write.",
        hint="Stop the other runs of this pipeline. One that was killed leaves its group after session.timeout.ms. If "
        "something else uses this group, give the pipeline one of its own: `source: {kafka: {group.id: ...}}`.",
    )
