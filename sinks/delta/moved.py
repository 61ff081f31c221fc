"""Keys that have left their partition, in tables ordered by offset: the checks that find them, and the error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sinks.delta.sql_layout import indented
from sinks.delta.upsert_rule import key_sql
from sinks.errors import KeyMoved
from sinks.spark.row_errors import raise_sql, raised
from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def about_moved_keys(table: str) -> Iterator[None]:
    """Raises KeyMoved if a query within the block fails because a key has records in two partitions.

    ``table``: what messages call the table.
    """
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
            hint="The usual cause: the sink's key isn't Kafka's message key, so that records of one key are in several "
            "partitions. Say what orders the updates: sequence_by: COLUMN (one that only grows), or sequence_by: "
            "_timestamp. Or have the producer send the sink's key as the message key. A key also moves when partitions "
            "are added to the topic, or when producers use different partitioners. A table that has no rows yet takes "
            "sequence_by as it is. One that has rows keeps its order: write to a new table.",
        ) from None


def raise_moved(key: str, *, now: str, offset: str, stored: str) -> str:
    """SQL that fails the query.

    ``key``: SQL of the key as text; ``now``, ``stored``: SQL of structs with the topic and partition of the incoming
    and of the stored record; ``offset``: SQL of the incoming record's offset.
    """
    return raise_sql(
        "key_moved",
        key=key,
        topic=f"{now}.topic",
        partition=f"{now}.`partition`",
        offset=offset,
        stored_topic=f"{stored}.topic",
        stored_partition=f"{stored}.`partition`",
    )


def events_moved_sql(events: str, target: str, noted: str | None, key: Sequence[str]) -> str:
    """A query that fails at a key with records in two partitions, among the events, the table and the tombstones.

    ``events``, ``target``, ``noted``: SQL of events, table and tombstones (None: there are none), as in FROM.
    """
    names = ", ".join(identifier(name) for name in key)
    same = " AND ".join(f"t.{identifier(name)} = s.{identifier(name)}" for name in key)
    moved = raise_moved(key_sql(key), now="last", offset="last.`offset`", stored="first")
    place = "struct(_topic AS topic, _partition AS `partition`, _offset AS `offset`)"
    places = f"SELECT {names}, _topic, _partition, _offset FROM"
    before = "".join(
        f"\nUNION ALL\n{places} {rows} AS t\nLEFT SEMI JOIN {events} AS s\nON {same}"
        for rows in (target, noted)
        if rows
    )
    ends = (
        f"SELECT {names}, min({place}) AS first, max({place}) AS last\n"
        f"FROM (\n{indented(f'{places} {events}{before}')}\n)\nGROUP BY {names}"
    )
    has_moved = "struct(first.topic, first.`partition`) <> struct(last.topic, last.`partition`)"
    return f"SELECT count(CASE WHEN {has_moved}\n  THEN {moved}\nEND)\nFROM (\n{indented(ends)}\n)"


def in_one_partition(points: DataFrame, key: Sequence[str]) -> DataFrame:
    """The events; a query on them fails at a key whose events come from two partitions.

    ``points``: columns ``key``, ``event``, ``deletes`` and ``stored``, see ``sinks.delta.history``.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    home = F.expr(
        "min_by(struct(event.topic, event.partition), struct(NOT coalesce(stored, false), event.offset, event.topic, "
        "event.partition))"
    )
    moved = raise_moved(key_sql(key, "key."), now="event", offset="event.`offset`", stored="home")
    # The check replaces a column that every point needs: the optimizer can't drop it.
    return (
        points.withColumn("home", home.over(Window.partitionBy("key")))
        .withColumn(
            "deletes",
            F.expr(
                f"CASE WHEN struct(event.topic, event.partition) = home THEN deletes ELSE CAST({moved} AS BOOLEAN) END"
            ),
        )
        .drop("home")
    )
