"""Rows where Kafka's log has a hole: no record has their offset, although the log has records before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connector.audit.claim import Bounds
from connector.audit.records import PLACE
from connector.audit.rows import placed
from sinks.plurals import plural

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rows_in_holes(
    rows: DataFrame, shown: DataFrame | None, cut: Sequence[Bounds], counts: Sequence[Mapping[str, Any]]
) -> list[str]:
    """A note on rows that count as unexpected, and that a compaction of long ago may explain: no broker keeps the
    cleanup policies that a topic had. Runs a Spark job only if there are such rows.

    ``shown``: the coordinates of all records that Kafka shows; ``counts``: of the comparison.
    """
    from pyspark.sql import functions as F

    if shown is None or not any(each["kind"] == "unexpected" and each["topic"] is not None for each in counts):
        return []
    there = placed(rows.select(*(F.col(name).alias(f"r{name}") for name in PLACE)), cut)
    there = there.where("r_zone = 'checked' AND NOT r_compacted")
    records = shown.select(*(F.col(name).alias(f"s{name}") for name in PLACE))
    same = F.expr(" AND ".join(f"r{name} = s{name}" for name in PLACE))
    number = there.join(records, same, "left_anti").count()
    if not number:
        return []
    return [
        f"{plural(number, 'row has', 'rows have')} an offset at which Kafka's log has no record. Aborted transactions "
        "leave such holes, and so does compaction. If the topic was compacted once, the records may have been "
        "removed then: Kafka doesn't remember that."
    ]
