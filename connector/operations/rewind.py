"""Rewinds a table to an earlier version, from which the next run reads again.

A stretch of time is read into a new table by ``Pipeline.replay``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Protocol

from connector.config import PipelineConfig
from connector.delivery.ports import Work
from connector.display import Line, Page, Shown
from connector.engine.assembly import Assembly
from connector.engine.settled import without_query
from connector.operations.rewind_refused import NothingToRewind, not_in_kafka, would_lose
from connector.protocol.recover import Starts, TopicsHeld, resumed
from connector.protocol.recreated import recreated
from connector.protocol.steps import Observer
from sinks.contract import Epoch, Position
from sinks.delta.commit import PipelineCommits
from sinks.delta.restore import BY_REWIND, Target, before_event_time, before_offsets, of_epoch, restore
from sinks.delta.table import DeltaTable
from sinks.errors import ConfigurationError, OffsetsLost
from sinks.offsets import OffsetRange, Offsets
from sinks.plurals import plural
from sinks.recreated import is_retired
from sinks.s3.hadoop import require_conditional_writes


class Topics(Starts, Protocol):
    """What a rewind asks the source about Kafka's topics."""

    def deleted(self, topics: Collection[str]) -> Collection[str]:
        """Those of these topics that Kafka doesn't have."""
        ...

    def cleanup_policies(self, topics: Collection[str]) -> Mapping[str, str | None]:
        """The ``cleanup.policy`` of each of these topics. None: it can't be read."""
        ...

    def at(self, when: datetime, held: TopicsHeld) -> Offsets:
        """Per partition, the offset of the first record at or after ``when``, or the end if there is none."""
        ...


_EARLIEST = datetime.fromtimestamp(0, timezone.utc)
_GIVEN_UP = (
    "Kafka no longer holds it, and no run reads it again. A gap that retention has left is passed only with "
    "source.on_data_loss=continue"
)


@dataclass(frozen=True)
class WhereTo:
    """Where a rewind is to go: one of the first three."""

    event_time: datetime | None = None
    version: int | None = None
    epoch: int | None = None
    allow_data_loss: bool = False
    """Whether the tables may give up records that Kafka doesn't hold any more."""


def one_goal(
    config: PipelineConfig,
    event_time: datetime | None,
    version: int | None,
    epoch: int | None,
    *,
    allow_data_loss: bool = False,
) -> WhereTo:
    """Where to go. Raises ConfigurationError unless exactly one is given, of those that this pipeline has."""
    if [event_time, version, epoch].count(None) != 2:
        raise ConfigurationError("Give one of them to go back to: an event time, an epoch or a version.")
    if version is not None and config.two_phase:
        raise ConfigurationError(
            f"Pipeline {config.name!r} has several sinks, and each has versions of its own.",
            hint="Name an epoch, which all of them have: --to-epoch N. `lakelock history FILE` shows them.",
        )
    return WhereTo(event_time, version, epoch, allow_data_loss)


@dataclass(frozen=True, repr=False)
class Rewind(Shown):
    """The plan of a rewind, which the user confirms before anything is done."""

    position: Position
    target: Target
    next_offsets: Offsets
    """Where the next run goes on reading."""
    again: int
    """The number of offsets that the next run reads again: an upper bound on the records."""
    clock: str | None = None
    """By which time the version was found, in words. None: by its number."""
    done: bool = False
    """Whether it was carried out."""
    tables: Mapping[str, int] = field(default_factory=dict)
    """Of several tables, the version that each goes back to."""
    lost: Sequence[OffsetRange] = ()
    """What the tables give up for good: Kafka no longer holds it."""
    compacted: Sequence[str] = ()
    """Why records may be lost of topics that are read again, in words: Kafka may have compacted them."""
    others: Sequence[str] = ()
    """What it takes back that isn't of this pipeline, in words."""
    in_doubt: int | None = None
    """An epoch that is decided, and may not be in all tables yet: it is settled, or given up, before anything else."""

    def page(self) -> Page:
        """Where the table stands, and where the rewind takes it."""
        stands, target = self.position, self.target
        what = f"epoch {target.epoch}" if target.epoch else "no epoch yet"
        here, there = (
            "" if version is None else f"version {version}, " for version in (stands.version, target.version)
        )
        lines = [
            Line("now", f"{here}epoch {stands.epoch}, next {stands.offsets.to_json()}"),
            *([Line("time", self.clock)] if self.clock is not None else []),
            Line("back to", f"{there}{what}, next {self.next_offsets.to_json()}"),
            *(Line("table", f"{name}: version {version}") for name, version in self.tables.items()),
            *(Line("also", f"takes back {what}") for what in self.others),
            *self._first(),
            Line("again", f"{plural(self.again, 'offset is', 'offsets are')} read once more by the next run"),
            *(Line("lost", f"{range_}: {_GIVEN_UP}") for range_ in self.lost),
            *(Line("lost", why) for why in self.compacted),
        ]
        return Page([*lines, Line("done", "the next run goes on from there")] if self.done else lines)

    def _first(self) -> Iterator[Line]:
        if self.in_doubt is not None and not self.done:
            yield Line("first", f"epoch {self.in_doubt}, which may be a run's that is at work, is settled or given up")


