"""The records that Kafka holds, and how they change the rows of a key."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from connector.audit.claim import At, Bounds, Held, nested
from connector.audit.in_both import as_in
from connector.audit.values import Default, comparable_values
from connector.config import COORDINATES, DeltaHistorySink, KeyedSink
from sinks.errors import ConfigurationError
from sinks.kafka import TOLD_TIMESTAMP, spark_reader
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_NO_RECORDS = {
    "key": "binary", "value": "binary", "topic": "string", "partition": "int", "offset": "bigint",
    "timestamp": "timestamp", "headers": "array<struct<key: string, value: binary>>",
}  # fmt: skip
_WITH_MICROSECONDS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
PLACE = COORDINATES[:3]
"""The columns that say which record a row is of."""
TOMBSTONE, UNAVAILABLE = "_tombstone", "_unavailable"
PROBLEM, PROBLEMS = "_problem", "_problems"
"""What is wrong with a record; and all that is wrong with its rows, where it makes several that the sink refuses."""
RAW = "_raw"
"""A digest of the whole record as Kafka gave it. Present only if there are dead letters to compare with."""
LACKS = "lakelock_lacks"
"""The paths of the fields with a default that the record's own schema lacks. Not all formats have it."""


@dataclass(frozen=True)
class Records:
    """Decoded records.

    ``frame`` has the user's ``columns``, the coordinates ``_topic`` ... ``_timestamp``, ``_tombstone`` (Kafka's value
    was null), and ``_problem`` (what is wrong with the record, or null). A record that can't be read has nulls for the
    user's columns.
    """

    frame: DataFrame
    columns: StructType
    several: bool = False
    """A record may make no row, or several."""
    defaults: Mapping[str, Default] = field(default_factory=dict)
    """Of fields that some records lack: the path of the column, or of a field in it."""
    tied: Sequence[str] | None = None
    """The columns by which several rows of one record are ordered, also those that the table lacks. None: its own."""
    numbered: Collection[str] = ()
    """The columns that Delta may have filled where a record has no value for them."""
    shown: DataFrame | None = None
    """The coordinates of all records that Kafka shows, also of those that make no row. None: of nothing."""
    left_out: DataFrame | None = None
    """The coordinates and digests of the records that a filter has taken out. None: none, or there are no digests."""

    @property
    def partial(self) -> bool:
        """Whether a record says which columns of its row it leaves as they are."""
        return UNAVAILABLE in self.columns.names


def kafka_records(
    spark: SparkSession,
    kafka: Mapping[str, str],
    cut: Sequence[Bounds],
    behind: Held | None = None,
    *,
    headers: bool = False,
) -> DataFrame:
    """The records of these bounds, and with ``behind``, what Kafka holds, those that follow them.

    The query fails if any of them is gone.

    ``kafka``: options by Kafka's names, with secrets in clear text. ``headers``: whether to read the headers too.
    """
    from pyspark.sql import functions as F

    starts, ends = to_read(cut, behind)
    if not starts:
        empty = (F.lit(None).cast(kind).alias(name) for name, kind in _NO_RECORDS.items())
        return spark.range(0).select(*empty)
    read = nested(starts)
    records = (
        spark_reader(spark, kafka)
        .option("assign", json.dumps({topic: [int(part) for part in parts] for topic, parts in read.items()}))
        .option("startingOffsets", json.dumps(read))
        .option("endingOffsets", json.dumps(nested(ends)))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", headers)
        .load()
    )
    # One condition: each `where` would be a plan around the one before, and a table may have lost many ranges.
    outside = " AND ".join(
        f"(topic <> {literal(gap.topic)} OR `partition` <> {gap.partition} OR "
        f"`offset` NOT BETWEEN {gap.start} AND {gap.end - 1})"
        for part in cut
        for gap in part.lost
        if gap.end > part.begin
    )
    counted = records.where(outside) if outside else records
    return counted.withColumn("timestamp", F.expr(TOLD_TIMESTAMP))


def to_read(cut: Sequence[Bounds], behind: Held | None = None) -> tuple[dict[At, int], dict[At, int]]:
    """Where to begin and to end in each partition that has something to read. ``behind``: as in ``kafka_records``.

    Where nothing of the claim is left, the records behind it begin where Kafka's do.
    """
    starts, ends = {}, {}
    for part in cut:
        begin, stop = part.begin, part.stop
        if behind is not None:
            begin = max(begin, behind.beginnings.get(part.at, begin))
            stop = max(stop, behind.ends.get(part.at, 0))
        if begin < stop:
            starts[part.at], ends[part.at] = begin, stop
    return starts, ends


def table_columns(columns: StructType, sink: KeyedSink) -> StructType:
    """The columns of the records that the table has."""
    from pyspark.sql.types import StructType

    left_out = set(sink.except_column_list or ())
    kept = set(columns.names if sink.column_list is None else sink.column_list) - left_out
    return StructType([part for part in columns if part.name in kept])


