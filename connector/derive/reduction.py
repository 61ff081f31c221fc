"""Many rows to one per group: on a DataFrame, or as the text of a query, for a view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Reduction:
    """A GROUP BY whose result is one struct per group."""

    groups: Mapping[str, str]
    """Name -> SQL over the rows; of the groups, then of the aggregates."""
    aggregates: Mapping[str, str]
    row: str
    """SQL of what comes out as a struct, over groups and aggregates."""

    def of(self, rows: DataFrame) -> DataFrame:
        """One row per group, with the struct's fields as columns."""
        from pyspark.sql import functions as F

        groups = (F.expr(sql).alias(name) for name, sql in self.groups.items())
        aggregates = (F.expr(sql).alias(name) for name, sql in self.aggregates.items())
        return rows.groupBy(*groups).agg(*aggregates).selectExpr(f"{self.row} AS one").select("one.*")

    def sql(self, rows: str) -> str:
        """The same as a query; ``rows``: what comes after FROM."""
        values = {**self.groups, **self.aggregates}
        columns = ", ".join(f"{sql} AS {identifier(name)}" for name, sql in values.items())
        grouped = f"SELECT {columns} FROM {rows} GROUP BY {', '.join(self.groups.values())}"
        return f"SELECT one.* FROM (SELECT {self.row} AS one FROM ({grouped}))"
