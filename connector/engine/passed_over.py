"""Records that get no table of a route because its ``values`` spell their name otherwise. They are only warned of: they
may well be meant to get none."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from connector.config import PipelineConfig
from connector.decode.flows import FlowsDecoder
from connector.decode.records import ROUTE, RecordDecoder
from connector.engine.epoch import Reading
from sinks.contract import Epoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("lakelock.routes")

_EVERY = 600.0
"""Seconds. A kind of record may turn up while a run goes on."""
_SAMPLE = 1_000
"""Offsets of each partition, from the start of the epoch."""
_NAMES = 1_000
"""Those that most of the records give."""


@dataclass
class PassedOver:
    """Looks at the names that records give a run."""

    config: PipelineConfig
    decoder: RecordDecoder | FlowsDecoder
    _next: float = field(default=0.0, init=False)

    def warn(self, reading: Reading, epoch: Epoch, there: Collection[str]) -> None:
        """As ``look`` at the first records of an epoch that has some without a table, with the warnings in the log.

        Does so at intervals. A retry reads letters, and none of Kafka's records.
        """
        assert self.config.route is not None
        if time.monotonic() < self._next or not epoch.ranges or not self._unseen(there):
            return
        first = [replace(part, end=min(part.end, part.start + _SAMPLE)) for part in epoch.ranges]
        for warning in self.look(reading.read(first), there):
            log.warning("%s", warning)
        self._next = time.monotonic() + _EVERY

    def look(self, records: DataFrame, there: Collection[str]) -> list[str]:
        """Warnings about records, as Kafka gives them. ``there``: the values that have a record or a table."""
        assert self.config.route is not None
        if not self._unseen(there) or not isinstance(self.decoder, RecordDecoder):
            return []
        named = self.decoder.named(records, whatever=True).where(f"{ROUTE} IS NOT NULL")
        names = named.groupBy(ROUTE).count().orderBy("count", ascending=False).limit(_NAMES).collect()
        return self.config.route.passed_over([row[ROUTE] for row in names], there, self.config.value)

    def _unseen(self, there: Collection[str]) -> list[str]:
        assert self.config.route is not None
        return self.config.route.unseen(there, self.config.value)
