"""Reads the next few records of partitions with kafka-python, to look at them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import CorruptRecordError, KafkaError, OffsetOutOfRangeError, UnsupportedCodecError
from kafka.structs import TopicPartition as KafkaPartition

from sinks.kafka import client_options
from sinks.offsets import TopicPartition

log = logging.getLogger("lakelock.source")

_BYTES = 65_536
_SECONDS = 5.0


_UNREADABLE = (OffsetOutOfRangeError, CorruptRecordError, UnsupportedCodecError)
"""The first: retention has removed records, and the next look at the topics shows it."""


@dataclass
class FewRecords:
    """Samples of records. They only inform: the records that are written come through another client.

    A sample goes without records that this client can't read.
    """

    kafka: Mapping[str, str]
    """The options of Kafka's client."""
    isolation_level: str = "read_committed"
    passes_over: type[KafkaError] | tuple[type[KafkaError], ...] = _UNREADABLE
    """The errors that end a sample with what it has by then."""
    _consumer: KafkaConsumer | None = None

    @property
    def consumer(self) -> KafkaConsumer:
        """Connects when it is first used. A look at the topics alone needs no second connection."""
        if self._consumer is None:
            self._consumer = KafkaConsumer(
                **{
                    **client_options(KafkaConsumer, self.kafka),
                    "isolation_level": self.isolation_level,
                    "enable_auto_commit": False,
                    "allow_auto_create_topics": False,
                    "auto_offset_reset": "none",
                    # This client only ever fetches the next few records of a partition.
                    "max_partition_fetch_bytes": _BYTES,
                    "fetch_max_bytes": 64 * _BYTES,
                    "fetch_max_wait_ms": 100,
                }
            )
        return self._consumer

    def close(self) -> None:
        """Close the connection. The next question connects again."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close(autocommit=False)

    def next(
        self, offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], seconds: float | None = None
    ) -> Mapping[TopicPartition, list[Any]]:
        """A sample of the next records from ``offsets`` on; empty where only other offsets are left, as those of a
        transaction's end. Partitions that don't answer in time, or can't be read, are missing. Raises KafkaError.

        ``seconds``: how long to wait for them, or else 5.
        """
        waiting = {KafkaPartition(*at): end for at, end in ends.items() if at in offsets and offsets[at] < end}
        found: dict[TopicPartition, list[Any]] = {}
        if not waiting:
            return found
        try:
            self.consumer.assign(list(waiting))
            for at in waiting:
                self.consumer.seek(at, offsets[TopicPartition(*at)])
            self._poll(waiting, found, time.monotonic() + (_SECONDS if seconds is None else seconds))
            self.consumer.unsubscribe()
        except Exception as error:
            # kafka-python's next poll of records that it couldn't read may never end.
            self.close()
            if not isinstance(error, self.passes_over):
                raise
            log.debug("the sample goes without some records: %s", type(error).__name__)
        return found

    def _poll(
        self, waiting: dict[KafkaPartition, int], found: dict[TopicPartition, list[Any]], deadline: float
    ) -> None:
        while waiting and time.monotonic() < deadline:
            for at, records in self.consumer.poll(timeout_ms=200).items():
                found.setdefault(TopicPartition(*at), records)
            for at, end in list(waiting.items()):
                if TopicPartition(*at) in found or (self.consumer.position(at) or 0) >= end:
                    del waiting[at]
                    found.setdefault(TopicPartition(*at), [])
                    # A pause would keep what is fetched already, and kafka-python 3 then never gives the
                    # records of another offset: the next look would wait for them in vain.
                    self.consumer.seek(at, end)
