"""The one query: records of Kafka against rows of the table, on the executors, counted per partition.

Every row of the table counts as exactly one of found, duplicated, stale, resurrected, altered, unexpected, ahead,
unchecked; every expected row as exactly one of found, lost, stale, altered, and resurrected where a deleted row stays.
Only these counts, and the first coordinates of each, leave the executors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from connector.audit.aggregate import aggregated
from connector.audit.appended import appended
from connector.audit.claim import Bounds, unchecked
from connector.audit.history import versions
from connector.audit.records import decoded
from connector.audit.upserted import upserted
from connector.config import DeltaAggregateSink, DeltaHistorySink, DeltaUpsertSink, KeyedSink, PipelineConfig
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def compare(
    config: PipelineConfig,
    *,
    records: DataFrame,
    rows: DataFrame,
    schema: StructType,
    cut: Sequence[Bounds],
    committed_later: bool,
    leave_out: Sequence[str] = (),
    late: DataFrame | None = None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """One entry per kind and topic-partition: kind, topic, partition, count, first {topic, partition, offset, key};
    and notes.

    ``committed_later``: rows beyond the claim are no fault. ``leave_out``: topics whose rows are somebody else's.
    ``late``: the dead letters of windows. Topic and partition are None for rows from nowhere in the claim, and groups.
    """
    sink = config.sinks[0]
    key = sink.key if isinstance(sink, KeyedSink) else ()
    found = decoded(records, schema, key, config.transform, strict=sink.type == "delta_append")
    if isinstance(sink, KeyedSink):
        for column in sink.key:
            if column not in found.columns.names:
                source = "transform" if config.transform else "value.schema"
                raise ConfigurationError(f"sinks[0].key: {column!r} isn't a column of {source}.")
    whole = not unchecked(cut) and not any(part.compacted for part in cut)
    if isinstance(sink, DeltaAggregateSink):
        return aggregated(found, rows, cut, sink, whole=whole, committed_later=committed_later, late=late)
    if isinstance(sink, DeltaHistorySink):
        of_keys = versions(found, rows, cut, sink, whole=whole, committed_later=committed_later, leave_out=leave_out)
        return of_keys, []
    if isinstance(sink, DeltaUpsertSink):
        of_keys = upserted(found, rows, cut, sink, whole=whole, committed_later=committed_later, leave_out=leave_out)
        return of_keys, []
    of_records = appended(found, rows, cut, committed_later=committed_later, leave_out=leave_out)
    return of_records, []
