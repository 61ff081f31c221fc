"""A few rows of a pipeline's tables, and a few dead letters, for a person to look at. Reads, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.config import DeltaPlace, PipelineConfig
from connector.display import cut
from connector.engine.dead_letters import letters_table
from connector.operations.history import PastEpoch
from sinks.delta.table import COORDINATES, DeltaTable
from sinks.offsets import OffsetRange
from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 10
_TABLES = 5
_RANGES = 50
"""So many ranges make a filter. An epoch of more partitions is shown by some of them."""
_LONGEST = 200
"""Characters of a value."""


@dataclass(frozen=True)
class SomeRows:
    """Rows of one table, as text."""

    place: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    newest: bool = False
    """Whether they are of the last epoch. A table whose rows have no coordinates can't tell."""
    letters: bool = False
    """Whether they are dead letters."""


def newest_rows(config: PipelineConfig, spark: SparkSession, past: Sequence[PastEpoch]) -> list[SomeRows]:
    """Some rows of the last epoch, of each of the first few tables, and the newest open dead letters.

    ``past``: the last epochs. The filter on their offsets lets Delta leave out files, where it has statistics.
    """
    stands = (epoch for epoch in past if epoch.state not in ("taken back", "aborted", "begun"))
    ranges = next((epoch.ranges for epoch in stands if epoch.ranges), ())
    places = [sink for sink in config.sinks if isinstance(sink, DeltaPlace)] if config.route is None else []
    shown = []
    for place in places[:_TABLES]:
        table = DeltaTable(spark, path=place.folder, name=place.table)
        if table.exists():
            shown.append(_newest(place.address, spark.table(table.sql), ranges))
    letters = letters_table(config, spark)
    if letters is not None and letters.exists() and config.dead_letters is not None:
        shown.append(
            _letters(config.dead_letters.address, spark.table(letters.table.sql).where(letters.own_sql(only_open=True)))
        )
    return shown


def _newest(place: str, rows: DataFrame, ranges: Sequence[OffsetRange]) -> SomeRows:
    newest = bool(ranges) and set(COORDINATES[:3]) <= set(rows.columns)
    if newest:
        rows = rows.where(" OR ".join(_within(each) for each in ranges[:_RANGES]))
    return _shown(place, rows, newest=newest)


def _within(range_: OffsetRange) -> str:
    at = f"_topic = {literal(range_.topic)} AND _partition = {int(range_.partition)}"
    return f"({at} AND _offset >= {int(range_.start)}L AND _offset < {int(range_.end)}L)"


def _letters(place: str, letters: DataFrame) -> SomeRows:
    newest = letters.orderBy("_noted_at", ascending=False)
    told = newest.selectExpr(
        "_topic", "_partition", "_offset", "_noted_at", "reason", "detail",
        f"substring(CAST(value AS STRING), 1, {_LONGEST}) AS value",
    )  # fmt: skip
    return _shown(place, told, newest=True, letters=True)


def _shown(place: str, rows: DataFrame, *, newest: bool, letters: bool = False) -> SomeRows:
    """The first rows. A value is text as in JSON, which knows every type."""
    as_json = "to_json(struct(*), map('ignoreNullFields', 'false')) AS row"
    found = [json.loads(row["row"]) for row in rows.limit(ROWS).selectExpr(as_json).collect()]
    columns = rows.columns
    return SomeRows(place, columns, [[_text(row.get(name)) for name in columns] for row in found], newest, letters)


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return cut(text, _LONGEST)
