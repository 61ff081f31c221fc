"""Which dead letters a statement is about: SQL conditions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sinks.offsets import OffsetRange, Offsets
from sinks.recreated import MARK as RETIRED
from sinks.spark.sql import literal

AHEAD = "ahead of "
"""What a mark begins with that isn't of a retry, see ``DeadLetters.mark_ahead``."""
RETRIED = "_retry IS NOT NULL AND _retried_epoch IS NOT NULL"
"""SQL that is true of a letter that a retry has closed."""


def passed(offsets: Offsets) -> str:
    """SQL that is true of a record before these offsets. A partition without an offset has no such record."""
    records = (
        f"(_topic = {literal(at.topic)} AND _partition = {at.partition} AND _offset < {offset})"
        for at, offset in offsets.items()
    )
    return f"coalesce({' OR '.join(records) or 'false'}, false)"


def of_taken_in(topics: Collection[str], restored_to: int) -> str:
    """SQL that is true of a letter of these recreated topics that an epoch after ``restored_to`` has set aside."""
    names = ", ".join(map(literal, sorted(topics))) or "NULL"
    return f"coalesce(_topic IN ({names}) AND epoch > {int(restored_to)}, false)"


def has_mark(run: str) -> str:
    """SQL that is true of an open letter with the mark of ``DeadLetters.mark_ahead``."""
    return f"_retry = {literal(f'{AHEAD}{run}')} AND _retried_epoch IS NULL"


def within(ranges: Sequence[OffsetRange]) -> str:
    """SQL that is true of a record in one of these ranges."""
    records = (
        f"(_topic = {literal(each.topic)} AND _partition = {each.partition} "
        f"AND _offset >= {each.start} AND _offset < {each.end})"
        for each in ranges
    )
    return f"coalesce({' OR '.join(records) or 'false'}, false)"


def ahead(offsets: Offsets) -> str:
    """SQL that is true of a record that is still to be read. Nobody reads a deleted topic again."""
    return f"NOT {passed(offsets)} AND NOT startswith(_topic, {literal(RETIRED)})"


def time(at: datetime) -> str:
    """SQL of a timestamp."""
    return f"timestamp_micros({int(at.timestamp() * 1_000_000)})"
