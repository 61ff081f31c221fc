"""Compares every version of a key with its recorded time: from when to when the topic's records say that it stood.

At each time at which something of a key was recorded, the records that were known then have a history. A version that
the histories of several such times have, one after the other, is one row, from the first of these times to the next
time without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from connector.audit.claim import Bounds
from connector.audit.history import Versions, versions_of, with_started
from connector.audit.records import Records, changes, sequence_type, system_type, table_columns
from connector.audit.values import with_defaults
from connector.config import DeltaHistorySink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_PLACE = ("topic", "partition", "offset")


def recorded_versions(records: Records, rows: DataFrame, cut: Sequence[Bounds], sink: DeltaHistorySink) -> Versions:
    """Those of a bitemporal delta_history table. A row is identified by its key, the record that started its version,
    and when it was recorded."""
    sequence, system = sequence_type(records, sink), system_type(records, sink)
    columns = table_columns(records.columns, sink)
    times = {
        "start": ("__START_AT", sequence), "end": ("__END_AT", sequence),
        "recorded": ("__SYSTEM_START_AT", system), "until": ("__SYSTEM_END_AT", system),
    }  # fmt: skip
    # At one time a record starts one version of a key, unless it makes several rows.
    identity = [*_PLACE, "recorded", *(["start"] if records.several else [])]
    events = changes(records, sink, cut)
    expected = _expected(events, records, rows, columns, sink)
    return Versions(expected, events.where("e_later"), times, identity)


def _expected(
    events: DataFrame, records: Records, rows: DataFrame, columns: StructType, sink: DeltaHistorySink
) -> DataFrame:
    """One row per version and span of recorded time: e_k*, the coordinates of its start, e_start, e_end, e_recorded,
    e_until, e_values, e_later (whether its key has records after the claim), and e_lacks.

    A key that only has deletes has a row of the first of them, for no time.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys = [f"e_k{index}" for index in range(len(sink.key))]
    time = f"e_k{len(keys)}"
    events = events.withColumn("e_order", F.struct("e_sequence", "e_system", *(f"e_{name}" for name in _PLACE)))
    in_turn = Window.partitionBy(*keys).orderBy("e_system")
    times = (
        events.where("NOT e_later")
        .select(*keys, "e_system")
        .distinct()
        .select(
            *keys,
            F.struct(
                F.row_number().over(in_turn).alias("nth"),
                F.col("e_system").alias("at"),
                F.lead("e_system").over(in_turn).alias("next"),
            ).alias(time),
        )
    )
    # The records of a time and before it, as if they were those of a key of their own.
    known = times.join(events, keys).where(f"e_later OR e_system <= {time}.at")
    if records.defaults:
        known = with_started(known, rows, sink, columns, recorded=f"{time}.at")
    as_key = sink.model_copy(update={"key": (*sink.key, time)})
    several = records.several
    histories = versions_of(known, columns, as_key, partial=False, several=several, defaults=records.defaults)
    # A version of a record that lacks a field may later be of a record that has it, too.
    filled = with_defaults(F.col("e_values"), columns, records.defaults, F.col("e_lacked"))
    histories = histories.withColumns({"e_values": filled, "e_lacks": F.col("e_lacked")}).drop("e_lacked")
    version = [*keys, *(f"e_{name}" for name in _PLACE), "e_start", "e_end", "e_values"]
    follows = F.row_number().over(Window.partitionBy(*version).orderBy(time))
    spans = (
        histories.withColumn("span", F.col(f"{time}.nth") - follows)
        .groupBy(*version, "span")
        .agg(
            F.min(time).alias("first"),
            F.max(time).alias("last"),
            F.max("e_later").alias("e_later"),
            F.first("e_lacks").alias("e_lacks"),
        )
        .withColumns({"e_recorded": F.col("first.at"), "e_until": F.col("last.next")})
        .drop("span", "first", "last")
    )
    return spans.unionByName(_deletes_alone(events, columns, sink, keys, several=several))


def _deletes_alone(
    events: DataFrame, columns: StructType, sink: DeltaHistorySink, keys: Sequence[str], *, several: bool
) -> DataFrame:
    """For each key the row that it has if all its records are deletes: that of the first by both sequences.

    Of records that share both sequences only the last counts. Each of the others counts at its own recorded time.
    """
    from pyspark.sql import functions as F

    rank = "struct(e_order, e_json, e_change = 'delete')" if several else "e_order"
    values = ", ".join(
        f"{f'e_values.v{index}' if name in sink.key else f'IF(false, e_values.v{index}, NULL)'} AS v{index}"
        for index, name in enumerate(columns.names)
    )
    event = f"struct(e_order, e_change, e_lacks, struct({values}, e_values.timestamp AS timestamp) AS e_values)"
    counting = events.groupBy(*keys, "e_sequence", "e_system").agg(
        F.max_by(F.expr(event), F.expr(f"IF(e_later, NULL, {rank})")).alias("event"), F.max("e_later").alias("e_later")
    )
    of_key = counting.groupBy(*keys).agg(
        F.expr("min_by(event, IF(event IS NULL, NULL, struct(e_sequence, e_system)))").alias("event"),
        F.expr("bool_or(event.e_change = 'update')").alias("updated"),
        F.max("e_later").alias("e_later"),
    )
    return of_key.where("event IS NOT NULL AND NOT updated").select(
        *keys,
        *(F.expr(f"event.e_order.e_{name}").alias(f"e_{name}") for name in _PLACE),
        *(F.expr("event.e_order.e_sequence").alias(name) for name in ("e_start", "e_end")),
        "event.e_values",
        *(F.expr("event.e_order.e_system").alias(name) for name in ("e_recorded", "e_until")),
        "e_later",
        "event.e_lacks",
    )
