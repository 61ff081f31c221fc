"""Rows of records that Kafka has forgotten: where each record made one, a table that hasn't nearly as many lacks some.

Nothing compares such rows, so what is gone of them shows in no other count.
"""

from __future__ import annotations

from collections.abc import Sequence

from connector.audit.claim import Bounds, unchecked
from connector.audit.letters import topic_of_letters
from connector.audit.verdict import PartitionAudit
from connector.config import DebeziumFormat, DeltaAppendSink, PipelineConfig
from sinks.plurals import first_of, plural

_FEW = 10
"""Of so many offsets one at least has a row. Marks of transactions, and transactions that were aborted, have none."""
_SHOWN = 5


def rows_missing(config: PipelineConfig, cut: Sequence[Bounds], parts: Sequence[PartitionAudit]) -> list[str]:
    """Why a table can't be called exact that has next to no rows of what Kafka no longer holds, as a sentence, if so.

    ``cut``: the claim as Kafka can show it. ``parts``: the counts. Of a compacted topic not every
    offset had a record when it was read.
    """
    if not _row_of_each(config):
        return []
    counts = {(part.topic, part.partition): part.counts for part in parts}
    offsets, rows = dict[str, int](), 0
    for part in cut:
        gone = 0 if part.compacted else sum(gap.end - gap.start for gap in unchecked([part]))
        of_part = counts.get((part.at.topic, part.at.partition), {})
        there = of_part.get("unchecked", 0) + of_part.get("letters_unchecked", 0)
        if there * _FEW < gone:
            offsets[f"{part.at.topic}-{part.at.partition}"] = gone
            rows += there
    if not offsets:
        return []
    return [
        f"Of {plural(sum(offsets.values()), 'offset')} of {first_of(list(offsets), _SHOWN)} that Kafka no longer holds "
        f"the table has {plural(rows, 'row')}, although each record makes one. Nothing shows whether the others were "
        "ever there, or are lost. If somebody has deleted them on purpose, only what Kafka still holds is checked."
    ]


def _row_of_each(config: PipelineConfig) -> bool:
    """Whether each record has made a row, or is a dead letter that can be counted."""
    if not isinstance(config.sinks[0], DeltaAppendSink) or config.route is not None or config.transform is not None:
        return False
    if any(step.filter is not None for flow in config.by_flow for step in flow.steps):
        return False
    # Debezium's control events make no rows.
    events = any(isinstance(flow.value, DebeziumFormat) for flow in config.by_flow)
    return not events and topic_of_letters(config) is None
