"""Decides where a run goes on, from what the sink holds and what Kafka holds, or why it must not. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from connector.protocol.read_to import kept_after, seen_to, shortest_kept, topics_with_rows
from connector.protocol.topic_ids import refuse_other_topics
from sinks.clocks import said
from sinks.contract import Position
from sinks.errors import OffsetsForgotten, OffsetsLost, TableReplaced
from sinks.offsets import OffsetRange, Offsets, TopicPartition
from sinks.plurals import plural, some_of

if TYPE_CHECKING:
    from connector.protocol.gone import Seen
    from connector.protocol.read_to import KeptSince

EndsOfLeaders = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]
"""For each partition and leader epoch: where the records up to that epoch end in the current log. -1: unknown."""


_SHOWN = 5


@dataclass(frozen=True)
class HeldBack:
    """What lies behind the first record of a transaction that hasn't ended: nobody may read it yet."""

    offsets: int
    since: datetime | None
    """Kafka's timestamp of that first record. None: it couldn't be read in time."""


@dataclass(frozen=True)
class TopicsHeld:
    """What Kafka holds of the pipeline's topics: every partition is in both ``beginnings`` and ``ends``."""

    beginnings: Offsets
    """The oldest offset that can still be read."""
    ends: Offsets
    """The next offset to be written, as far as a ``read_committed`` reader may read."""
    ids: Mapping[str, str]
    """Topic name -> topic id."""
    asked_at: datetime
    """The time right before Kafka was asked. All that Kafka held at that time lies before ``ends``, or is
    ``held_back``."""
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The leader epoch under which Kafka gave each partition's end. Without partitions whose broker doesn't say."""
    ends_of: EndsOfLeaders = field(default=lambda _: {}, repr=False, compare=False)
    held_back: Mapping[TopicPartition, HeldBack] = field(default_factory=dict)
    """What lies behind the ends of partitions with an open transaction."""
    clock: datetime | None = None
    """The time of the look, if ``asked_at`` is an earlier one: the look leaves out what came after that."""
    gone: Mapping[str, Seen] = field(default_factory=dict)
    """Topics that an earlier look of this run has seen, and that Kafka no longer has."""
    lacked: Mapping[str, Seen] = field(default_factory=dict)
    """Topics that an earlier look has seen, and that this one lacks, perhaps only for a moment."""
    asks_for: Callable[[str], bool] = field(default=lambda _: False, repr=False, compare=False)
    """Whether a pattern in source.topics matches a name. A topic in a list that is gone stops the run before."""
    begins: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """To be called where the pipeline has no position yet: topics that it lacks now won't be missed later."""
    keeps: Mapping[str, timedelta] | None = field(default_factory=dict)
    """Of the compacted topics, how long Kafka keeps a tombstone there. None: no sink has deletes, so that none can be
    missed, whatever an earlier file has stored."""
    kept_since: Mapping[str, KeptSince] = field(default_factory=dict)
    """What this look and the earlier ones of its run have said of each topic."""

    @property
    def looked_at(self) -> datetime:
        """The time of the look."""
        return self.clock or self.asked_at

    def that_knows(self, newer: TopicsHeld) -> TopicsHeld:
        """This look, with what a newer one of its run says of tombstones: they may have gone sooner meanwhile."""
        return replace(self, keeps=newer.keeps, kept_since=newer.kept_since)

    def backlog(self, read: Mapping[TopicPartition, int]) -> frozenset[TopicPartition]:
        """The partitions that hold more than what was ``read``, up to these next offsets.

        What an open transaction holds back counts: it is read once the transaction ends.
        """
        return frozenset(at for at, end in self.ends.items() if at in self.held_back or read.get(at, 0) < end)

    def complete_to(self, before: datetime | None, topic: str | None = None) -> datetime | None:
        """The time up to which everything that Kafka held was read, by one who has read up to ``ends``.

        ``before``: the answer of an earlier look; None: there was none. With ``topic`` it is of this one only.
        """
        before = said(before, self.looked_at)
        times = [back.since for at, back in self.held_back.items() if topic in (None, at.topic)]
        known = [self.asked_at, *(time for time in times if time is not None)]
        return before if None in times else max(min(known), before or min(known))


