"""Where a run goes on: from what the sink holds and what Kafka holds, or why it must not. Pure decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sinks.contract import Position
from sinks.errors import OffsetsLost, TopicRecreated
from sinks.offsets import OffsetRange, Offsets, TopicPartition


@dataclass(frozen=True)
class TopicsHeld:
    """What Kafka holds of the pipeline's topics: every partition is in both ``beginnings`` and ``ends``."""

    beginnings: Offsets
    """Oldest offset that can still be read."""
    ends: Offsets
    """Next offset to be written, as far as a ``read_committed`` reader may read."""
    ids: Mapping[str, str]
    """Topic name -> topic id."""
    asked_at: datetime
    """Taken before Kafka was asked: all that it held by then lies before ``ends``."""


@dataclass(frozen=True)
class Resumption:
    offsets: Offsets
    """Next offset per partition, for every partition that Kafka has now, and for none that it hasn't."""
    lost: tuple[OffsetRange, ...] = ()
    """Ranges that were never read and that Kafka no longer has."""


def resume(
    position: Position | None,
    held: TopicsHeld,
    start: Callable[[frozenset[str]], Offsets],
    *,
    continue_on_data_loss: bool = False,
) -> Resumption:
    """The next offset of every partition.

    ``start`` gives the configured starting offsets of topics that have no stored position at all. A partition that
    was added to a topic with a stored position is read from its beginning, whatever ``start`` says: all that is in
    it came after.

    Raises TopicRecreated; OffsetsLost where Kafka's log ends before the stored offset, or starts behind it (the
    latter unless ``continue_on_data_loss``).
    """
    stored = position.offsets if position else Offsets()
    refuse_recreated(position.topics if position else {}, held.ids)

    started = start(held.beginnings.topics - stored.topics)
    resumed: dict[TopicPartition, int] = {}
    lost: list[OffsetRange] = []
    for at, beginning in held.beginnings.items():
        wanted = stored.get(at, started.get(at, beginning))
        if at in stored and wanted > held.ends[at]:
            raise _log_was_cut(at, wanted, held)
        if at in stored and wanted < beginning:
            lost.append(OffsetRange(at.topic, at.partition, wanted, beginning))
            wanted = beginning
        resumed[at] = wanted
    if lost and not continue_on_data_loss:
        raise _retention_passed(lost, held)
    return Resumption(Offsets(resumed), tuple(lost))


def refuse_recreated(stored: Mapping[str, str], current: Mapping[str, str]) -> None:
    """Offsets belong to one topic id: a topic that was deleted and made again under its name starts over."""
    for topic, topic_id in stored.items():
        if topic in current and current[topic] != topic_id:
            raise TopicRecreated(
                f"Topic {topic!r} was deleted and made again: the table's offsets belong to topic id {topic_id}, "
                f"Kafka now has {current[topic]}. Compared with the old offsets, new records would be taken for "
                "old ones and dropped.",
                hint="Write the new topic to a new table (another path or table name).",
            )


def _retention_passed(lost: list[OffsetRange], held: TopicsHeld) -> OffsetsLost:
    missing = "; ".join(
        f"{gap.topic}-{gap.partition}: the table wants offset {gap.start} next, Kafka holds "
        f"[{gap.end}, {held.ends[gap.at]}), so [{gap.start}, {gap.end}) is missing, up to {gap.span:,} records"
        for gap in lost
    )
    return OffsetsLost(
        f"Records that were never read are no longer in Kafka. {missing}.",
        hint="To go on with what Kafka holds, and without what is missing, run once with "
        "`source: {on_data_loss: continue}`: the commit will name the lost ranges.",
    )


def _log_was_cut(at: TopicPartition, wanted: int, held: TopicsHeld) -> OffsetsLost:
    return OffsetsLost(
        f"{at.topic}-{at.partition} ends before the table's offsets: the table wants offset {wanted} next, Kafka "
        f"holds [{held.beginnings[at]}, {held.ends[at]}). The topic lost records that the table has, and may give "
        "their offsets to new ones.",
        hint="Restore the topic, or write it to a new table (another path or table name).",
    )
