"""The three kinds of tables that a whole topic makes, each with Lakelock's sink and the peer's query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import streaming
from benchmarks.data import Content, check


@dataclass(frozen=True)
class Kind:
    name: str
    """That of the expected content, see `benchmarks.data.produced`."""
    sink: Mapping[str, object]
    """Lakelock's, without its path."""
    query: streaming.Query

    def into(self, folder: Path) -> dict[str, object]:
        return {"path": str(folder / "table"), **self.sink}

    def check(self, spark: SparkSession, folder: Path, should: Mapping[str, Content]) -> None:
        rows = spark.read.format("delta").load(str(folder / "table"))
        # Lakelock's aggregate also has columns for the offsets that it has counted.
        check(rows.select(*(name for name in rows.columns if name not in ("_state", "_applied"))), should[self.name])


APPEND = Kind("append", {"type": "delta_append"}, streaming.append)
UPSERT = Kind("upsert", {"type": "delta_upsert", "key": "key"}, streaming.upsert)
AGGREGATE = Kind(
    "aggregate",
    {
        "type": "delta_aggregate",
        "group_by": "key",
        "aggregates": {"records": "count(*)", "total": "sum(number)"},
    },
    streaming.partial_sums,
)
