"""Decodes a few records and throws them away, while a run that has much to read prepares.

What a JVM does for the first time takes seconds, and the first steps of a run (finding out columns, making tables,
reading logs) use one core. Beside them this loads the classes of Kafka and Spark, and compiles the code, that the first
epoch needs. Nothing depends on it: it writes nothing, and what it fails of, the epoch will meet and tell.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from connector.config import PipelineConfig
from connector.engine.decoders import decoders
from connector.engine.short_runs import appends_only
from connector.protocol.recover import TopicsHeld
from connector.source.reader import Reader
from sinks.offsets import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakelock.spark")

_RECORDS = 1_000
_END_SECONDS = 1.0


def worthwhile(config: PipelineConfig) -> bool:
    """Whether it gains time. The first steps of a run that merges leave no core free."""
    return (os.cpu_count() or 1) > 1 and appends_only(config)


@contextmanager
def rehearsed(config: PipelineConfig, spark: SparkSession, held: TopicsHeld) -> Iterator[None]:
    """Rehearse beside the block, with the newest records of one partition."""
    parts = [OffsetRange(*at, held.beginnings[at], end) for at, end in held.ends.items()]
    longest = max(parts, key=lambda part: part.span, default=None)
    if longest is None or not longest.span:
        yield
        return
    part = replace(longest, start=max(longest.start, longest.end - _RECORDS))
    beside = threading.Thread(target=_rehearse, args=(config, spark, part), name="lakelock-rehearsal", daemon=True)
    beside.start()
    try:
        yield
    finally:
        # A run that fails at once doesn't wait for it: it ends with the session.
        beside.join(_END_SECONDS)


def _rehearse(config: PipelineConfig, spark: SparkSession, part: OffsetRange) -> None:
    try:
        decoder, *_ = decoders(config, spark)
        plain = decoder.decode.plain
        if plain is None:
            return  # with a registry it would ask for schemas, as the epoch does
        records = Reader(config.source, spark, headers=config.reads_headers)([part], plain)
        decoder(records).write.format("noop").mode("overwrite").save()
    except Exception:
        log.debug("the rehearsal ended early", exc_info=True)
