"""Decides which offsets the next epoch covers. Deterministic: the same offsets, ends and bound give the same epoch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import datetime

from connector.protocol.read_to import times_after
from connector.protocol.recover import Resumption, TopicsHeld
from sinks.contract import Epoch, Position
from sinks.event_time import Clock
from sinks.gaps import joined, latest
from sinks.offsets import OffsetRange, Offsets, TopicPartition

_OLD = 200
"""Offsets before the end, where nothing new is waiting."""


def next_epoch(
    pipeline: str,
    owner: str,
    position: Position | None,
    resumption: Resumption,
    target: TopicsHeld,
    *,
    max_records: int,
    now: datetime,
) -> Epoch | None:
    """The epoch that brings the sink from ``position`` towards ``target``. None: there is nothing to commit.

    An epoch without records is planned only if the position itself has to be written: the first one (so that ``latest``
    means the same to every later run), one before Delta's retention removes the last position, one that leaves out
    lost offsets, and one that notes that a topic is gone, or is there again.

    The plan is stored nowhere. A crash right before or right after it changes nothing: the next run plans again from
    the same position, and may cut the epoch elsewhere.

    ``owner`` is the run's id. ``resumption`` has the next offset of every partition. ``max_records`` bounds the offsets
    that the epoch reads. ``now`` is the current time, in UTC.
    """
    # A topic that has appeared since is left to the next round, which knows its id.
    next_ = Offsets({at: offset for at, offset in resumption.offsets.items() if at.topic in target.ids})
    ranges = plan(next_, target.ends, max_records)
    refresh = position is not None and position.refresh_after is not None and now >= position.refresh_after
    noted = position.gone if position else {}
    gone = {topic: since for topic, since in noted.items() if topic not in resumption.offsets.topics}
    changed = bool(resumption.lost or resumption.gone) or len(gone) < len(noted)
    if not ranges and position is not None and not refresh and not changed:
        return None
    # Topics that left the pipeline keep their offsets. If they come back, they go on from there.
    stored = position.offsets if position else Offsets()
    read = next_.advance(ranges)
    times = times_after(position, ranges, read, target, now)
    # Nothing else moves past what is lost of a topic that is gone.
    passed = {gap.at: gap.end for gap in resumption.lost if gap.topic not in resumption.offsets.topics}
    return Epoch(
        pipeline=pipeline,
        number=position.epoch + 1 if position else 1,
        owner=owner,
        ranges=ranges,
        offsets=Offsets({**stored, **passed, **read}),
        topics={**(position.topics if position else {}), **target.ids, **resumption.gone_ids},
        read_to=times.read_to,
        expected=position,
        # Partitions that appear later begin at 0, so `since` needn't have them.
        since=position.since if position else next_,
        lost=joined(position.lost if position else (), resumption.lost),
        clock=position.clock.carried() if position else Clock(),
        backlog=target.backlog(read),
        leaders={**(position.leaders if position else {}), **target.leaders},
        began_at=times.began_at,
        missed=latest(position.missed if position else (), resumption.missed),
        read_to_of=times.read_to_of,
        gone={**gone, **resumption.gone},
        tombstones_kept=times.tombstones_kept,
    )


def plan(position: Offsets, ends: Offsets, max_records: int) -> tuple[OffsetRange, ...]:
    """Ranges from ``position`` towards ``ends`` that span at most ``max_records`` offsets together.

    The shares are max-min fair: no partition gets more while another that wants more gets less. A small partition is
    taken whole, and the others get what it leaves of its share. So a large backlog can't starve a small one. (Bertsekas
    and Gallager, Data Networks, 6.5.2.) With 30 and 15 offsets to read and a bound of 40, the plan takes 25 and 15.

    Partitions that are not in ``position`` are not read. An empty plan means that there is nothing to do. Raises
    ValueError if ``max_records`` is below 1.
    """
    if max_records < 1:
        raise ValueError(f"max_records must be at least 1, not {max_records}")
    share = _fair_shares(_by_demand(position, ends), max_records)
    return tuple(
        OffsetRange(at.topic, at.partition, start, start + share[at])
        for at, start in position.items()  # in order, as offsets are
        if share.get(at, 0) > 0
    )


def to_sample(next_: Offsets, held: TopicsHeld) -> list[OffsetRange]:
    """What a run would read next of each partition, or the records before if there are no new ones."""
    starts = {}
    for at, end in held.ends.items():
        start = max(next_.get(at, 0), held.beginnings[at])
        starts[at] = start if start < end else max(held.beginnings[at], end - _OLD)
    return [OffsetRange(*at, start, held.ends[at]) for at, start in starts.items() if start < held.ends[at]]


def within_bytes(
    position: Offsets, ends: Offsets, max_records: int, max_bytes: int, record_bytes: Mapping[TopicPartition, float]
) -> int:
    """The largest bound up to ``max_records`` whose plan has at most ``max_bytes`` bytes.

    At least 1, so that the run moves.

    ``record_bytes``: the mean size of a record per partition. A partition that isn't in it counts with the mean of the
    others. If it is empty there is no bound by bytes.
    """
    if not record_bytes:
        return max_records
    mean = sum(record_bytes.values()) / len(record_bytes)
    demand = _by_demand(position, ends)

    def too_many(records: int) -> bool:
        share = _fair_shares(demand, records)
        return sum(span * record_bytes.get(at, mean) for at, span in share.items()) > max_bytes

    # Each partition's share grows with the bound, so the bytes do too: binary search is right.
    return max(1, bisect_left(range(1, max_records + 1), True, key=too_many))


def _by_demand(position: Offsets, ends: Offsets) -> list[tuple[int, TopicPartition]]:
    """How many offsets each partition has to read, smallest first."""
    return sorted((ends[at] - start, at) for at, start in position.items() if ends.get(at, 0) > start)


def _fair_shares(by_demand: Sequence[tuple[int, TopicPartition]], total: int) -> dict[TopicPartition, int]:
    """Max-min fair shares of ``total``: smallest demand first, each may take an equal part of what is left."""
    shares = {}
    left = total
    for others, (demand, at) in zip(range(len(by_demand), 0, -1), by_demand, strict=True):
        # Rounded up, so that fewer records than partitions still make progress; `left` keeps the bound.
        shares[at] = min(demand, -(-left // others))
        left -= shares[at]
    return shares
