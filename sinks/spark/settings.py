"""Temporary settings of a Spark session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


AS_WRITTEN = {"spark.sql.variable.substitute": "false"}
"""Without it, Spark expands ``${env:NAME}`` and the like in every statement and expression, even in quoted names, and
such a name can't be escaped in any other way."""


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply these settings within the block, and restore the previous ones after it."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, wanted in settings.items():
            spark.conf.set(name, wanted)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)
