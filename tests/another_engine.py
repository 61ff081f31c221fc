"""Tables as delta-rs reads them: it shares nothing with Spark, and needs milliseconds where Spark needs a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def query(path: Path | str, sql: str) -> list[tuple[Any, ...]]:
    """The rows of ``SELECT ... FROM t``, where ``t`` is the table, in DataFusion's SQL."""
    from deltalake import DeltaTable, QueryBuilder

    found = QueryBuilder().register("t", DeltaTable(str(path))).execute(sql).read_all()
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))