def planned(
    position: Position | None,
    held: TopicsHeld,
    topics: Topics,
    *,
    find: Callable[[], Target | None],
    wanted: str,
    allow_data_loss: bool = False,
    clock: str | None = None,
) -> Rewind:
    """Plan a rewind, and make sure that every record that the table gives up can be read again.

    ``position``: where the pipeline stands. With ``merge: on_read`` this is where its change log stands, as a RESTORE
    of the table throws away the epochs that aren't folded. ``find`` finds the version. ``wanted`` describes it for
    messages, ``clock`` the time that it was found by. ``held`` is what Kafka holds.

    Raises ConfigurationError if there is no such version or its offsets are in a consumer group, and OffsetsLost if
    some of the records can't be read again (see ``planned_from``).
    """
    if position is None or position.version is None:
        kind = NothingToRewind if position is None else ConfigurationError
        raise kind("The table holds no epoch of this pipeline: there is nothing to rewind.")
    if position.delivery != "transactional":
        raise ConfigurationError(
            f"The table is written by delivery: {position.delivery}. Its offsets are in a consumer group, and a "
            "rewind of the table wouldn't take them back.",
            hint="Run the pipeline once with delivery: transactional, which takes the group's offsets over.",
        )
    target = find()
    if target is None:
        raise ConfigurationError(
            f"The table's history has no version {wanted}.",
            hint="`lakelock history FILE` names the epochs, for --to-epoch. Delta may have removed older commits, or "
            "the pipeline didn't keep the event time of every row by this column (`event_time:`). `lakelock replay` "
            "reads a stretch of time into a new table.",
        )
    if target.stood is not None and target.stood.delivery != "transactional":
        raise ConfigurationError(
            f"Version {target.version} was written by delivery: {target.stood.delivery}, which keeps no offsets with "
            "its rows. Nothing says which records that version holds.",
            hint="Go back less far: `lakelock history FILE` names the versions.",
        )
    return planned_from(position, target, held, topics, clock=clock, allow_data_loss=allow_data_loss)


def planned_from(
    position: Position,
    target: Target,
    held: TopicsHeld,
    topics: Topics,
    *,
    clock: str | None,
    allow_data_loss: bool = False,
) -> Rewind:
    """The plan to go back to this target.

    Raises OffsetsLost if no run would read some of the records again. With ``allow_data_loss`` the plan names them
    instead, unless it is the pipeline file that keeps them from being read.
    """
    ranges, recreated_topics = given_up(position, target.stood), recreated(position, held)
    unread = [range_ for range_ in ranges if range_.at not in held.ends or range_.topic in recreated_topics]
    deleted = topics.deleted({range_.topic for range_ in unread if not is_retired(range_.topic)}) if unread else ()
    left = [range_ for range_ in unread if range_.topic not in deleted]
    if left:
        raise would_lose(target, left)
    # Before its first epoch the pipeline stood where that epoch began.
    stood = target.stood or position.moved_to(position.since)
    # `on_data_loss` has no say: it is about records that were never read, and these are in the table.
    resumption = resumed(stood, held, topics, continue_on_data_loss=True)
    lost = [*unread, *_of_both(ranges, resumption.lost)]
    there = {range_.topic for range_ in ranges if range_ not in unread}
    compacted = list(_compacted(topics.cleanup_policies(there))) if there else []
    if (lost or compacted) and not allow_data_loss:
        raise not_in_kafka(target, [*(f"{range_}: Kafka no longer holds it" for range_ in lost), *compacted])
    again = sum(max(0, position.offsets.get(at, 0) - offset) for at, offset in resumption.offsets.items())
    return Rewind(position, target, resumption.offsets, again, clock, lost=lost, compacted=compacted)


