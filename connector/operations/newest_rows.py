"""A few rows of a pipeline's tables, and a few dead letters, for a person to look at. Reads, and changes nothing.

Values of ``sensitive`` columns aren't among them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.config import DeltaPlace, PipelineConfig
from connector.config.sensitive import HIDDEN, is_sensitive_in_table
from connector.display import cut
from connector.engine.dead_letters import letters_table
from connector.operations.history import PastEpoch
from sinks.delta.table import COORDINATES, DeltaTable
from sinks.offsets import OffsetRange
from sinks.spark.sql import identifier, literal

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
            rows = spark.table(table.sql)
            hidden = [name for name in rows.columns if is_sensitive_in_table(config, place, name)]
            shown.append(_newest(place.address, rows, ranges, hidden))
    letters = letters_table(config, spark)
    if letters is not None and letters.exists() and config.dead_letters is not None:
        own = spark.table(letters.table.sql).where(letters.own_sql(only_open=True))
        shown.append(_letters(config.dead_letters.address, own, hidden=bool(config.sensitive)))
    return shown


def _newest(place: str, rows: DataFrame, ranges: Sequence[OffsetRange], hidden: Collection[str]) -> SomeRows:
    newest = bool(ranges) and set(COORDINATES[:3]) <= set(rows.columns)
    if newest:
        rows = rows.where(" OR ".join(_within(each) for each in ranges[:_RANGES]))
    return _shown(place, rows, newest=newest, hidden=hidden)


def _within(range_: OffsetRange) -> str:
    at = f"_topic = {literal(range_.topic)} AND _partition = {int(range_.partition)}"
    return f"({at} AND _offset >= {int(range_.start)}L AND _offset < {int(range_.end)}L)"


def _letters(place: str, letters: DataFrame, *, hidden: bool) -> SomeRows:
    """``hidden``: without the records, of which any part may be sensitive."""
    value = literal(HIDDEN) if hidden else f"substring(CAST(value AS STRING), 1, {_LONGEST})"
    newest = letters.orderBy("_noted_at", ascending=False)
    told = newest.selectExpr(
        "_topic", "_partition", "_offset", "_noted_at", "reason", "detail", f"{value} AS value",
    )  # fmt: skip
    return _shown(place, told, newest=True, letters=True)


def _shown(
    place: str, rows: DataFrame, *, newest: bool, letters: bool = False, hidden: Collection[str] = ()
) -> SomeRows:
    """The first rows. A value is text as in JSON, which knows every type. ``hidden``: columns without their values."""
    columns = rows.columns
    named = (f"{literal(HIDDEN) if name in hidden else identifier(name)} AS {identifier(name)}" for name in columns)
    as_json = f"to_json(struct({', '.join(named)}), map('ignoreNullFields', 'false')) AS row"
    found = [json.loads(row["row"]) for row in rows.limit(ROWS).selectExpr(as_json).collect()]
    return SomeRows(place, columns, [[_text(row.get(name)) for name in columns] for row in found], newest, letters)


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return cut(text, _LONGEST)
