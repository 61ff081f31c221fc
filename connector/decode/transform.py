"""The user's SELECT between decoding and the sinks. It works row by row, and each row keeps its record's coordinates.

A record may give no row, one or several. All of them have its coordinates, so the record counts as a whole or not at
all.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sinks.errors import ConfigurationError
from sinks.spark.row_errors import problem
from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = "records"
_CARRIED = "lakelock carried "
_SELECT = re.compile(r"(?:\s|--[^\n]*\n|/\*(?!\+).*?\*/)*SELECT\b(?:\s*/\*\+.*?\*/)?", re.IGNORECASE | re.DOTALL)


def transform(records: DataFrame, sql: str | None, carried: tuple[str, ...], *, view: str) -> DataFrame:
    """The result of ``sql`` over ``records``, followed by the unchanged columns ``carried``. Raises ConfigurationError.

    ``view`` is a name that no other sink of the session uses. Spark Connect looks a view up each time that the result
    is used. With a shared name all sinks would get the rows of the last one. Each thread has a view of its own.
    """
    if not sql:
        return records
    columns = [name for name in carried if name in records.columns]
    result = _selected(records, sql, columns, view)
    own = [name for name in result.columns if not name.startswith(_CARRIED) and name.lower() not in columns]
    for name in own:
        if [each.lower() for each in own].count(name.lower()) > 1:
            raise ConfigurationError(f"transform: column {name} is there twice (upper and lower case are the same).")
    return result.selectExpr(
        *(identifier(name) for name in own),
        *(f"{identifier(_CARRIED + name)} AS {identifier(name)}" for name in columns),
    )


def refuse_made(records: DataFrame, sql: str, carried: tuple[str, ...], *, view: str) -> None:
    """Raises ConfigurationError if ``sql`` makes a column with a name of ``carried``: the rows have the record's own,
    and the SELECT's would get lost in silence. Columns that it passes on are no fault, nor is another name for them.

    Metadata stay with a column through selections, and no expression over it has them: they tell both apart.
    """
    columns = [name for name in carried if name in records.columns]
    for name in columns:
        records = records.withMetadata(name, {_CARRIED: name})
    for field in _selected(records, sql, columns, view).schema:
        name = field.name.removeprefix(_CARRIED).lower()
        if name in carried and field.metadata.get(_CARRIED) != name:
            raise ConfigurationError(
                f"transform: makes {name}, which is a column of Lakelock's own; give it another name.",
                hint="The SELECT may pass it on as it is. The sink's options sequence_by and apply_as_deletes say what "
                "orders updates and what deletes rows.",
            )


def _selected(records: DataFrame, sql: str, columns: Sequence[str], view: str) -> DataFrame:
    """The result of ``sql``, with ``columns`` once more under names that nobody else uses: ``SELECT *`` returns them,
    too. Raises ConfigurationError."""
    from pyspark.errors import PySparkException

    kept = ", ".join(f"{identifier(name)} AS {identifier(_CARRIED + name)}" for name in columns)
    # Another thread (a rehearsal, a `status`) may do the same in this session, between the two statements. The view
    # stays: to drop it would take rows that are cached out of the cache, and Connect would no longer find it.
    view = f"{view}_{threading.get_ident()}"
    records.createOrReplaceTempView(view)
    named = f"WITH {_NAME} AS (SELECT * FROM {identifier(view)})"
    try:
        result = records.sparkSession.sql(f"{named} {_SELECT.sub(lambda start: f'{start[0]} {kept}, ', sql, count=1)}")
        _ = result.schema  # makes Spark Connect analyse the frame here
    except PySparkException as error:
        raise ConfigurationError(
            f"transform: Spark doesn't take it: {problem(error)}",
            hint="Write one SELECT over `records`, row by row, with the columns of value.schema. The coordinates "
            f"({', '.join(columns)}) are added automatically, also from subqueries if these select them.",
        ) from None
    return result
