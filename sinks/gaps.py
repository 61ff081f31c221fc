"""The ranges that a position names as lost or missed.

Their number only grows, so nothing here compares each of them with each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sinks.offsets import OffsetRange
from sinks.recreated import is_retired


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
    """What ``joined`` or ``latest`` has added to the ranges ``before``. Nobody adds to those of a retired topic."""
    ends = {(gap.at, gap.start): gap.end for gap in before}
    starts = ((gap, ends.get((gap.at, gap.start), gap.start)) for gap in gaps if not is_retired(gap.topic))
    return tuple(replace(gap, start=start) for gap, start in starts if start < gap.end)
