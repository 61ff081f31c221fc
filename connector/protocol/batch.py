"""A micro-batch of a streaming query as an epoch: the part of it that the sink doesn't hold yet. Pure.

After a crash a query repeats a batch, and a query that has lost its checkpoint cuts its batches elsewhere. So the
sink's own position decides what of a batch is new. The batch's number and the run's memory don't.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from connector.protocol.gone import with_gone
from connector.protocol.plan import next_epoch
from connector.protocol.read_to import times_after
from connector.protocol.recover import (
    Remaining,
    TopicsHeld,
    refuse_cut,
    refuse_replaced,
    without_lost,
)
from connector.protocol.topic_ids import refuse_other_topics
from sinks.contract import Epoch, Position
from sinks.errors import ConfigurationError, PositionMismatch
from sinks.offsets import OffsetRange, Offsets, TopicPartition


@dataclass(frozen=True)
class Batch:
    """Offsets ``[start, end)`` of each partition in one micro-batch, as the query's own log has them.

    The rows of the batch don't show these ranges, because offsets have gaps and a query may filter.
    """

    query: str
    """The query's id. It stays the same as long as the checkpoint does."""
    number: int
    start: Offsets
    end: Offsets

    def __str__(self) -> str:
        return f"{self.query}/{self.number}"

    def begins(self, at: TopicPartition) -> int:
        """The first offset of the batch in this partition.

        A partition that was added since the last batch begins at 0.
        """
        return self.start.get(at, 0)

    def covers(self, ranges: tuple[OffsetRange, ...]) -> bool:
        """Whether all of these ranges lie within the batch."""
        return all(self.begins(read.at) <= read.start and read.end <= self.end.get(read.at, 0) for read in ranges)


def epoch_of(
    batch: Batch,
    pipeline: str,
    owner: str,
    position: Position | None,
    held: TopicsHeld,
    remaining: Remaining,
    *,
    now: datetime,
    earlier: TopicsHeld | None = None,
    continue_on_data_loss: bool = False,
) -> Epoch | None:
    """The epoch with what the sink doesn't hold of the batch. None: the sink holds all of it.

    This is how a micro-batch gets the rule "position": the epoch begins at the table's next offsets, and ends where the
    batch ends. Its commit stores the new offsets with the rows.

    ====================  ==============================================================================================
    crash                 what the query's repetition of the batch finds
    ====================  ==============================================================================================
    before the commit     The old position. The whole batch is new, and becomes the same epoch.
    after the commit      A position at the end of the batch. Nothing is new, and None is returned.
    ====================  ==============================================================================================

    ``owner`` is the run's id. ``held`` is what Kafka holds. ``remaining`` is asked what is left of partitions that have
    lost records. ``now`` is the current time, in UTC. ``earlier``: an earlier look.

    Raises TableReplaced, and what ``refuse_other_topics`` and ``with_gone`` raise. Raises PositionMismatch if records
    between the sink's position and the batch would be missing; OffsetsLost if Kafka has removed records of the batch,
    which a query with ``failOnDataLoss`` false would leave out in silence, or if its log was cut; ConfigurationError if
    the batch has a topic that the pipeline doesn't name.
    """
    offsets = _wanted(batch, pipeline, position, held)
    whole = sum(end - offsets[at] for at, end in batch.end.items() if end > offsets[at])
    there = replace(held, ends=batch.end)
    new = Offsets({at: next_ for at, next_ in offsets.items() if next_ < batch.end[at]})
    resumption = without_lost(new, position, there, remaining, continue_on_data_loss=continue_on_data_loss)
    if new:  # a batch that the sink holds changes nothing
        resumption = with_gone(resumption, position, held, continue_on_data_loss=continue_on_data_loss)
    epoch = next_epoch(
        pipeline,
        owner,
        position,
        replace(resumption, offsets=Offsets({**offsets, **resumption.offsets})),
        replace(there, ids=_of(batch.end.topics, held.ids)),
        max_records=max(1, whole),
        now=now,
    )
    if epoch is None:
        return None
    # Kafka may hold more than the batch has, of a busy topic always. All that it held earlier may be read by now.
    reached = earlier is not None and reaches(epoch.offsets, earlier) and not reaches(epoch.offsets, held)
    look = earlier.that_knows(held) if earlier is not None and reached else held
    times = times_after(position, epoch.ranges, epoch.offsets, look, now)
    return replace(epoch, batch=str(batch), backlog=held.backlog(epoch.offsets), **times._asdict())


def reaches(read: Offsets, held: TopicsHeld) -> bool:
    """Whether these next offsets are behind all that Kafka held at a look."""
    return all(read.get(at, -1) >= end for at, end in held.ends.items())


def _wanted(batch: Batch, pipeline: str, position: Position | None, held: TopicsHeld) -> dict[TopicPartition, int]:
    """The next offset of every partition of the batch. Raises what ``epoch_of`` raises, except for retention."""
    unknown = batch.end.topics - held.ids.keys()
    if unknown:
        raise ConfigurationError(
            f"The batch holds records of {', '.join(sorted(unknown))}, which source.topics doesn't name.",
            hint="Name the topics that the query subscribes to.",
        )
    refuse_replaced(position)
    if position is not None:
        refuse_other_topics(position, held.ids)
        refuse_cut(position, held)
    if position is None and batch.number > 0:
        raise PositionMismatch(
            f"Pipeline {pipeline!r} has written nothing yet, and this is batch {batch.number} of the query. The "
            "records of the batches before it would be missing. Nothing was written.",
            hint="Start the query with a new checkpoint. To begin at this batch all the same, give the query the "
            f"option {_starting(batch.end.topics, position, batch)}.",
        )
    offsets: dict[TopicPartition, int] = {}
    gaps = []
    for at in batch.end:
        offsets[at] = _stands(at, position, batch)
        if offsets[at] < batch.begins(at):
            gaps.append(OffsetRange(at.topic, at.partition, offsets[at], batch.begins(at)))
    if gaps:
        missing = "; ".join(
            f"{gap.topic}-{gap.partition}: the table wants offset {gap.start} next, the batch begins at {gap.end}, so "
            f"[{gap.start}, {gap.end}) would be missing"
            for gap in gaps
        )
        raise PositionMismatch(
            f"Batch {batch.number} of the query begins after the next offsets of the table of pipeline {pipeline!r}. "
            f"{missing}. Nothing was written.",
            hint="The table may have been restored, or the query may have run without it. Start the query with a new "
            f"checkpoint and {_starting(batch.end.topics, position, batch)}.",
        )
    return offsets


def _stands(at: TopicPartition, position: Position | None, batch: Batch) -> int:
    """The next offset. As in a run: once there is a position, a partition that isn't in it stands at offset 0."""
    return position.offsets.get(at, 0) if position else batch.begins(at)


def _of(topics: frozenset[str], ids: Mapping[str, str]) -> dict[str, str]:
    return {topic: ids[topic] for topic in topics}


def _starting(topics: frozenset[str], position: Position | None, batch: Batch) -> str:
    """The option that makes a new query begin at the table's position. Spark wants every partition named."""
    stored = position.offsets if position else Offsets()
    starts = {at: _stands(at, position, batch) for at in {**batch.end, **stored} if at.topic in topics}
    return f".option(\"startingOffsets\", '{Offsets(starts).to_json()}')"
