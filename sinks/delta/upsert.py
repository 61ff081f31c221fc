"""The latest record per key: a Delta MERGE in which an update whose offset is <= the stored one is ignored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sinks.contract import Committed, Epoch, Position
from sinks.delta.commit import PipelineCommits, options
from sinks.delta.table import DeltaTable
from sinks.errors import KeyMoved
from sinks.raised import identifier, literal, raise_sql, raised

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE = "lakelock_epoch"
_CONF = {
    "txnAppId": "spark.databricks.delta.write.txnAppId",
    "txnVersion": "spark.databricks.delta.write.txnVersion",
    "userMetadata": "spark.databricks.delta.commitInfo.userMetadata",
}


class DeltaUpsert:
    """Rows need the table's columns and at most one row per key. The table's session must be the sink's own."""

    def __init__(self, table: DeltaTable, commits: PipelineCommits, *, key: Sequence[str]) -> None:
        self._table = table
        self._commits = commits
        self._key = key

    def position(self) -> Position | None:
        return self._commits.position()

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        merge = merge_sql(self._table.sql, self._key, rows.columns, guarded=True)

        def write() -> None:
            # MERGE takes no options: Delta reads the session's. They must not outlive the statement, or later
            # commits of the session would carry this epoch's number and offsets.
            conf = self._table.spark.conf
            rows.createOrReplaceTempView(SOURCE)
            try:
                for name, value in options(epoch).items():
                    conf.set(_CONF[name], value)
                self._table.spark.sql(merge).collect()
            finally:
                for name in _CONF.values():
                    conf.unset(name)

        with about_moved_keys(self._table.label):
            return self._commits.commit(epoch, write)


@contextmanager
def about_moved_keys(table: str) -> Iterator[None]:
    """Raises KeyMoved where the MERGE's guard, or the reduction before it, found a key in two partitions."""
    try:
        yield
    except Exception as error:
        moved = raised(error)
        if moved is None or moved["kind"] != "key_moved":
            raise
        raise KeyMoved(
            f"Key {moved['key']} of {table!r} came from {moved['stored_topic']}-"
            f"{moved['stored_partition']} so far, and now from {moved['topic']}-{moved['partition']} (offset "
            f"{moved['offset']}). Offsets of two partitions can't be compared, so which update is the newer can't "
            "be told. Nothing of this epoch was written.",
            hint="A key changes its partition when partitions were added to the topic, or when producers don't "
            "use the same key and partitioner. Write to a new table from a topic where keys keep their partition.",
        ) from None


def merge_sql(target: str, key: Sequence[str], columns: Sequence[str], *, guarded: bool) -> str:
    """The MERGE of one epoch. The guard is in the condition of its update; without it the last writer wins."""
    on = " AND ".join(f"t.{identifier(column)} = s.{identifier(column)}" for column in key)
    updates = ", ".join(f"t.{identifier(column)} = s.{identifier(column)}" for column in columns)
    names = ", ".join(identifier(column) for column in columns)
    values = ", ".join(f"s.{identifier(column)}" for column in columns)
    key_moved = raise_sql(
        "key_moved",
        key=key_sql(key, "s."),
        topic="s._topic",
        partition="s._partition",
        offset="s._offset",
        stored_topic="t._topic",
        stored_partition="t._partition",
    )
    newer = (
        # Spark may evaluate this for rows without a match too: those must not raise.
        # A row that a person put in has no offset: the first update from Kafka replaces it.
        "CASE WHEN s._offset IS NULL THEN false WHEN t._offset IS NULL THEN true "
        "WHEN t._topic = s._topic AND t._partition = s._partition THEN s._offset > t._offset "
        f"ELSE CAST({key_moved} AS BOOLEAN) END"
    )
    return (
        f"MERGE INTO {target} AS t USING {SOURCE} AS s ON {on} "
        f"WHEN MATCHED {f'AND {newer} ' if guarded else ''}THEN UPDATE SET {updates} "
        f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
    )


def key_sql(key: Sequence[str], prefix: str = "") -> str:
    """SQL of the key's columns as JSON, for messages."""
    fields = ", ".join(f"{literal(column)}, {prefix}{identifier(column)}" for column in key)
    return f"to_json(named_struct({fields}))"
