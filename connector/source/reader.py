"""Reads offset ranges of Kafka with Spark: with the columnar reader where it can, else with Spark's own source."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from connector.config import Source
from connector.source import columnar, records
from connector.source.columnar import PlainValues
from sinks.offsets import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("lakelock.source")


class Reader:
    """The reader of one run. It reads as ``read_committed``."""

    def __init__(self, options: Source) -> None:
        self._options = options
        # Nothing is ever committed for this group. With one name for the whole run, Spark's executors reuse the
        # consumers of the epoch before, instead of connecting again.
        self._kafka = {**options.kafka_options, "group.id": f"lakelock-reader-{uuid.uuid4()}"}
        self._columnar: bool | None = None
        """None: nobody has looked yet."""

    def read(
        self,
        spark: SparkSession,
        ranges: Sequence[OffsetRange],
        values: PlainValues | None = None,
        *,
        headers: bool = False,
    ) -> DataFrame:
        """The records of these ranges: key, value, topic, partition, offset, timestamp, and headers if requested.

        ``values``: what the columnar reader may decode, see ``columnar.read``; if it isn't here, or with None, Spark's
        own source reads. A query over the records fails if any record is gone.
        """
        if values is not None and ranges and self._has_columnar(spark):
            return columnar.read(spark, self._kafka, ranges, values)
        return records.read(spark, self._kafka, ranges, headers=headers)

    def _has_columnar(self, spark: SparkSession) -> bool:
        if self._columnar is None:
            self._columnar = self._options.reader == "auto" and columnar.is_here(spark)
            log.info("Kafka is read by %s", "Lakelock's columnar reader" if self._columnar else "Spark's own source")
        return self._columnar