@dataclass(frozen=True)
class Remains:
    """What is left of a partition that has lost records before they were read."""

    start: int
    """Where reading goes on: at the partition's beginning, or later, as the oldest records may be gone before they are
    read."""
    oldest: datetime | None = None
    """Kafka's timestamp of the oldest record. None: there is no record."""


Remaining = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Remains]]


@dataclass(frozen=True)
class Resumption:
    """Where a run goes on reading."""

    offsets: Offsets
    """The next offset of every partition that Kafka has now, and of no other."""
    lost: tuple[OffsetRange, ...] = ()
    """Ranges that were never read and that Kafka no longer has."""
    missed: tuple[OffsetRange, ...] = ()
    """Ranges that are still to be read, and in which Kafka may have forgotten deletes."""
    gone: Mapping[str, datetime | None] = field(default_factory=dict)
    """What the next commit has to note of topics that are gone. See ``Position.gone``."""
    gone_ids: Mapping[str, str] = field(default_factory=dict)
    """Their ids, of those that this run has seen."""


def resume(
    position: Position | None,
    held: TopicsHeld,
    start: Callable[[], Offsets],
    remaining: Remaining,
    *,
    began: Callable[[], Offsets] = Offsets,
    continue_on_data_loss: bool = False,
) -> Resumption:
    """The next offset of every partition.

    This is how a run uses the rule "position". Without a position, ``start`` gives the configured starting offsets.
    Once there is a position, ``start`` has no say: a partition that isn't in the position has appeared since, and
    stands at offset 0. If Kafka has removed records of it meanwhile, they are lost like any other record. A position
    that only the table's rows show lacks the partitions that have no rows: they stand where the pipeline ``began``.
    Nothing is written here, so a crash right before or right after changes nothing.

    ``remaining`` is asked what is left of partitions that have lost records. With ``continue_on_data_loss`` the lost
    ranges are left out, and returned.

    Raises TableReplaced; what ``refuse_other_topics`` raises; OffsetsLost if Kafka's log was cut before the stored
    offset, or if it starts after it, or if deletes may be gone from it (the last two unless ``continue_on_data_loss``).
    """
    if position is None:
        started = start()
        return Resumption(Offsets({at: started.get(at, beginning) for at, beginning in held.beginnings.items()}))
    refuse_replaced(position)
    refuse_other_topics(position, held.ids)
    without_rows = position.source == "rows" and not held.beginnings.keys() <= position.offsets.keys()
    appeared = began() if without_rows else {}
    resumed = Offsets({at: position.offsets.get(at, appeared.get(at, 0)) for at in held.beginnings})
    for at, next_ in resumed.items():
        if next_ > held.ends[at]:
            raise _log_was_cut(at, next_, held)
    refuse_cut(position, held)
    return without_lost(resumed, position, held, remaining, continue_on_data_loss=continue_on_data_loss)


class Starts(Protocol):
    """Where reading begins, and what is left of what was lost, as ``resume`` asks for it."""

    def starting(self, held: TopicsHeld) -> Callable[[], Offsets]:
        """A function that gives the configured starting offsets, for a pipeline without a position."""
        ...

    def began(self, held: TopicsHeld) -> Callable[[], Offsets]:
        """A function that gives the offsets at which a pipeline began, whenever it is asked."""
        ...

    def remaining(self, held: TopicsHeld) -> Remaining:
        """A function that tells what is left of partitions that have lost records."""
        ...


def resumed(position: Position | None, held: TopicsHeld, topics: Starts, *, continue_on_data_loss: bool) -> Resumption:
    """As ``resume``, with what ``topics`` answers."""
    return resume(
        position,
        held,
        topics.starting(held),
        topics.remaining(held),
        began=topics.began(held),
        continue_on_data_loss=continue_on_data_loss,
    )


def without_lost(
    offsets: Offsets,
    position: Position | None,
    held: TopicsHeld,
    remaining: Remaining,
    *,
    continue_on_data_loss: bool,
) -> Resumption:
    """``offsets``, moved to where Kafka can still be read; the ranges that are left out; those that may lack deletes.

    Raises OffsetsLost if there are such ranges, unless ``continue_on_data_loss``.
    """
    lost = [
        OffsetRange(at.topic, at.partition, next_, held.beginnings[at])
        for at, next_ in offsets.items()
        if next_ < held.beginnings[at]
    ]
    remains = remaining([gap.at for gap in lost]) if lost else {}
    if lost and not continue_on_data_loss:
        raise _retention_passed(lost, held, remains, position)
    # Records that are left out on purpose count as lost too.
    skipped = [replace(gap, end=max(gap.end, min(remains[gap.at].start, held.ends[gap.at]))) for gap in lost]
    offsets = Offsets({**offsets, **{gap.at: gap.end for gap in skipped}})
    missed = _missed(offsets, position, held, continue_on_data_loss=continue_on_data_loss)
    return Resumption(offsets, tuple(skipped), missed)