def first_records(topics: Topics, when: datetime, held: TopicsHeld, position: Position) -> Offsets:
    """Per partition, the offset of the first record at or after ``when``, by Kafka's timestamps.

    ``position``: where the pipeline stands. Kafka knows the timestamps of the records that it still holds. So where it
    has removed some of those that the table claims, it has to hold an earlier one. Where it removes replaced records
    anywhere in the log, nobody knows. Raises OffsetsLost for partitions where the first record may be a removed one.
    """
    found, oldest = topics.at(when, held), topics.at(_EARLIEST, held)
    read = position.partitions_read & held.ends.keys()
    compacted = {
        topic for topic, policy in topics.cleanup_policies({at.topic for at in read}).items() if _may_compact(policy)
    }
    unknown = [
        f"{at.topic}-{at.partition}, which "
        + ("may be compacted" if at.topic in compacted else f"begins at offset {held.beginnings[at]} now")
        for at in sorted(read)
        if at.topic in compacted or (position.since.get(at, 0) < held.beginnings[at] and found[at] <= oldest[at])
    ]
    if unknown:
        raise OffsetsLost(
            f"Kafka may have removed the first records at or after {when}, so nobody knows which versions hold any: "
            f"{', '.join(unknown)}. Nothing was changed.",
            hint="Take --to-epoch: `lakelock history FILE` names the epochs, and when each was committed.",
        )
    return found


def _may_compact(policy: str | None) -> bool:
    return policy is None or "compact" in policy


def _of_both(ranges: Sequence[OffsetRange], gaps: Sequence[OffsetRange]) -> Iterator[OffsetRange]:
    """What of these ranges lies in the gaps."""
    for gap in gaps:
        for range_ in ranges:
            start, end = max(range_.start, gap.start), min(range_.end, gap.end)
            if range_.at == gap.at and start < end:
                yield OffsetRange(*gap.at, start, end)


def _compacted(policies: Mapping[str, str | None]) -> Iterator[str]:
    """Why records of these topics may be gone although the log goes on before them. ``policies``: by topic."""
    for topic, policy in sorted(policies.items()):
        if policy is None:
            yield (
                f"topic {topic!r} may be compacted: its cleanup.policy can't be read, for which the user needs "
                "DESCRIBE_CONFIGS on the topic"
            )
        elif "compact" in policy:
            yield (
                f"topic {topic!r} is compacted: Kafka may have removed records that a newer one of their key has "
                "replaced, and tombstones"
            )