def digest(timestamp: str) -> Column:
    """A digest of a record's key, value, headers and timestamp, from columns of these names."""
    from pyspark.sql import functions as F

    return F.sha2(F.to_json(F.struct("key", "value", "headers", F.col(timestamp).alias("timestamp"))), 256)


def sequence_type(records: Records, sink: KeyedSink) -> str:
    """The type of what orders the changes of a key, by Spark's name. Raises ConfigurationError."""
    return kind_of(records, sink, "sequence_by", sink.sequence_by).simpleString() if sink.sequence_by else "bigint"


def system_type(records: Records, sink: DeltaHistorySink) -> str:
    """The type of what tells when a change was recorded, as above. Only a bitemporal history has it."""
    return kind_of(records, sink, "system_sequence_by", sink.recorded_by or "NULL").simpleString()


def kind_of(records: Records, sink: KeyedSink, option: str, expression: str) -> DataType:
    """The type of what an option gives for each record. Raises ConfigurationError."""
    from pyspark.errors import PySparkException

    try:
        return records.frame.selectExpr(f"({expression}) AS found").schema[0].dataType
    except PySparkException as error:
        problem = next(line for line in str(error).splitlines() if line.strip())
        raise ConfigurationError(f"{sink.option(option)}: Spark doesn't take it: {problem.strip()}") from None


def coordinates(records: DataFrame) -> DataFrame:
    """The coordinates of records as Kafka has them."""
    from pyspark.sql import functions as F

    return records.select(*(F.col(name.removeprefix("_")).alias(name) for name in PLACE))


def beyond(cut: Sequence[Bounds], topic: str, partition: str, offset: str) -> str:
    """SQL: whether these coordinates lie after the claim."""
    ends = literal(json.dumps({f"{part.at.topic} {part.at.partition}": part.end for part in cut}))
    return f"coalesce({offset} >= from_json({ends}, 'map<string, bigint>')[concat({topic}, ' ', {partition})], false)"


def without_end(cut: Sequence[Bounds]) -> list[Bounds]:
    """The bounds beyond which no record lies: all that Kafka shows counts."""
    return [replace(part, end=2**63 - 1) for part in cut]


def lacked(records: Records) -> Column:
    """The column ``LACKS``; null where nothing of it matters."""
    from pyspark.sql import functions as F

    return F.col(LACKS) if records.defaults else F.lit(None).cast("array<string>")


def truncates(sink: KeyedSink) -> str:
    """SQL: whether a row empties the table."""
    if sink.apply_as_truncates:
        return f"(NOT {TOMBSTONE} AND coalesce({sink.apply_as_truncates}, false))"
    return "false"


def changes(records: Records, sink: KeyedSink, cut: Sequence[Bounds]) -> DataFrame:
    """The changes of each key, in these columns: e_k*, the key; the coordinates; e_sequence, e_order; e_change (update,
    delete, truncate); e_values (comparable), e_json; e_absent: the columns that the record leaves as they are; e_later:
    whether it comes after the claim. Those of a bitemporal history also have e_system: when they were recorded.

    They are ordered by ``sequence_by`` and then by the coordinates; without ``sequence_by`` by the offsets.
    """
    from pyspark.sql import functions as F

    deletes = f"coalesce({sink.apply_as_deletes}, false)" if sink.apply_as_deletes else "false"
    sequence = F.expr(sink.sequence_by) if sink.sequence_by else F.col("_offset")
    recorded = sink.recorded_by if isinstance(sink, DeltaHistorySink) else None
    columns = table_columns(records.columns, sink)
    tied = records.tied if records.tied is not None else columns.names
    column = as_in(columns, records.frame)
    marked = records.frame.select(
        *(column(name).alias(f"e_k{index}") for index, name in enumerate(sink.key)),
        *(F.col(name).alias(f"e{name}") for name in COORDINATES),
        sequence.alias("e_sequence"),
        *([F.expr(recorded).alias("e_system")] if recorded is not None else []),
        F.expr(
            f"CASE WHEN {truncates(sink)} THEN 'truncate' WHEN {TOMBSTONE} OR {deletes} THEN 'delete' ELSE 'update' END"
        ).alias("e_change"),
        comparable_values(columns, records.frame).alias("e_values"),
        F.to_json(F.struct(*(F.col(identifier(name)) for name in tied)), _WITH_MICROSECONDS).alias("e_json"),
        F.expr(
            f"coalesce(transform({UNAVAILABLE}, n -> lower(n)), array())"
            if records.partial
            else "CAST(array() AS ARRAY<STRING>)"
        ).alias("e_absent"),
        lacked(records).alias("e_lacks"),
    )
    return marked.withColumns(
        {
            "e_order": F.struct("e_sequence", "e_topic", "e_partition", "e_offset"),
            "e_later": F.expr(beyond(cut, "e_topic", "e_partition", "e_offset")),
        }
    )
