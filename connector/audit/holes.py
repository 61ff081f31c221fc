"""Rows where Kafka's log has a hole: no record has their offset, although the log has records before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from connector.audit.claim import Bounds
from connector.audit.records import PLACE
from connector.audit.rows import placed
from sinks.plurals import plural

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def holes(
    rows: DataFrame,
    letters: DataFrame | None,
    shown: DataFrame | None,
    cut: Sequence[Bounds],
    counts: Sequence[Mapping[str, Any]],
) -> tuple[list[str], list[str]]:
    """A note on rows that count as unexpected, and that a compaction of long ago may explain: no broker keeps the
    cleanup policies that a topic had. And why the table can't be called exact: nobody knows whether a topic is
    compacted, or its rows and letters come from nowhere. Runs Spark jobs only if there are such rows.

    ``shown``: the coordinates of all records that Kafka shows; ``counts``: of the comparison.
    """
    if shown is None:
        return [], []
    there = [each for each in (rows, letters) if each is not None and "_topic" in each.columns]
    return _unexpected(rows, shown, cut, counts), _untold(there, shown, cut, counts)


def _unexpected(
    rows: DataFrame, shown: DataFrame, cut: Sequence[Bounds], counts: Sequence[Mapping[str, Any]]
) -> list[str]:
    if not any(each["kind"] == "unexpected" and each["topic"] is not None for each in counts):
        return []
    number = _in_holes(rows, shown, [part for part in cut if not part.compacted])
    if not number:
        return []
    return [
        f"{plural(number, 'row has', 'rows have')} an offset at which Kafka's log has no record. Aborted transactions "
        "leave such holes, and so does compaction. If the topic was compacted once, the records may have been "
        "removed then: Kafka doesn't remember that."
    ]


def _untold(
    frames: Sequence[DataFrame], shown: DataFrame, cut: Sequence[Bounds], counts: Sequence[Mapping[str, Any]]
) -> list[str]:
    untold = [part for part in cut if part.untold]
    topics = {part.at.topic for part in untold}
    if not any(each["kind"] in ("unchecked", "letters_unchecked") and each["topic"] in topics for each in counts):
        return []
    every = [each.select(*PLACE) for each in frames]
    number = _in_holes(reduce(lambda one, other: one.unionByName(other), every), shown, untold) if every else 0
    if not number:
        return []
    them = plural(number, "row or dead letter has", "rows or dead letters have")
    return [
        f"{them} an offset at which Kafka's log has no record. Compaction may have removed it, but Kafka doesn't tell "
        f"whether {' and '.join(sorted(topics))} is compacted. Give the user of this audit the permission "
        "DESCRIBE_CONFIGS on the topic."
    ]


def _in_holes(rows: DataFrame, shown: DataFrame, cut: Sequence[Bounds]) -> int:
    """How many rows have an offset in these bounds at which Kafka shows no record."""
    from pyspark.sql import functions as F

    there = placed(rows.select(*(F.col(name).alias(f"r{name}") for name in PLACE)), cut).where("r_zone = 'checked'")
    records = shown.select(*(F.col(name).alias(f"s{name}") for name in PLACE))
    same = F.expr(" AND ".join(f"r{name} = s{name}" for name in PLACE))
    return there.join(records, same, "left_anti").count()
