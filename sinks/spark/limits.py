"""Values that a column can't store faithfully, each as a SQL condition that is true of them.

The files don't contain the column that a table is partitioned by: its value is text in a folder's name. Delta and Spark
silently read some names back as another value, and can't create folders for others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from sinks.spark.sql import identifier, literal
from sinks.spark.types import is_utf8

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = r"[\\x01-\\x1F\\x7F\"#%\'*/:=?\\\\{\\[\\]^]"
"""A SQL literal with the characters that Spark and Hive write as three characters."""
_NAME_BYTES = 255
"""The longest folder name in bytes in most file systems."""
_YEAR_1 = -62_135_596_800_000_000
"""The first microsecond of the year 1 in UTC. Delta doesn't read earlier times back as they were."""


@dataclass(frozen=True)
class Limit:
    """``broken`` is SQL over the rows that is true of values beyond the limit. ``detail`` says what is wrong."""

    broken: str
    detail: str
    columns: tuple[str, ...] = ()
    """The columns that the limit is about; empty: nobody asked."""


def of_partition(
    column: str, kind: DataType, *, folder: str | None = None, made: str | None = None, in_utc: bool = False
) -> list[Limit]:
    """The limits of a partition column. ``folder`` is its name in folders, by default the column's name; ``made``: SQL
    of its value, if the rows have no such column; ``in_utc``: whether folders tell a time in UTC, where no hour comes
    twice, instead of the session's zone."""
    from pyspark.sql.types import StringType, TimestampType

    value, its = f"({made})" if made is not None else identifier(column), f"its {column}"
    if isinstance(kind, TimestampType):
        read_back = f"try_cast(CAST({value} AS STRING) AS TIMESTAMP)"
        before = Limit(f"{value} < timestamp_micros({_YEAR_1}L)", f"{its} is before the year 1, {_BY}")
        # Delta takes it from the folder's name, which is the time in the session's zone.
        twice = Limit(f"NOT ({read_back} <=> {value})", f"{its} is in an hour that the clocks show twice, {_BY}")
        return [before] if in_utc else [before, twice]
    if not isinstance(kind, StringType):
        return []
    room = _NAME_BYTES - len((folder or column).encode()) - 1
    written = f"octet_length(regexp_replace({value}, '{_ESCAPED}', '%..'))"
    return [
        Limit(f"{value} = ''", f"{its} is the empty text, {_BY}"),
        Limit(f"{value} = {literal(_NULL)}", f"{its} is {_NULL}, {_BY}"),
        Limit(f"NOT {is_utf8(f'CAST({value} AS BINARY)')}", f"{its} isn't UTF-8 text, {_BY}"),
        Limit(f"instr({value}, chr(0)) > 0", f"{its} has a character 0, {_BY}"),
        Limit(f"{written} > {room}", f"{its} is too long, {_BY}"),
    ]


_BY = "and can't be stored in a column that the table is partitioned by"


@cache
def shows_an_hour_twice(zone: str) -> bool:
    """Whether clocks are turned back in a time zone, by its name in Spark: a time without its offset is then two."""
    if re.fullmatch(r"(?i)z|(?:(?:utc|gmt|ut)?[+-]\d{1,2}(?::?\d{2}){0,2})|utc|gmt|ut|etc/[\w+-]+", zone):
        return False
    try:
        place = ZoneInfo(zone)
    except (ValueError, OSError, KeyError):  # of a name that only Java knows, or without its data
        return True
    days = (datetime(1990, 1, 1, tzinfo=timezone.utc) + timedelta(days=10 * count) for count in range(1_900))
    offsets = [day.astimezone(place).utcoffset() or timedelta(0) for day in days]
    return any(later < before for before, later in pairwise(offsets))


def told_of_hours(zone: str) -> str:
    """Says for messages why no time that isn't checked record by record can be in a folder's name."""
    return (
        f"a time that the pipeline works out, and the session's time zone, {zone}, has an hour that comes twice a year"
    )


def of_length(column: str, written: str) -> list[Limit]:
    """The limit of a column type such as ``varchar(3)``. Beyond it, Spark would cut off trailing blanks."""
    found = re.fullmatch(r"varchar\((\d+)\)", written)
    if found is None:
        return []
    broken = f"char_length({identifier(column)}) > {found[1]}"
    return [Limit(broken, f"its {column} is longer than {found[1]} characters, which the table allows")]
