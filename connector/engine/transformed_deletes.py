"""Whether deletes get through the user's `transform`: they have few columns, so that a WHERE easily leaves them out.
Truncates have none.

And whether the SELECT still says what the database didn't send, and makes no column that Lakelock makes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from connector.config import KeyedSink, PipelineConfig
from connector.config.transform_sql import condition_names
from connector.config.unavailable import UNAVAILABLE
from connector.decode.debezium import OP
from connector.decode.records import CARRIED, PROBLEM, TOMBSTONE
from connector.decode.transform import refuse_made
from connector.derive.changes import truncates
from connector.engine.decoders import Decoder
from sinks.errors import ConfigurationError
from sinks.spark.sql import identifier, literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

log = logging.getLogger("lakelock.decode")

_SAMPLES = ("x", "1", "2000-01-01", "true")
_PLACE = {"_topic": "'t'", "_partition": "0", "_offset": "0L", "_timestamp": "TIMESTAMP'2000-01-01 00:00:00'"}


def refuse_unfit_select(config: PipelineConfig, decode_each: Sequence[Decoder], none: DataFrame) -> None:
    """Raises ConfigurationError if ``transform`` leaves deletes out without saying so, or makes a column of Lakelock's
    own. ``decode_each``: of each sink, and one for all tables of a route. ``none``: no records, as Kafka gives them."""
    if config.transform is None:
        return
    for number, decode in enumerate({decode.decode: decode for decode in decode_each}.values()):
        records = decode.decode(none).drop(PROBLEM)
        refuse_made(records, config.transform, CARRIED, view=f"lakelock_columns_{number}")
    sinks: Sequence[object] = config.sinks
    if config.route is not None:
        sinks, decode_each = [*config.route.sinks.values()], [*decode_each] * len(config.route.sinks)
    for sink, decode in zip(sinks, decode_each, strict=True):
        refuse_lost_deletes(config, sink, decode, none)


def refuse_lost_deletes(config: PipelineConfig, sink: object, decode: Decoder, none: DataFrame) -> None:
    """Raises ConfigurationError if the SELECT of ``transform`` leaves deletes out without saying so, or a column that
    says what Debezium's events do, or don't. ``none``: no records, as Kafka gives them.

    Truncates that are left out are only warned of: Debezium sends none unless it is told to, and what lets deletes
    through is enough until then.
    """
    sql = config.transform
    if sql is None or config.of_rows or not isinstance(sink, KeyedSink):
        return
    records = decode.decode(none)
    passes = partial(_passes, records, decode.shape, sink.key)
    there = decode.shape(records).columns
    truncating = sink.apply_as_truncates is None and truncates(sink, there) != "false"
    ops = f"{OP} IN ('d', 't')" if truncating else f"{OP} = 'd'"
    through = f"Let them through: WHERE {ops} OR (...)."
    if OP in records.columns and OP not in there and sink.apply_as_deletes is None:
        raise ConfigurationError(
            f"transform: leaves out {OP}, which says which of Debezium's events delete a row of {sink.place!r}.",
            hint=f"Select {OP} too: the table doesn't get it. If deletes are to be rows, write "
            f"{sink.option('apply_as_deletes')}: 'false'.",
        )
    if UNAVAILABLE in records.columns and UNAVAILABLE not in there:
        raise ConfigurationError(
            f"transform: leaves out {UNAVAILABLE}, the names of the columns that the database didn't send: "
            f"{sink.place!r} couldn't keep their values.",
            hint=f"Select {UNAVAILABLE} too: the table doesn't get it. Where the SELECT makes another column of such a "
            "value, add its name to the array.",
        )
    if TOMBSTONE in records.columns and not condition_names(sql, TOMBSTONE) and not passes(op=None):
        raise ConfigurationError(
            f"transform: leaves out tombstones, which delete rows of {sink.place!r}: all their columns but the key are "
            "null.",
            hint=f"Let them through: WHERE {TOMBSTONE} OR (...). If they are to delete nothing, write "
            f"WHERE NOT {TOMBSTONE} AND (...).",
        )
    if OP in there and not condition_names(sql, OP, "d") and sink.apply_as_deletes is None and not passes(op="d"):
        raise ConfigurationError(
            f"transform: leaves out events that delete rows of {sink.place!r}, if the database sends only the key of a "
            "deleted row.",
            hint=f"{through} If they are to delete nothing, write WHERE {OP} <> 'd' AND (...).",
        )
    if OP in there and not condition_names(sql, OP, "t") and truncating and not passes(op="t"):
        log.warning(
            "transform: leaves out truncates, which delete all rows of %r: all their columns are null. Debezium sends "
            "them if skipped.operations is none. %s If they are to delete nothing, write %s: 'false'.",
            sink.place, through, sink.option("apply_as_truncates"),
        )  # fmt: skip


def _passes(
    records: DataFrame, transformed: Callable[[DataFrame], DataFrame], key: Sequence[str], *, op: str | None
) -> bool:
    """Whether some delete gives a row. ``op``: one of Debezium's events; None: a tombstone. All but a truncate have a
    key, and nothing else."""

    def value(field: StructField, sample: str) -> str:
        if field.name in _PLACE:
            return _PLACE[field.name]
        if field.name == TOMBSTONE:
            return str(op is None).lower()
        if field.name == OP and op is not None:
            return literal(op)
        kind = sql_type(field.dataType)
        return f"try_cast({literal(sample)} AS {kind})" if field.name in key and op != "t" else f"CAST(NULL AS {kind})"

    def delete(sample: str) -> DataFrame:
        columns = ", ".join(f"{value(field, sample)} AS {identifier(field.name)}" for field in records.schema)
        return records.sparkSession.sql(f"SELECT {columns}")

    return any(not transformed(delete(sample)).isEmpty() for sample in _SAMPLES)
