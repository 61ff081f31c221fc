"""A session that some of the tables of a route share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from connector.engine.record_errors import about_the_records
from connector.spark.tuning import FEW, for_few

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SharedSession:
    """A session that some of the tables share."""

    spark: SparkSession
    options: Mapping[str, str]
    small: bool
    lock: Lock = field(default_factory=Lock)

    @contextmanager
    def turn(self, appended: int | None) -> Iterator[None]:
        """Have the session alone. ``appended``: the number of rows that are going to be; 0: a question; None: they are
        merged."""
        few = self.small if appended == 0 else appended is not None and appended <= FEW
        with self.lock, for_few(self.spark, self.options, few=few), about_the_records():
            yield
