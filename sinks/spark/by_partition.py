"""SQL of an offset for each record's partition: one expression, however many partitions there are."""

from __future__ import annotations

from collections.abc import Mapping

from sinks.offsets import TopicPartition
from sinks.spark.sql import literal


def by_partition(offsets: Mapping[TopicPartition, int], *, topic: str = "topic", partition: str = "partition") -> str:
    """SQL of the offset for the record's partition; NULL for a partition that isn't in ``offsets``.

    ``topic`` and ``partition``: the records' columns.
    """
    topics: dict[str, dict[int, int]] = {}
    for at, offset in offsets.items():
        topics.setdefault(at.topic, {})[at.partition] = offset
    if not topics:
        return "CAST(NULL AS BIGINT)"
    whens = (f"WHEN {literal(name)} THEN get({_array(of)}, {partition})" for name, of in topics.items())
    return f"CASE {topic} {' '.join(whens)} END"


def _array(offsets: Mapping[int, int]) -> str:
    return f"array({', '.join(_bigint(offsets.get(number)) for number in range(max(offsets) + 1))})"


def _bigint(offset: int | None) -> str:
    return f"CAST({'NULL' if offset is None else offset} AS BIGINT)"