def _missed(
    offsets: Offsets, position: Position | None, held: TopicsHeld, *, continue_on_data_loss: bool
) -> tuple[OffsetRange, ...]:
    """What is still to be read of compacted topics, if deletes of rows in the sink may be gone from it.

    Kafka removes what is older of a tombstone's key first, and the tombstone itself only delete.retention.ms later. So
    one that was written, or whose row was read, after some time is there for so long at least. See ``read_to.seen_to``.
    What the topic says by now is too long for tombstones from before somebody raised it. So the shortest time counts
    of those that are stored, and that looks of this run have said: not every look is followed by a plan.
    A consumer group has no such time: of a weaker delivery nobody knows.

    Raises OffsetsLost if there are such ranges, unless ``continue_on_data_loss``.
    """
    if position is None or position.delivery != "transactional" or held.keeps is None:
        return ()
    topics = topics_with_rows(position)
    # What has been passed is passed up to its end, in as many epochs as it takes.
    passing = {gap.at for gap in position.missed if gap.start <= offsets.get(gap.at, 0) < gap.end}
    waiting = [
        OffsetRange(*at, next_, held.ends[at])
        for at, next_ in offsets.items()
        if at.topic in topics and next_ < held.ends[at] and at not in passing
    ]
    names = {range_.topic for range_ in waiting}
    seen = {topic: seen_to(position, topic, held.looked_at) for topic in names}
    stored = {topic: time for topic, time in position.tombstones_kept.items() if topic in names}
    keeps = shortest_kept(stored, kept_after({}, names, seen, held))
    late = {
        topic: time for topic, kept in keeps.items() if (time := seen[topic]) is None or held.looked_at - time >= kept
    }
    missed = tuple(range_ for range_ in waiting if range_.topic in late)
    if missed and not continue_on_data_loss:
        known = [time for time in late.values() if time is not None]
        raise _deletes_gone(missed, keeps, min(known) if len(known) == len(late) else None)
    return missed


def refuse_replaced(position: Position | None) -> None:
    """Raises TableReplaced: the offsets belong to rows that somebody has replaced. Going on would hide a gap."""
    if position is not None and position.replaced:
        raise TableReplaced.by(position.replaced)


def refuse_cut(position: Position, held: TopicsHeld) -> None:
    """Raises OffsetsLost if a partition's log was cut below the stored offset and may have been filled again.

    That happens when a replica without the last records becomes leader: new records then take the offsets of the lost
    ones. Only partitions whose leader epoch has changed are checked, as a leader that is still the same has cut
    nothing. The check is that of Kafka's own followers (KIP-101): where did the records of the old leader epoch end?
    """
    new = {at: epoch for at, epoch in position.leaders.items() if held.leaders.get(at, epoch) != epoch}
    if new:
        refuse_refilled(position.offsets, held.ends_of(new))


