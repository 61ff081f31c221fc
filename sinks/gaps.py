"""The ranges that a position names as lost or missed.

Their number only grows, so nothing here compares each of them with each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sinks.offsets import OffsetRange, TopicPartition
from sinks.recreated import is_retired, topic_of


def joined(before: Sequence[OffsetRange], more: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """All of these ranges. One of ``more`` that begins where the last one of its partition ends makes that one longer.

    So a pipeline that finds a topic emptied each day has one range, not one a day.
    """
    gaps = [*before]
    last = {gap.at: number for number, gap in enumerate(gaps)}
    for gap in more:
        number = last.get(gap.at)
        if number is not None and gaps[number].end == gap.start:
            gaps[number] = replace(gaps[number], end=gap.end)
        else:
            last[gap.at] = len(gaps)
            gaps.append(gap)
    return tuple(gaps)


def latest(before: Iterable[OffsetRange], more: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """The last range of each partition. For ``missed`` it says all: whatever is older than its start is doubtful."""
    return tuple({gap.at: gap for gap in (*before, *more)}.values())


def added(gaps: Iterable[OffsetRange], before: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """What ``joined`` or ``latest`` has added to the ranges ``before``. That a topic has retired adds nothing."""
    gaps = [*gaps]
    ends = {(gap.at, gap.start): gap.end for gap in before}
    stayed = {(gap.at, gap.start) for gap in gaps}
    renamed = {first: end for first, end in ends.items() if first not in stayed}

    def new(gap: OffsetRange) -> OffsetRange:
        """The range without what was there before."""
        as_named = TopicPartition(topic_of(gap.topic), gap.partition), gap.start
        end = renamed.get(as_named, gap.start) if is_retired(gap.topic) else gap.start
        return replace(gap, start=min(ends.get((gap.at, gap.start), end), gap.end))

    return tuple(each for each in map(new, gaps) if each.start < each.end)
