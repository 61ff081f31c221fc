"""The Spark session of an operation that needs no Kafka: one that the caller has, the active one, or a new one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from connector.config import PipelineConfig
from connector.spark.in_use import shared_session
from connector.spark.session import refuse_lossy
from sinks.spark.settings import as_written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def given_or_new(
    given: SparkSession | None, config: PipelineConfig, name: str, *, debug: bool = False, short: bool = False
) -> Iterator[SparkSession]:
    """``given``, with ``AS_WRITTEN`` within the block, or else what ``spark.session.session`` gives.

    ``short``: whether there is little to do.

    Raises ConfigurationError if ``given`` loses rows or parts of values.
    """
    if given is not None:
        refuse_lossy(given)
        with as_written(given):
            yield given
        return
    options, s3 = config.spark_options, config.on_s3
    with shared_session(options, name=name, s3=s3, debug=debug, short=lambda: short) as spark:
        yield spark
