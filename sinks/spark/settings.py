"""Settings of a Spark session: those that no work may be done with or without, and temporary ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


AS_WRITTEN = {
    "spark.sql.variable.substitute": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
}
"""Without the first, Spark expands ``${env:NAME}`` and the like in every statement and expression, even in quoted
names, and such a name can't be escaped in any other way. Without the others, which are Spark 4's defaults, it refuses
dates before 1582 and times before 1900 (Spark 3.5's default), or stores them shifted, for which only Spark makes up."""
_LOSSY: Mapping[str, tuple[Callable[[str], object], str | None]] = {
    "spark.sql.files.ignoreMissingFiles": ("true".__eq__, "false"),
    "spark.sql.files.ignoreCorruptFiles": ("true".__eq__, "false"),
    "spark.sql.parquet.outputTimestampType": ("timestamp_millis".__eq__, "TIMESTAMP_MICROS"),
    "spark.databricks.delta.stalenessLimit": (re.compile("(?!0+ *[a-z]*$).").match, "0"),
    "spark.databricks.delta.write.txnAppId": (bool, None),
    "spark.databricks.delta.write.txnVersion": (bool, None),
}
"""By setting: whether a value, in small letters, has Spark lose something, and the value to take instead (None: it is
to be unset). It would leave out the rows of a file that it can't read, and nobody counts what isn't there; or a
timestamp's microseconds; or what another process has committed to a Delta table within the limit, as a delete that is
noted beside it. With a number of a transaction in the session, Delta skips every statement on a table that has
committed the number: the second MERGE of dead letters, or the note of a delete."""


def lossless(spark: SparkSession) -> dict[str, str | None]:
    """What is to be set in this session so that Spark loses nothing. Empty in most sessions."""
    return {
        name: instead for name, (loses, instead) in _LOSSY.items() if loses((told(spark, name) or "").strip().lower())
    }


def told(spark: SparkSession, name: str) -> str | None:
    """The value of a setting. None: it has none, or the platform doesn't tell it, as a serverless cluster."""
    from pyspark.errors import PySparkException

    with suppress(PySparkException):
        return spark.conf.get(name, None)
    return None


@contextmanager
def as_written(spark: SparkSession) -> Iterator[None]:
    """Apply ``AS_WRITTEN`` within the block, in a session of the user's. What the platform refuses stays as it is."""
    from pyspark.errors import PySparkException

    with ExitStack() as applied:
        for name, value in AS_WRITTEN.items():
            if told(spark, name) != value:
                with suppress(PySparkException):
                    applied.enter_context(with_settings(spark, {name: value}))
        yield


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str | None]) -> Iterator[None]:
    """Apply these settings within the block, and restore the previous ones after it. None: it is to be unset."""
    before = {name: told(spark, name) for name in settings}
    try:
        for name, wanted in settings.items():
            put(spark, name, wanted)
        yield
    finally:
        for name, value in before.items():
            put(spark, name, value)


def put(spark: SparkSession, name: str, value: str | None) -> None:
    """Set a setting, or unset it if the value is None."""
    if value is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, value)
