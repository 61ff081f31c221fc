"""From decoded records to what a sink needs of an epoch: all of them, or the latest per key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sinks.delta.upsert import key_sql
from sinks.raised import identifier, raise_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def as_is(records: DataFrame) -> DataFrame:
    return records


def latest_per_key(records: DataFrame, key: Sequence[str]) -> DataFrame:
    """One row per key, the one with the highest offset, in one pass.

    A null in the key fails the query with the record's coordinates; so does a key with records in two partitions,
    whose offsets can't be compared.
    """
    from pyspark.sql import functions as F

    no_key = " OR ".join(f"{identifier(column)} IS NULL" for column in key)
    null_key = raise_sql("null_key", key=key_sql(key), topic="_topic", partition="_partition", offset="_offset")
    moved = raise_sql(
        "key_moved",
        key=key_sql(key, "latest."),
        topic="last.topic",
        partition="last.`partition`",
        offset="latest._offset",
        stored_topic="first.topic",
        stored_partition="first.`partition`",
    )
    # The check replaces the column that every row needs: the optimizer can't drop it.
    checked = records.withColumn("_offset", F.expr(f"CASE WHEN {no_key} THEN {null_key} ELSE _offset END"))
    place = F.struct(F.col("_topic").alias("topic"), F.col("_partition").alias("partition"))
    # The groups get names of their own: a key column may be called `latest`.
    groups = (F.col(identifier(column)).alias(f"key {index}") for index, column in enumerate(key))
    reduced = checked.groupBy(*groups).agg(
        F.max_by(F.struct(*(F.col(identifier(name)) for name in records.columns)), "_offset").alias("latest"),
        F.min(place).alias("first"),
        F.max(place).alias("last"),
    )
    one_place = F.expr(f"CASE WHEN first = last THEN latest ELSE {moved} END")
    return reduced.withColumn("latest", one_place).select("latest.*")
