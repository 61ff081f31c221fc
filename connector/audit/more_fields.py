"""Fields of JSON records that neither the file nor the table knows, with `on_new_column: add`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from connector.audit.claim import Bounds
from connector.audit.exact_json import LENIENT, STRICT
from connector.audit.formats import Form, learns_columns
from connector.audit.records import beyond
from connector.config import DeltaAggregateSink, KeyedSink, PipelineConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHOWN = 5
_HEADER = 5
"""The bytes of Confluent's header."""
_ROWS = ("after", "before", "payload.after", "payload.before")
"""Where the row is in an event."""


def fields_without_column(
    config: PipelineConfig, records: DataFrame, form: Form, table: Sequence[str], cut: Sequence[Bounds]
) -> list[str]:
    """A note on the fields with a value that neither ``form`` nor the ``table`` has: a run adds a column for each, so
    an epoch hasn't, or somebody has dropped it since. ``records``: as Kafka has them; ``table``: its columns.

    A sink that names its columns takes no others. Runs one Spark job: only names leave the executors.
    """
    from pyspark.sql import functions as F

    sink, left_out = config.sinks[0], set[str]()
    if not learns_columns(config) or isinstance(sink, DeltaAggregateSink):
        return []
    if isinstance(sink, KeyedSink):
        if sink.column_list is not None:
            return []
        left_out = {name.lower() for name in sink.except_column_list or ()}
    known = sorted({name.lower() for name in (*form.columns.names, *table)} | left_out)
    text = f"substring(value, {_HEADER + 1})" if form.framed is not None else "value"
    text = f"CAST({text} AS STRING)"
    rows = [f"get_json_object({text}, '$.{at}')" for at in _ROWS] if form.events is not None else [text]
    claimed = records.where(f"NOT {beyond(cut, 'topic', 'partition', 'offset')}")
    objects = claimed.selectExpr(f"explode(array({', '.join(rows)})) AS text").where("text IS NOT NULL")
    fields = F.from_json("text", "map<string, string>", LENIENT if form.permissive else STRICT)
    sent = objects.select(F.explode(fields).alias("name", "content")).where("content IS NOT NULL")
    more = sent.where(~F.lower("name").isin(known)).select("name").distinct().orderBy("name")
    names = [row["name"] for row in more.limit(_SHOWN + 1).collect()]
    if not names:
        return []
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return [f"The table has no column for these fields of records, which aren't compared: {shown}."]