def rewound(assembly: Assembly, to: WhereTo, *, confirm: Callable[[Rewind], bool], observe: Observer) -> Rewind:
    """See ``Pipeline.rewind``: plan it, and carry the plan out if ``confirm`` returns True. Raises LakelockError."""
    config, commits = assembly.config, assembly.table.commits
    clock = None if to.event_time is None else config.clock_in_words

    def find() -> Target | None:
        if to.version is not None:
            own = commits.at(to.version)
            return Target(to.version, own.metadata.position) if own else None
        if to.epoch is not None:
            return of_epoch(commits.lineage(), to.epoch, commits.is_own, commits.before_first)
        assert to.event_time is not None
        if config.clock is not None:
            return before_event_time(
                commits.lineage(), to.event_time, config.clock, commits.is_own, commits.before_first
            )
        assert stands is not None
        offsets = first_records(assembly.source, to.event_time, held, stands)
        return before_offsets(commits.lineage(), offsets, commits.is_own, commits.before_first)

    named = f"of epoch {to.epoch}" if to.epoch is not None else f"{to.version} of this pipeline"
    held, stands = assembly.source.look(), _to_rewind(assembly)
    plan = planned(
        stands,
        held,
        assembly.source,
        find=find,
        wanted=named if to.event_time is None else f"before {to.event_time}, by {clock}",
        clock=clock,
        allow_data_loss=to.allow_data_loss,
    )
    plan = with_others(of_unsaid_column(plan, config), commits)
    if confirm(plan):
        for location in assembly.locations:
            require_conditional_writes(assembly.spark, location)
        work = without_query(assembly).work(observe, topics=assembly.source)
        rewind(plan, assembly.table.table, work, restored=assembly.look_back)
        return replace(plan, done=True)
    return plan


def of_unsaid_column(plan: Rewind, config: PipelineConfig) -> Rewind:
    """The plan, which says so if an earlier version of Lakelock has stored the times that it goes by."""
    stood = plan.target.stood
    if plan.clock is None or config.clock is None or stood is None or stood.clock.column is not None:
        return plan
    return replace(plan, clock=f"{plan.clock}, if it was that one: the epoch's commit doesn't name the column")


def with_others(plan: Rewind, commits: PipelineCommits) -> Rewind:
    """The plan for one table, with what it takes back of others. Raises ConfigurationError if rows would be lost."""
    assert plan.target.version is not None
    undone = commits.undone(plan.target.version)
    if undone.why_not is not None:
        raise ConfigurationError(
            f"The table can't go back to version {plan.target.version}: {undone.why_not}. Nothing was changed.",
            hint="Go back less far (`lakelock history FILE` names the versions), or fill a new table with `lakelock "
            "replay`. If no such pipeline writes to the table any more, run RESTORE TABLE by hand.",
        )
    return replace(plan, others=undone.lines)


def _to_rewind(assembly: Assembly) -> Position | None:
    """Where the pipeline stands, its change log included, with the version of the table itself."""
    stands, table = assembly.table.derivation.sink.position(), assembly.table.commits.position()
    return replace(stands, version=table.version) if stands is not None and table is not None else stands


def given_up(position: Position, stood: Position | None) -> list[OffsetRange]:
    """The offset ranges that the table holds at ``position`` and did not hold when the pipeline stood at ``stood``."""

    starts = dict(position.since)
    if stood is not None:
        same = {topic for topic in position.offsets.topics if stood.topics.get(topic) == position.topics.get(topic)}
        starts |= {at: next_ for at, next_ in stood.offsets.items() if at.topic in same}
    return [
        OffsetRange(at.topic, at.partition, starts.get(at, 0), next_)
        for at, next_ in position.offsets.items()
        if starts.get(at, 0) < next_
    ]


def rewind(plan: Rewind, table: DeltaTable, work: Work, *, restored: Callable[[], None]) -> Position | None:
    """Carry out the plan, in two commits. Returns the position after it.

    1. RESTORE the table. It takes the position back as well.
    2. Call ``restored``, which reopens dead letters whose retry is undone. It may be called again.
    3. Commit an epoch without rows. Its new number fences every run that planned an epoch before the RESTORE, and it
       stores the position in the newest commit.

    ====================  ==============================================================================================
    crash                 what is left
    ====================  ==============================================================================================
    before the RESTORE    Nothing has changed.
    before ``restored``   The table of the earlier version. The next run sees that it was restored, calls ``restored``,
                          and goes on from there.
    before the epoch      The same. A run that planned before the RESTORE isn't fenced yet.
    after the epoch       Nothing is left to do.
    ====================  ==============================================================================================

    Raises Fenced if another run commits at the same time.
    """
    assert plan.target.version is not None
    restore(table, plan.target.version, by=BY_REWIND)
    restored()
    stands = work.destination.position()
    if stands is None:
        return None
    return work.destination.run_epoch(Epoch.of_no_records(stands, pipeline=work.pipeline, owner=work.owner), 0).position
