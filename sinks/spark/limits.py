"""Values that a column can't hold as they are, each as a condition that is true of them.

A column that rows are partitioned by isn't in the files: its value is text in the name of a folder. Delta and Spark
read some names back as something else, without a word, and can't make a folder of others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinks.spark.sql import identifier, literal
from sinks.spark.types import is_utf8

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = r"[\\x01-\\x1F\\x7F\"#%\'*/:=?\\\\{\\[\\]^]"
"""What Spark and Hive write as three characters, in a literal of SQL."""
_NAME_BYTES = 255
"""Of a folder, by most file systems."""
_YEAR_1 = -62_135_596_800_000_000
"""The first microsecond of the year 1 in UTC, the first that Delta reads back as it was."""


@dataclass(frozen=True)
class Limit:
    """``broken``: SQL over the rows that is true of those that don't fit; ``detail``: what is wrong with such a one."""

    broken: str
    detail: str


def of_partition(column: str, kind: DataType, *, folder: str | None = None) -> list[Limit]:
    """``column``: that rows are partitioned by; ``folder``: what its folders are called; None: by its name."""
    from pyspark.sql.types import StringType, TimestampType

    value, its = identifier(column), f"its {column}"
    if isinstance(kind, TimestampType):
        return [Limit(f"{value} < timestamp_micros({_YEAR_1}L)", f"{its} is before the year 1, {_BY}")]
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


_BY = "and can't be told in a column that the rows are partitioned by"


def of_length(column: str, written: str) -> list[Limit]:
    """``written``: the type as the table has it, as ``varchar(3)``. Spark cuts off blanks that don't fit."""
    found = re.fullmatch(r"varchar\((\d+)\)", written)
    if found is None:
        return []
    broken = f"char_length({identifier(column)}) > {found[1]}"
    return [Limit(broken, f"its {column} is longer than {found[1]} characters, which the table allows")]
