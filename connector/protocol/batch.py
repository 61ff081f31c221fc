"""A micro-batch of a streaming query as an epoch: what of it the sink doesn't hold yet. Pure.

A query says again after a crash what it has said already, and one that has lost its checkpoint cuts its batches
elsewhere. So the sink's own position decides what of a batch is new, and neither the batch's number nor memory does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from connector.protocol.plan import next_epoch
from connector.protocol.recover import (
    Remaining,
    TopicsHeld,
    refuse_cut,
    refuse_recreated,
    refuse_replaced,
    without_lost,
)
from sinks.contract import Epoch, Position
from sinks.errors import ConfigurationError, PositionMismatch
from sinks.offsets import OffsetRange, Offsets, TopicPartition


@dataclass(frozen=True)
class Batch:
    """Offsets ``[start, end)`` of each partition, as the query's own log has them: offsets have gaps, and a query may
    filter, so its rows don't tell."""

    query: str
    """The id that a streaming query keeps as long as its checkpoint."""
    number: int
    start: Offsets
    end: Offsets

    def __str__(self) -> str:
        return f"{self.query}/{self.number}"

    def begins(self, at: TopicPartition) -> int:
        """A partition that was added since the batch before is read from its first record."""
        return self.start.get(at, 0)

    def covers(self, ranges: tuple[OffsetRange, ...]) -> bool:
        return all(self.begins(each.at) <= each.start and each.end <= self.end.get(each.at, 0) for each in ranges)


def epoch_of(
    batch: Batch,
    pipeline: str,
    owner: str,
    position: Position | None,
    held: TopicsHeld,
    remaining: Remaining,
    *,
    now: datetime,
    continue_on_data_loss: bool = False,
) -> Epoch | None:
    """The epoch with what the sink doesn't hold of the batch; None: it holds all of it.

    Raises TopicRecreated; PositionMismatch where records between the sink's position and the batch would be missing;
    OffsetsLost where Kafka has removed records of the batch: a query with ``failOnDataLoss`` false would leave them
    out in silence; ConfigurationError where the batch has a topic that the pipeline doesn't name.
    """
    offsets = _wanted(batch, pipeline, position, held)
    whole = sum(each - offsets[at] for at, each in batch.end.items() if each > offsets[at])
    there = replace(held, ends=batch.end)
    resumption = without_lost(
        Offsets({at: next_ for at, next_ in offsets.items() if next_ < batch.end[at]}),
        position,
        there,
        remaining,
        continue_on_data_loss=continue_on_data_loss,
    )
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
    # Kafka may hold more than the batch has.
    complete = epoch.offsets.reaches(held.ends)
    return replace(
        epoch,
        batch=str(batch),
        read_to=held.asked_at if complete else position.read_to if position else None,
        backlog=frozenset(at for at, end in held.ends.items() if epoch.offsets.get(at, 0) < end),
    )


def _wanted(batch: Batch, pipeline: str, position: Position | None, held: TopicsHeld) -> dict[TopicPartition, int]:
    """The next offset of every partition of the batch. Raises what ``epoch_of`` does, without a look at retention."""
    unknown = batch.end.topics - held.ids.keys()
    if unknown:
        raise ConfigurationError(
            f"The batch holds records of {', '.join(sorted(unknown))}, which source.topics doesn't name.",
            hint="Name the topics that the query subscribes to.",
        )
    refuse_replaced(position)
    if position is not None:
        refuse_recreated(position.topics, held.ids)
        refuse_cut(position, held)
    if position is None and batch.number > 0:
        raise PositionMismatch(
            f"Pipeline {pipeline!r} has written nothing yet, and this is batch {batch.number} of the query: what the "
            "batches before it held would be missing. Nothing was written.",
            hint="Start the query with a new checkpoint. To begin at this batch all the same, give the query "
            f"{_starting(batch.end.topics, position, batch)}.",
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
            f"Batch {batch.number} of the query begins behind where the table of pipeline {pipeline!r} stands. "
            f"{missing}. Nothing was written.",
            hint="Was the table restored, or the query started without it? Start the query with a new checkpoint and "
            f"{_starting(batch.end.topics, position, batch)}.",
        )
    return offsets


def _stands(at: TopicPartition, position: Position | None, batch: Batch) -> int:
    """As in a run: once there is a position, a partition that isn't in it stands at offset 0."""
    return position.offsets.get(at, 0) if position else batch.begins(at)


def _of(topics: frozenset[str], ids: Mapping[str, str]) -> dict[str, str]:
    return {topic: ids[topic] for topic in topics}


def _starting(topics: frozenset[str], position: Position | None, batch: Batch) -> str:
    """Spark wants every partition named."""
    stored = position.offsets if position else Offsets()
    starts = {at: _stands(at, position, batch) for at in {**batch.end, **stored} if at.topic in topics}
    return f".option(\"startingOffsets\", '{Offsets(starts).to_json()}')"
