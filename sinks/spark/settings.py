"""Settings of a Spark session for one piece of work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


AS_WRITTEN = {"spark.sql.variable.substitute": "false"}
"""Else Spark expands ``${env:NAME}`` and the like in every statement and expression, quoted names included, for which
there is no other way to be written."""


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """As these for the block, and after it as they were."""
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
