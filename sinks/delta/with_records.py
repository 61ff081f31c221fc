"""The part of a position that SQL over a small table has to name."""

from __future__ import annotations

from sinks.delta.table import DeltaTable
from sinks.offsets import Offsets, TopicPartition

_FEW = 200


def with_records(position: Offsets, table: DeltaTable, where: str = "true", *, terms: int = 0) -> Offsets:
    """The position without partitions of which the table has no record: a condition for them is true of none.

    A position names every partition that was ever read, as of topics that a pattern matches, each hour another. So its
    SQL only grows, until Spark takes minutes to plan it. What is short is returned as it is, and no query is run.

    ``where``: SQL that is true of the records that matter. ``terms``: how many others go into the SQL with it.
    """
    if len(position) + terms <= _FEW:
        return position
    found = table.spark.sql(f"SELECT DISTINCT _topic, _partition FROM {table.sql} WHERE {where}").collect()
    there = {TopicPartition(row["_topic"], row["_partition"]) for row in found}
    return Offsets({at: next_ for at, next_ in position.items() if at in there})
