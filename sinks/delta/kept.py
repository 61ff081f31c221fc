"""Rows that several queries use, computed once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Kept by Spark until the end of the block; where the platform can't (serverless), each query reads again."""
    from pyspark.errors import PySparkException

    with suppress(PySparkException):
        rows = rows.persist()
    try:
        yield rows
    finally:
        with suppress(PySparkException):
            rows.unpersist()
