"""From Kafka's records to the rows that each sink takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from connector.config import (
    OWN_COLUMNS,
    KeyedSink,
    PipelineConfig,
    TopicPattern,
)
from connector.decode import as_declared, record_format
from connector.decode.records import CARRIED, PROBLEM, RAW, TOMBSTONE, RecordDecoder, refuse_tombstones
from connector.decode.transform import transform
from sinks.delta.table import DeltaTable
from sinks.spark.schema_changes import narrowed
from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


Rows = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True)
class Decoder:
    """From Kafka's records to rows of the user's columns, in two steps: sinks with the same ``decode`` share it."""

    decode: RecordDecoder
    """The formats of value and key. With dead letters, records that have a ``_problem`` are there too."""
    shape: Rows
    """What the sink takes of those without a problem, and the transform. With dead letters they still have ``_raw``,
    and ``_tombstone`` whether the sink takes such or not."""
    takes_tombstones: bool
    several: bool
    """A record may make several rows."""

    def __call__(self, records: DataFrame) -> DataFrame:
        """Of records that are all right."""
        rows = self.shape(self.decode(records)).drop(RAW)
        return rows if self.takes_tombstones else rows.drop(TOMBSTONE)


def decoders(
    config: PipelineConfig, spark: SparkSession, tables: Mapping[int, DeltaTable] = MappingProxyType({})
) -> Sequence[Decoder]:
    """One per sink; ``tables`` by the number of their sink. A sink without a key takes no tombstones, which are refused
    only where it takes its rows."""
    topics = config.source.topics
    if isinstance(topics, TopicPattern):
        topics = (topics.pattern,)  # a registry is asked for the subject that it was given
    # A transform says itself which columns there are: of other fields it wouldn't know.
    learns = config.on_new_column != "add" or config.transform is None
    value = record_format(
        "value", config.value, spark, topics,
        on_new_column=config.on_new_column if learns else None,
        added=partial(_with_columns_of, tables.values()) if config.on_new_column == "add" and learns else as_declared,
    )  # fmt: skip
    key_format = record_format("key", config.key, spark, topics) if config.key is not None else None
    letters = config.on_bad_record == "dead_letter"
    keys = [sink.key if isinstance(sink, KeyedSink) else None for sink in config.sinks]
    first = next((key for key in keys if key), None)
    decode = {
        columns: RecordDecoder(
            value, key_format, headers=config.headers, tombstones=columns, require=config.require, letters=letters,
            raw=config.dead_letters is not None,
        )
        for columns in {columns or first for columns in keys}
    }  # fmt: skip

    def shape(index: int, columns: Sequence[str] | None, table: DeltaTable | None, rows: DataFrame) -> DataFrame:
        if letters:
            rows = rows.where(f"{PROBLEM} IS NULL").drop(PROBLEM)
        elif columns is None and TOMBSTONE in rows.columns:
            rows = refuse_tombstones(rows)
        rows = transform(rows, config.transform, CARRIED, view=f"lakelock_records_{index}")
        return rows if table is None else _without_new_columns(rows, table)

    return [
        Decoder(
            decode[columns or first],
            partial(shape, index, columns, tables.get(index) if config.on_new_column == "ignore" else None),
            takes_tombstones=columns is not None,
            several=config.transform is not None or config.of_rows,
        )
        for index, columns in enumerate(keys)
    ]


def _with_columns_of(tables: Iterable[DeltaTable], declared: StructType) -> StructType:
    """Columns that a table has got from fields of records since, and that are still to be filled from them."""
    from pyspark.sql.types import StructType

    fields = {field.name.lower(): field for field in declared}
    for table in tables:
        for field in table.schema if table.detail() is not None else ():
            if field.name.lower() not in OWN_COLUMNS:
                fields.setdefault(field.name.lower(), field)
    return StructType(list(fields.values()))


def _without_new_columns(rows: DataFrame, table: DeltaTable) -> DataFrame:
    """What the table, if it is there, lacks is left out."""
    if table.detail() is None:
        return rows
    there = {field.name.lower(): field.dataType for field in table.schema}
    return rows.selectExpr(
        *(
            narrowed(identifier(field.name), field.dataType, there[field.name.lower()])
            + f" AS {identifier(field.name)}"
            if field.name.lower() in there
            else identifier(field.name)
            for field in rows.schema
            if field.name.lower() in there or field.name in CARRIED
        )
    )
