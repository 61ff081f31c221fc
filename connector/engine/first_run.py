"""What is asked only before the first epoch of a pipeline: what it has made since goes on as it was made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from connector.engine.coordinator_log import Log
from connector.engine.output import NoTable, Output
from connector.spark.row_settings import refuse_without_zone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def has_begun(log: Log) -> bool:
    """Whether the log has a decision. Not if it isn't there."""
    return log.read().decided is not None


def refuse_first_without_zone(spark: SparkSession, outputs: Sequence[Output], log: Log | None) -> None:
    """Raises ConfigurationError for a session in which TIMESTAMP means another type, unless the pipeline has a table,
    or rows elsewhere: objects, topics and routes are always there, so of these only the log knows."""

    def begun() -> bool:
        made = any(output.exists for output in outputs if not isinstance(output, NoTable))
        return made or (log is not None and has_begun(log))

    refuse_without_zone(spark, begun)
