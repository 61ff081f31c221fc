"""The epochs by which a table that was added to a pipeline of several sinks catches up with them. Pure.

Each is one commit of the table's own, with rows and next offsets, as in a pipeline of one table. The last one has the
number of the epoch at which the others stand, and its offsets. From there on the table takes part in every epoch.

====================  ==================================================================================================
crash                 what is left
====================  ==================================================================================================
before the last one   The table is behind the others, at an epoch of its own. The next run goes on there. No epoch is
                      decided meanwhile, but by a process whose file doesn't name the table yet; then there is more to
                      catch up with.
after the last one    The table is where the others are. The next run finds nothing to do.
====================  ==================================================================================================
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from connector.protocol.plan import plan
from connector.protocol.read_to import shortest_kept
from connector.protocol.recover import Resumption, TopicsHeld
from sinks.contract import Epoch, Position
from sinks.event_time import Clock
from sinks.gaps import joined, latest
from sinks.offsets import OffsetRange, Offsets
from sinks.recreated import is_retired


def never_read(stands: Epoch, position: Position | None, held: TopicsHeld) -> tuple[OffsetRange, ...]:
    """What a table with this position lacks, and can't get any more, of all that the others have read up to ``stands``:
    Kafka doesn't have the topics. A table without a position claims nothing of them."""
    if position is None:
        return ()
    gone = {at: end for at, end in stands.offsets.items() if at.topic not in held.ids and not is_retired(at.topic)}
    starts = {at: max(position.offsets.get(at, 0), position.since.get(at, 0)) for at in gone}
    return tuple(OffsetRange(*at, starts[at], end) for at, end in gone.items() if starts[at] < end)


def next_to_join(
    stands: Epoch,
    position: Position | None,
    resumption: Resumption,
    held: TopicsHeld,
    *,
    owner: str,
    max_records: int,
) -> Epoch:
    """The next epoch of a table with this position, on its way to ``stands``: the epoch at which the others are.

    ``resumption``: the next offset of every partition that Kafka has; ``held``: what Kafka holds. An epoch reads
    ``max_records`` offsets, or more if the numbers up to that of ``stands`` wouldn't suffice.
    """
    taken = position.epoch if position is not None else 0
    # What lies behind ``stands`` is left to the epochs that all of them take part in.
    next_ = Offsets({at: min(next_, stands.offsets.get(at, next_)) for at, next_ in resumption.offsets.items()})
    next_ = Offsets({at: offset for at, offset in next_.items() if at in stands.offsets})
    span = sum(max(0, stands.offsets[at] - offset) for at, offset in next_.items())
    ranges = plan(next_, stands.offsets, max(max_records, ceil(span / (stands.number - taken)), 1))
    read = next_.advance(ranges)
    stored = position.tombstones_kept if position is not None else {}
    last = all(read[at] >= stands.offsets[at] for at in read)
    lost = (*resumption.lost, *(never_read(stands, position, held) if last else ()))
    return replace(
        stands,
        number=stands.number if last else taken + 1,
        owner=owner,
        ranges=ranges,
        offsets=stands.offsets if last else Offsets({**(position.offsets if position else {}), **read}),
        expected=position,
        read_to=stands.read_to if last else position.read_to if position is not None else None,
        # Of a topic that is gone it claims nothing.
        since=position.since if position is not None else Offsets({**stands.offsets, **next_}),
        backlog=held.backlog(read),
        lost=joined(position.lost if position is not None else (), lost),
        began_at=position.began_at if position is not None else held.asked_at,
        missed=latest(position.missed if position is not None else (), resumption.missed),
        tombstones_kept=shortest_kept(stored, stands.tombstones_kept if last else held.keeps or {}),
        read_to_of=stands.read_to_of if last else position.read_to_of if position is not None else {},
        clock=position.clock.carried() if position is not None else Clock(),
        leaders=stands.leaders if last else {},
        attempt=0,
    )
