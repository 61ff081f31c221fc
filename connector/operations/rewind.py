"""Back in time: a table to an earlier version, from where it is read again; or a stretch of time into a new table.

A rewind is two commits. The RESTORE takes the table, and with it the position, back: that alone is a consistent state,
and the next run would go on from it. The epoch after it, without rows, takes a new number, which fences every run that
was planned before, and writes the position down again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from connector.delivery.ports import Topics, Work
from connector.protocol.recover import TopicsHeld, resume
from connector.protocol.recreated import recreated
from sinks.contract import Epoch, Position
from sinks.delta.commit import PipelineCommits
from sinks.delta.restore import Target, restore
from sinks.delta.table import DeltaTable
from sinks.errors import ConfigurationError, OffsetsLost
from sinks.offsets import OffsetRange, Offsets


@dataclass(frozen=True)
class Rewind:
    """What a rewind does, said before it is done."""

    position: Position
    target: Target
    next_offsets: Offsets
    """From where the next run reads."""
    again: int
    """Offsets that it reads a second time: an upper bound on the records."""


def planned(
    commits: PipelineCommits,
    held: TopicsHeld,
    topics: Topics,
    *,
    find: Callable[[PipelineCommits], Target | None],
    wanted: str,
    continue_on_data_loss: bool,
) -> Rewind:
    """``find`` says which version, ``wanted`` in words what for.

    Raises ConfigurationError where there is none, OffsetsLost where not all that the table would give up can be read
    again.
    """
    position = commits.position()
    if position is None or position.version is None:
        raise ConfigurationError("The table holds no epoch of this pipeline: there is nothing to rewind.")
    if position.delivery != "transactional":
        raise ConfigurationError(
            f"The table is written by delivery: {position.delivery}, whose offsets are in a consumer group: going back "
            "in the table wouldn't take them along.",
            hint="Run the pipeline once with delivery: transactional; it takes the group's offsets over.",
        )
    found = find(commits)
    if found is None:
        raise ConfigurationError(
            f"The table's history has no version {wanted}.",
            hint="The log of older commits was cleaned, or the pipeline kept no event times then (`event_time:`). "
            "`lakelock replay` reads a stretch of time into a new table.",
        )
    if found.stood is not None and found.stood.delivery != "transactional":
        raise ConfigurationError(
            f"Version {found.version} was written by delivery: {found.stood.delivery}, which keeps no offsets with its "
            "rows: what that version holds can't be told.",
            hint="Go back less far: `lakelock history FILE` names the versions.",
        )
    ranges, again_made = given_up(position, found.stood), recreated(position, held)
    gone = [each for each in ranges if each.at not in held.ends or each.topic in again_made]
    if gone:
        raise _unreadable(found, gone)
    # Before the first epoch it stood where that one began.
    stood = found.stood or position.moved_to(position.since)
    resumption = resume(
        stood, held, topics.starting(held), topics.remaining(held), continue_on_data_loss=continue_on_data_loss
    )
    again = sum(max(0, position.offsets.get(at, 0) - offset) for at, offset in resumption.offsets.items())
    return Rewind(position, found, resumption.offsets, again)


def given_up(position: Position, stood: Position | None) -> list[OffsetRange]:
    """What the table holds at ``position``, and did not when the pipeline stood at ``stood``."""

    starts = dict(position.since)
    if stood is not None:
        same = {topic for topic in position.offsets.topics if stood.topics.get(topic) == position.topics.get(topic)}
        starts |= {at: next_ for at, next_ in stood.offsets.items() if at.topic in same}
    return [
        OffsetRange(at.topic, at.partition, starts.get(at, 0), next_)
        for at, next_ in position.offsets.items()
        if starts.get(at, 0) < next_
    ]


def _unreadable(target: Target, ranges: Sequence[OffsetRange]) -> OffsetsLost:
    return OffsetsLost(
        f"Records would be lost on the way back to version {target.version}: the table holds "
        f"{', '.join(map(str, ranges))}, that version doesn't, and no run would read them again. Their "
        "topics aren't read any more, or were made again since.",
        hint="Go back less far (`lakelock history FILE` names the versions), or put the topic back into "
        "`source.topics`. To do without those records: RESTORE TABLE, by hand.",
    )


def rewind(plan: Rewind, table: DeltaTable, work: Work, *, restored: Callable[[], None]) -> Position | None:
    """Do it. A crash in between leaves the table restored; the next run goes on from there.

    ``restored`` is called in between, by the next run too, as long as the table shows that it was restored.
    """
    restore(table, plan.target.version)
    restored()
    stands = work.destination.position()
    if stands is None:
        return None
    return work.destination.run_epoch(Epoch.of_no_records(stands, pipeline=work.pipeline, owner=work.owner), 0).position