def refuse_refilled(read: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
    """Raises OffsetsLost if the offsets ``read``, reached under earlier leaders, lie above where those leaders' records
    end.
    """
    for at, end in ends.items():
        if end < read.get(at, 0):
            raise OffsetsLost(
                f"{at.topic}-{at.partition} was cut at offset {max(end, 0)} and filled again, as after an unclean "
                f"leader election. The records that it holds below offset {read[at]} aren't those of the table.",
                hint="`lakelock rewind` takes the table back to an epoch before that offset, and reads on from there. "
                "Or write the topic to a new table (another path or table name).",
            )


def _retention_passed(
    lost: list[OffsetRange], held: TopicsHeld, remains: Mapping[TopicPartition, Remains], position: Position | None
) -> OffsetsLost:
    missing = "; ".join(
        f"{gap.topic}-{gap.partition}: the table wants offset {gap.start} next, Kafka holds "
        f"[{gap.end}, {held.ends[gap.at]}), so [{gap.start}, {gap.end}) is missing, up to {plural(gap.span, 'record')}"
        f"{_before(remains[gap.at])}"
        for gap in lost
    )
    since = position.read_to if position else None
    complete = f" All that Kafka held at {_time(since)} is in the table." if since else ""
    return OffsetsLost(
        f"Records that were never read are no longer in Kafka, up to {sum(gap.span for gap in lost):,} in "
        f"{plural(len(lost), 'partition')}. {missing}.{complete}",
        hint="To go on with what Kafka holds, and without what is missing, run once with "
        "`source: {on_data_loss: continue}` and `trigger: available_now`: the commit will name the lost ranges. "
        "Where retention is close behind, `on_data_loss: {continue: 10 minutes}` starts that long ahead of the "
        "oldest record.",
    )


def _deletes_gone(missed: Sequence[OffsetRange], keeps: Mapping[str, timedelta], since: datetime | None) -> OffsetsLost:
    shown = some_of([str(range_) for range_ in missed], _SHOWN)
    known = f" since {_time(since)}" if since else ""
    times = ", ".join(f"{topic}: {keeps[topic]}" for topic in sorted({range_.topic for range_ in missed}))
    return OffsetsLost(
        f"Deletes{known} may be gone from compacted topics before they were read: {shown}. Kafka keeps a tombstone for "
        f"delete.retention.ms only ({times}; the shortest that was seen since then), and without it the deleted row "
        "would stay in the table.",
        hint="`lakelock replay` reads the topics into a new table, which has no such row. To go on with what Kafka "
        "holds, run once with `source: {on_data_loss: continue}` and `trigger: available_now`: the commit "
        "will name the ranges, and `lakelock verify` counts the rows that may have been deleted as doubtful. "
        "Then run more often, or raise delete.retention.ms for the deletes to come; it brings back none that is gone.",
    )


def _before(remains: Remains) -> str:
    return f", written before {_time(remains.oldest)} (the oldest record there)" if remains.oldest else ""


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _log_was_cut(at: TopicPartition, wanted: int, held: TopicsHeld) -> OffsetsLost:
    return OffsetsLost(
        f"{at.topic}-{at.partition} ends before the table's offsets: the table wants offset {wanted} next, Kafka "
        f"holds [{held.beginnings[at]}, {held.ends[at]}). The topic lost records that the table has, and may give "
        "their offsets to new ones.",
        hint="Restore the topic, or write it to a new table (another path or table name).",
    )


def reached(position: Position, committed: Offsets, held: TopicsHeld, group: str) -> Offsets:
    """The next offsets of a pipeline that keeps them in a consumer group since ``position``, of all its partitions.

    ``committed``: those that the group has. It got one of every partition when they were handed over to it. Raises
    OffsetsForgotten if it has one no more: the position alone would give everything since then once more.
    """
    known = {
        at: next_
        for at, next_ in position.offsets.items()
        if at in held.ends and position.topics.get(at.topic) == held.ids[at.topic]
    }
    refuse_forgotten(known, committed, group)
    return position.offsets.join(committed)


def refuse_forgotten(known: Mapping[TopicPartition, int], committed: Offsets, group: str) -> None:
    """Raises OffsetsForgotten if a consumer group has no offset any more of a partition that it got one of.

    ``known``: those partitions; ``committed``: the offsets that it has.
    """
    forgotten = sorted(known.keys() - committed.keys())
    if forgotten:
        shown = some_of([f"{at.topic}-{at.partition}" for at in forgotten], _SHOWN)
        raise OffsetsForgotten(
            f"Consumer group {group!r} has no offset of {shown} any more, and only it knew how far the pipeline "
            "had read: records would be written once more.",
            hint="Kafka forgets the offsets of a group without members after offsets.retention.minutes. Set them again "
            "with `kafka-consumer-groups.sh --reset-offsets`: the highest _offset of each partition in the table, plus "
            "1, is where to go on.",
        )


def behind(offsets: Offsets, held: TopicsHeld) -> int:
    """The offsets from ``offsets`` to the last ones that are written: an upper bound on the records still to come."""
    return readable(offsets, held) + sum(back.offsets for back in held.held_back.values())


def readable(offsets: Offsets, held: TopicsHeld) -> int:
    """The offsets from ``offsets`` to the ends of the topics, without those that an open transaction holds back."""
    return sum(max(0, end - offsets.get(at, held.beginnings.get(at, 0))) for at, end in held.ends.items())
