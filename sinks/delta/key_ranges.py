"""The range that an epoch's keys lie in, as SQL for the ON of a MERGE: Delta passes over files without such keys.

This is sound because it is about columns of the key only. A row of the table matches a change if both have the same
values in all of them. The change's value lies between the least and the greatest of the epoch, so the row's does too. A
column that isn't in the key would tell nothing: the row of a key may hold another value there than the change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from sinks.delta.table import DeltaTable
from sinks.delta.values import digits_sql, value_sql
from sinks.spark.cached import kept, stays
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


_BEYOND_ASCII = r"[^\x00-\x7F]"


@contextmanager
def pruning(table: DeltaTable, key: Sequence[str], rows: DataFrame, within: str) -> Iterator[tuple[DataFrame, str]]:
    """The rows, and SQL that is true of every row ``t`` of the table that shares a key with them.

    It is worth a query on the rows only if the table is partitioned or clustered by a column of the key: elsewhere each
    file has keys of any range. ``within``: such SQL, if it is known already.
    """
    detail = table.detail()
    of_files = {name.lower() for name in (*detail.partitions, *detail.clusters)} if detail is not None else set()
    columns = [name for name in key if name.lower() in of_files and _has_exact_text(rows.schema[name].dataType)]
    if within or not columns or table.is_new:
        yield rows, within
        return
    with kept(rows) as changes:
        # A query that computed the rows anew could find others: a key may be made of the time of day.
        parts = detail.partitions if detail is not None else ()
        yield changes, range_of(changes, columns, partitions=parts) if stays(changes) else ""


def once_kept(rows: DataFrame, within: str) -> AbstractContextManager[DataFrame]:
    """Caches rows that ``pruning`` gave with this range, unless they are cached for it already."""
    return nullcontext(rows) if within else kept(rows)


def range_of(changes: DataFrame, key: Sequence[str], *, partitions: Sequence[str] = ()) -> str:
    """SQL of the range that the changes lie in, from one query on them. See ``within_sql``.

    ``partitions``: the columns that the table is partitioned by.
    """
    of_folders = [name.lower() for name in partitions]
    kinds = {name: kind for name in key if _has_exact_text(kind := changes.schema[name].dataType)}
    ends = [
        digits_sql(_end(of, name, kind, counted=name.lower() not in of_folders), kind)
        for name, kind in kinds.items()
        for of in ("min", "max")
    ]
    digits = changes.selectExpr(*ends).first() if kinds else None
    return within_sql(kinds, digits or ())


def _end(of: str, name: str, kind: DataType, *, counted: bool) -> str:
    """SQL of the lowest or the highest value: ``of`` is min or max. NULL: by this column no file may be skipped.

    ``counted``: Delta skips by its statistics, in which a replacement character stands for what isn't UTF-8, as a
    transform may make it of bytes. Texts in ASCII are in order with it, as they are with such bytes. Others may not be.
    """
    from pyspark.sql.types import StringType

    column = identifier(name)
    if not (counted and isinstance(kind, StringType)):
        return f"{of}({column})"
    return f"IF(bool_or({column} RLIKE {literal(_BEYOND_ASCII)}), NULL, {of}({column}))"


def within_sql(kinds: Mapping[str, DataType], ends: Sequence[str | None]) -> str:
    """SQL that is true of every row ``t`` whose key lies in a range. Delta skips files that have no such row.

    This helps if new keys are higher than old ones, or if the table is clustered by the key.

    ``kinds``: key column -> its type; ``ends``: for each column the lowest and the highest value, as the hex digits of
    ``sinks.delta.values.digits_sql``; None: there is none. Empty: no range is known.
    """
    ranges = []
    for (name, kind), least, greatest in zip(kinds.items(), ends[::2], ends[1::2], strict=bool(ends)):
        if least is not None and greatest is not None:
            column = f"t.{identifier(name)}"
            ranges.append(
                f"({column} IS NULL OR {column} BETWEEN {value_sql(least, kind)} AND {value_sql(greatest, kind)})"
            )
    return " AND ".join(ranges)


def _has_exact_text(kind: DataType) -> bool:
    """Whether a value cast to text and back is the same in any session, and texts are compared byte by byte."""
    from pyspark.sql.types import ByteType, DateType, DecimalType, IntegerType, LongType, ShortType, StringType

    if isinstance(kind, StringType):
        return kind == StringType()
    return isinstance(kind, ByteType | ShortType | IntegerType | LongType | DecimalType | DateType)
