"""Topics that source.topics matches, that were read, and that Kafka no longer shows: may records be missing? Pure.

Only who has looked at a topic knows its end. A run remembers its last look at each topic. If the topic's end lay above
the position then, the records between are lost. If it didn't, the topic was read to its end. That is noted in the next
commit, as a later run can't know it any more. A run that never saw the topic knows only up to when an earlier one had
read everything, and notes that time: what was written later may be missing, and nobody can tell.

One look that lacks a topic doesn't show that it was deleted: a broker may not have heard of a new topic yet. So a topic
that the run has seen is gone only once a second look, some seconds later, lacks it as well.

A topic that was deleted and recreated between two looks is gone too, under its retired name (``sinks.recreated``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from connector.protocol.read_to import KeptSince, kept_since
from connector.protocol.recover import Resumption, TopicsHeld
from sinks.contract import Position
from sinks.errors import OffsetsLost
from sinks.offsets import OffsetRange, Offsets, TopicPartition
from sinks.plurals import first_of, plural
from sinks.recreated import is_retired, retired, topic_of

_SHOWN = 5
NEVER = datetime.fromtimestamp(0, timezone.utc)
"""Before all records: no run had read everything yet."""
_NOT_NOTED = object()
SURE_AFTER = timedelta(seconds=5)
"""From the first look that lacks a topic to the one that shows that it is gone. Brokers hear of a topic sooner."""


@dataclass(frozen=True)
class Seen:
    """A topic as a run has seen it last."""

    id: str
    ends: Offsets
    since: datetime | None
    """If a transaction was open: the time of the look, as what it held back wasn't in ``ends``. The same of the last
    look before a run ended, and another one began. None: that was all."""
    at: datetime
    """The time of the look. Of a topic that is gone: of the last one that was told so by name."""
    compacted: bool = False


@dataclass
class Looks:
    """What the looks of one run have seen, and those of the runs before it that one process has started again.

    ``asks_for``: whether a pattern in source.topics matches a name."""

    asks_for: Callable[[str], bool]
    _seen: dict[str, Seen] = field(default_factory=dict)
    """By name. One that was recreated since has its retired name."""
    _lacked: dict[str, datetime] = field(default_factory=dict)
    """The topics of ``_seen`` that the last looks lack -> the time of the first of these looks."""
    _gone: set[str] = field(default_factory=set)
    _hidden: set[str] = field(default_factory=set)
    """Those of ``_gone`` that the user may no longer see: one of the name may be there."""
    _kept: dict[str, KeptSince] = field(default_factory=dict)
    """What the looks of this run have said of tombstones."""

    def lacked_by(self, listed: Collection[str]) -> list[str]:
        """The topics that were seen, that a list of Kafka's topics lacks, and that aren't known to be gone; and those
        that are, if they were compacted: up to when none of the name was there says which deletes are seen.

        A list leaves out what the user may no longer see, without a word. So they have to be asked for by name.
        """
        done = {name for name in self._gone if not self._seen[name].compacted} | self._hidden
        return sorted(name for name in self._seen.keys() - done - {*listed} if not is_retired(name))

    def hides(self, topic: str) -> bool:
        """Whether a look goes on although the user may not see this topic. So it does where the topic is gone: its
        rights may be gone with it. Whether one of its name comes meanwhile, no look tells any more."""
        if topic not in self._gone:
            return False
        self._hidden.add(topic)
        return True

    def after(self, held: TopicsHeld) -> TopicsHeld:
        """``held`` with the topics that an earlier look has seen, and that it lacks, and with what all looks of the run
        have said of tombstones."""
        ends: dict[str, dict[TopicPartition, int]] = {topic: {} for topic in held.ids}
        for at, end in held.ends.items():
            ends[at.topic][at] = end
        open_ = {at.topic for at in held.held_back}
        before = {topic: self._seen[topic] for topic in held.ids if topic in self._seen}
        self._seen |= {retired(topic, seen.id): seen for topic, seen in before.items()}
        for topic, topic_id in held.ids.items():
            self._seen.pop(retired(topic, topic_id), None)
        self._seen |= {
            topic: Seen(
                topic_id,
                Offsets(ends[topic]),
                held.asked_at if topic in open_ else None,
                held.asked_at,
                topic in (held.keeps or ()),
            )
            for topic, topic_id in held.ids.items()
        }
        away = self._seen.keys() - held.ids.keys()
        self._lacked = {topic: self._lacked.get(topic, held.asked_at) for topic in away}
        self._gone = {topic for topic, first in self._lacked.items() if held.asked_at - first >= SURE_AFTER}
        self._hidden &= self._gone
        for topic in self._gone - self._hidden:
            if self._seen[topic].compacted and not is_retired(topic):
                self._seen[topic] = replace(self._seen[topic], at=held.asked_at)
        gone = {topic: self._seen[topic] for topic in self._gone}
        lacked = {topic: self._seen[topic] for topic in away - self._gone}
        self._kept |= kept_since(held, self._kept)
        kept = dict(self._kept)
        return replace(held, gone=gone, lacked=lacked, asks_for=self.asks_for, begins=self._begins, kept_since=kept)

    def lacks(self, topic: str, now: datetime) -> None:
        """A look has ended without this topic."""
        if topic in self._seen:
            self._lacked.setdefault(topic, now)

    def pause(self) -> None:
        """A run has ended, and the next one looks some time later: of what comes to a topic until then, and is deleted
        with it, nobody knows. A topic that the last look lacked had its end before."""
        for topic in self._seen.keys() - self._lacked.keys():
            seen = self._seen[topic]
            self._seen[topic] = replace(seen, since=seen.since or seen.at)
        self._kept = {}  # until then another process may run, whose looks see other times

    def _begins(self) -> None:
        for topic in self._lacked:
            del self._seen[topic]
        self._lacked, self._gone, self._hidden = {}, set(), set()


def with_gone(
    resumption: Resumption, position: Position | None, held: TopicsHeld, *, continue_on_data_loss: bool
) -> Resumption:
    """``resumption`` with what is lost of topics that are gone, and what the next commit has to note of them.

    A pipeline without a position begins with the topics that are there now. A position that isn't transactional doesn't
    tell how far its consumer group has read: it stays as it is. Raises OffsetsLost if records are lost, unless
    ``continue_on_data_loss``, or they are of a topic in a list that was recreated: see ``of_retired``.
    """
    if position is None:
        held.begins()
    if position is None or position.delivery != "transactional":
        return resumption
    lost: list[OffsetRange] = []
    notes: dict[str, datetime | None] = {}
    ids: dict[str, str] = {}
    for topic in sorted({*position.topics, *position.offsets.topics, *held.gone, *held.lacked}):
        if topic in held.ids or not (_of_its_own(topic, position, held) if is_retired(topic) else held.asks_for(topic)):
            continue
        if topic in held.lacked:
            perhaps = held.lacked[topic]
            # If this run ended before it is sure, verify would doubt only what the commit names and nobody vouches for.
            named = topic in position.offsets.topics or topic in position.gone
            doubted = named and position.gone.get(topic, NEVER) is not None
            if not doubted and _never_read(topic, perhaps, position):
                notes[topic], ids[topic] = NEVER, perhaps.id
            continue
        seen = held.gone.get(topic)
        if seen is None or position.topics.get(topic, seen.id) != seen.id:
            if topic not in position.gone:
                notes[topic] = _all_read_to(topic, position)
            continue
        never_read = _never_read(topic, seen, position)
        lost += never_read
        known = topic in position.topics or bool(never_read)
        if known and position.gone.get(topic, _NOT_NOTED) != seen.since:
            notes[topic], ids[topic] = seen.since, seen.id
    unsaid = [gap for gap in lost if held.asks_for(topic_of(gap.topic))]
    if unsaid and not continue_on_data_loss:
        raise _gone(unsaid)
    return replace(resumption, lost=(*resumption.lost, *lost), gone=notes, gone_ids=ids)


def _of_its_own(name: str, position: Position, held: TopicsHeld) -> bool:
    """Whether a recreated topic was seen of which the position knows nothing. Else its retirement says what is lost."""
    seen = held.gone.get(name) or held.lacked.get(name)
    stored = name in position.offsets.topics
    return seen is not None and not stored and position.topics.get(topic_of(name)) != seen.id


def of_retired(position: Position, held: TopicsHeld, names: Mapping[str, str], starts: Offsets) -> Resumption:
    """What is lost of recreated topics that retire to ``names``, and what to note of them, under these names.

    A new topic that has one of ``starts`` holds the records that the old one had left: nothing is lost. Of a topic in a
    list that no look has seen, nothing is noted: who takes in the new one was told, or has said so beforehand. So what
    is lost is named, and stops nothing.
    """
    lost: list[OffsetRange] = []
    notes: dict[str, datetime | None] = {}
    for topic, name in names.items():
        if topic in starts.topics or position.delivery != "transactional":
            continue
        seen = held.gone.get(name) or held.lacked.get(name)
        if seen is not None:
            lost += [replace(gap, topic=name) for gap in _never_read(topic, seen, position)]
            notes[name] = seen.since
        elif topic not in position.gone and held.asks_for(topic):
            notes[name] = _all_read_to(topic, position)
    return Resumption(Offsets(), lost=tuple(lost), gone=notes)


def _all_read_to(topic: str, position: Position) -> datetime:
    """The time up to which an earlier run had read everything of the topic."""
    common = position.read_to or NEVER
    return min(common, position.read_to_of.get(topic, common) or NEVER)


def _never_read(name: str, seen: Seen, position: Position) -> list[OffsetRange]:
    """A partition that the position lacks has appeared since, and stands at 0. One that was there at first stands where
    the pipeline began. ``name``: that of the topic in the position."""
    ends = {TopicPartition(name, at.partition): end for at, end in seen.ends.items()}
    starts = {at: max(position.offsets.get(at, 0), position.since.get(at, 0)) for at in ends}
    return [OffsetRange(*at, starts[at], end) for at, end in ends.items() if starts[at] < end]


def doubts(gone: Mapping[str, datetime | None]) -> str:
    """A sentence on the topics of which nobody knows whether they were read to their ends. Empty: there are none."""
    unknown = [f"{topic}{after(since)}" for topic, since in gone.items() if since is not None]
    if not unknown:
        return ""
    return (
        f"{plural(len(unknown), 'topic is', 'topics are')} gone from Kafka, and nobody can tell whether all records "
        f"were read: {first_of(unknown, _SHOWN)}. `lakelock verify` says UNKNOWN, and what to do."
    )


def after(since: datetime) -> str:
    """`` (after 2026-11-27 22:00:00 UTC)``: from when on it isn't known. Empty: from the beginning."""
    return f" (after {since:%Y-%m-%d %H:%M:%S} UTC)" if since > NEVER else ""


def _gone(lost: list[OffsetRange]) -> OffsetsLost:
    missing = first_of([f"[{gap.start}, {gap.end}) of {gap.topic}-{gap.partition}" for gap in lost], _SHOWN)
    return OffsetsLost(
        f"Topics were deleted with records that were never read, up to {sum(gap.span for gap in lost):,}: {missing}. "
        "This run has seen them in Kafka.",
        hint="Delete a topic only when `lakelock status` shows no lag for it. A new process doesn't know how far these "
        "topics went: its run goes on with a warning, and `lakelock verify` says UNKNOWN. With `source: {on_data_loss: "
        "continue}` in the file a run goes on at once, and its commit names the lost ranges.",
    )
