"""Which runs have little to do. Their JVM starts fast and works slowly, and their queries aren't compiled."""

from __future__ import annotations

from connector.config import DeltaAppendSink, DeltaSink, PipelineConfig
from connector.config.route import sinks_of
from connector.protocol.recover import TopicsHeld, behind
from connector.source.consumer_group import ConsumerGroup
from sinks.errors import LakelockError

_SHORT = 100_000
"""Up to this many records, a JVM with quick-start options appends about two seconds sooner. At three times as many
records it no longer does. See docs/spark.md."""
SMALL = 3_000_000
"""Up to this many rows, it also merges them sooner: by seven seconds into 500,000 rows, by two into 3,000,000. And
questions about the table are answered sooner by queries that aren't compiled."""


def appends_only(config: PipelineConfig) -> bool:
    """Whether a run merges nothing into a table."""
    return all(isinstance(sink, DeltaAppendSink) for sink in sinks_of(config))


def is_short(config: PipelineConfig, held: TopicsHeld, group: ConsumerGroup) -> bool:
    """Whether the run has little to read, and merges it into small tables if at all.

    A guess from offsets, to start a JVM: a table has hardly more rows than the topics have had records.
    """
    if config.interval is not None or not all(isinstance(sink, DeltaSink) for sink in config.sinks):
        return False
    if not appends_only(config) and sum(held.ends.values()) > SMALL:
        return False
    try:
        return behind(group.committed(), held) <= _SHORT
    except LakelockError:
        return False
