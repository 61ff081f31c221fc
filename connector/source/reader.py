"""Reads offset ranges of Kafka with Spark: with the columnar reader where it can, else with Spark's own source."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from connector.config import Source
from connector.source import columnar, records
from connector.source.columnar import PlainValues
from sinks.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("lakelock.source")


class Reader:
    """The reader of one run. It reads as ``read_committed``. ``headers``: whether to read the records' headers too."""

    def __init__(self, options: Source, spark: SparkSession, *, headers: bool = False) -> None:
        self._options, self._spark, self._headers = options, spark, headers
        self._group = _new_group()
        self._columnar: bool | None = None
        """None: nobody has looked yet."""
        self._leaders: dict[TopicPartition, int] = {}

    def __call__(self, ranges: Sequence[OffsetRange], values: PlainValues | None = None) -> DataFrame:
        """The records of these ranges: key, value, topic, partition, offset, timestamp, and headers if requested.

        ``values``: what the columnar reader may decode, see ``columnar.read``; if it isn't here, or with None, Spark's
        own source reads. A query over the records fails if any record is gone.
        """
        kafka = {**self._options.kafka_options, "group.id": self._group}
        if values is not None and ranges and self._has_columnar():
            return columnar.read(self._spark, kafka, ranges, values)
        return records.read(self._spark, kafka, ranges, headers=self._headers)

    def forget(self) -> None:
        """Read nothing that Spark's executors have kept: a recreated topic has other records at the same offsets."""
        self._group = _new_group()

    def led_by(self, leaders: Mapping[TopicPartition, int]) -> None:
        """Say under which leader epochs the next ranges were planned, before they are read. What was polled under other
        leaders isn't read: the new one may lack it, and hold other records at the same offsets."""
        if any(self._leaders.get(at, epoch) != epoch for at, epoch in leaders.items()):
            self.forget()
        self._leaders.update(leaders)

    def _has_columnar(self) -> bool:
        if self._columnar is None:
            self._columnar = self._options.reader == "auto" and columnar.is_here(self._spark)
            log.info("Kafka is read by %s", "Lakelock's columnar reader" if self._columnar else "Spark's own source")
        return self._columnar


def _new_group() -> str:
    """The name of a consumer group. Nothing is ever committed for it.

    As long as a run keeps the name, Spark's executors reuse the consumers of the epoch before, and the records that
    these have polled beyond its end. They go by the group, the topic's name, the partition and the next offset.
    """
    return f"lakelock-reader-{uuid.uuid4()}"
