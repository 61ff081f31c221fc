"""The user's SELECT between decoding and the sinks. It works row by row, and each row keeps its record's coordinates.

A record may give no row, one or several. All of them have its coordinates, so the record counts as a whole or not at
all.
"""

from __future__ import annotations

import re
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
    is used. With a shared name all sinks would get the rows of the last one.
    """
    from pyspark.errors import PySparkException

    start = sql and _SELECT.match(sql)
    if not sql or not start:
        return records
    columns = [name for name in carried if name in records.columns]
    # Under names that nobody else uses, because `SELECT *` returns the same columns once more.
    kept = ", ".join(f"{identifier(name)} AS {identifier(_CARRIED + name)}" for name in columns)
    records.createOrReplaceTempView(view)
    named = f"WITH {_NAME} AS (SELECT * FROM {identifier(view)})"
    try:
        result = records.sparkSession.sql(f"{named} {start[0]} {kept}, {sql[start.end() :]}")
        own = [name for name in result.columns if not name.startswith(_CARRIED) and name not in columns]
    except PySparkException as error:
        raise ConfigurationError(
            f"transform: Spark doesn't take it: {problem(error)}",
            hint="Write one SELECT over `records`, row by row, with the columns of value.schema. The coordinates "
            f"({', '.join(columns)}) are added automatically, also from subqueries if these select them.",
        ) from None
    for name in own:
        if [each.lower() for each in own].count(name.lower()) > 1:
            raise ConfigurationError(f"transform: column {name} is there twice (upper and lower case are the same).")
    return result.selectExpr(
        *(identifier(name) for name in own),
        *(f"{identifier(_CARRIED + name)} AS {identifier(name)}" for name in columns),
    )
