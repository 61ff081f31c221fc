"""What Kafka holds: its records, decoded, through the user's transform, and as changes to the rows of a key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from connector.audit.claim import At, Bounds, nested
from connector.audit.values import comparable_values
from connector.config import COORDINATES, DeltaUpsertSink, KeyedSink
from sinks.errors import ConfigurationError
from sinks.raised import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

_NO_RECORDS = {
    "key": "binary", "value": "binary", "topic": "string", "partition": "int", "offset": "bigint",
    "timestamp": "timestamp",
}  # fmt: skip
_AT = "lakelock at"
_TOMBSTONE = "_tombstone"


@dataclass(frozen=True)
class Records:
    """``frame``: the user's ``columns``, the coordinates ``_topic`` ... ``_timestamp``, ``_tombstone`` (Kafka's value
    was null), and ``_unreadable``: such a record has nulls for the user's columns."""

    frame: DataFrame
    columns: StructType
    several: bool = False
    """A record may make no row, or several."""


def kafka_records(
    spark: SparkSession, kafka: Mapping[str, str], cut: Sequence[Bounds], upto: Mapping[At, int] | None = None
) -> DataFrame:
    """The records of these bounds, and those that follow them up to ``upto``. Fails where any of them is gone.

    ``kafka``: options by Kafka's names, secrets in clear.
    """
    from pyspark.sql import functions as F

    starts: dict[At, int] = {}
    ends: dict[At, int] = {}
    for part in cut:
        stop = max(part.stop, (upto or {}).get(part.at, 0))
        if part.begin < stop:
            starts[part.at], ends[part.at] = part.begin, stop
    if not starts:
        empty = (F.lit(None).cast(kind).alias(name) for name, kind in _NO_RECORDS.items())
        return spark.range(0).select(*empty)
    reader = spark.read.format("kafka")
    for name, value in kafka.items():
        # Spark would join the group; it reads by offsets.
        if name != "group.id":
            reader = reader.option(f"kafka.{name}", value)
    read = nested(starts)
    records = (
        reader.option("kafka.isolation.level", "read_committed")
        .option("assign", json.dumps({topic: [int(part) for part in parts] for topic, parts in read.items()}))
        .option("startingOffsets", json.dumps(read))
        .option("endingOffsets", json.dumps(nested(ends)))
        .option("failOnDataLoss", "true")
        .load()
    )
    for gap in (gap for part in cut for gap in part.lost if gap.end > part.begin):
        records = records.where(
            (F.col("topic") != gap.topic)
            | (F.col("partition") != gap.partition)
            | ~F.col("offset").between(gap.start, gap.end - 1)
        )
    return records


def decoded(records: DataFrame, schema: StructType, key: Sequence[str], sql: str | None, *, strict: bool) -> Records:
    """From Kafka's records to the user's columns.

    With ``key`` a tombstone is a record too: it says its key in Kafka's key. ``strict``: records that can't be decoded
    are kept beside the rows that a transform makes of the others.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    taken, bad = {name.lower() for name in schema.names}, "malformed"
    while bad in taken:
        bad += "_"
    parsed = records.withColumn(
        "parsed",
        F.from_json(
            F.col("value").cast("string"),
            StructType([*schema.fields, StructField(bad, StringType())]),
            {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": bad},
        ),
    )
    tombstone = F.col("value").isNull()
    readable = ~tombstone & F.col("parsed").isNotNull() & F.col(f"parsed.{identifier(bad)}").isNull()
    usable = tombstone | readable if key else readable

    def field(part: StructField) -> Column:
        value = F.col(f"parsed.{identifier(part.name)}")
        if part.name in key:
            value = F.when(tombstone, _of_kafkas_key(part, alone=len(key) == 1)).otherwise(value)
        # Spark keeps what it could read of a record that is no JSON. No filter: it would parse everything twice.
        return F.when(usable, value).alias(part.name)

    frame = parsed.select(
        *(field(part) for part in schema),
        *(F.col(name.removeprefix("_")).alias(name) for name in COORDINATES),
        tombstone.alias(_TOMBSTONE),
        (~usable).alias("_unreadable"),
    )
    if sql is None:
        return Records(frame, schema)
    transformed = _transformed(frame.where("NOT _unreadable"), sql)
    if strict:
        unreadable = frame.where("_unreadable").select(*COORDINATES, _TOMBSTONE, "_unreadable")
        return replace(transformed, frame=transformed.frame.unionByName(unreadable, allowMissingColumns=True))
    return transformed


def _transformed(records: DataFrame, sql: str) -> Records:
    """The user's SELECT, with the coordinates put into its list."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    kept = (*COORDINATES, _TOMBSTONE)
    records.drop("_unreadable").createOrReplaceTempView("records")
    head = _select_list(sql)
    try:
        result = records.sparkSession.sql(f"{sql[:head]} struct({', '.join(kept)}) AS `{_AT}`, {sql[head:]}")
        own = StructType([part for part in result.schema if part.name not in (_AT, *kept)])
    except PySparkException as error:
        problem = next(line for line in str(error).splitlines() if line.strip())
        raise ConfigurationError(f"transform: Spark doesn't take it: {problem.strip()}") from None
    frame = result.select(
        *(F.col(identifier(name)) for name in own.names),
        *(F.col(f"`{_AT}`.{name}").alias(name) for name in kept),
        F.lit(False).alias("_unreadable"),
    )
    return Records(frame, own, several=True)


def _select_list(sql: str) -> int:
    """Where the list of a SELECT begins: after the word, and after a hint if there is one."""
    end = 0
    for token in re.finditer(r"--[^\n]*|/\*.*?\*/|\S+?\b", sql, re.DOTALL):
        if end and not token[0].startswith("/*+"):
            break
        if end or token[0].upper() == "SELECT":
            end = token.end()
    return end


def _of_kafkas_key(column: StructField, *, alone: bool) -> Column:
    """A column of the key in a tombstone: a field of the JSON object in Kafka's key, or, ``alone``, a JSON string or
    the text itself."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, AtomicType, StructType

    text = F.col("key").cast("string")
    of_object = F.from_json(text, StructType([column]))[column.name]
    value = F.when(text.startswith("{") & text.endswith("}"), of_object)
    if alone and isinstance(column.dataType, AtomicType):
        quoted = F.from_json(F.concat(F.lit("["), text, F.lit("]")), ArrayType(column.dataType))[0]
        value = value.when((F.length(text) > 1) & text.startswith('"') & text.endswith('"'), quoted)
        value = value.otherwise(text.try_cast(column.dataType))
    return value


def table_columns(columns: StructType, sink: KeyedSink) -> StructType:
    """Those that the table has."""
    from pyspark.sql.types import StructType

    left_out = set(sink.except_column_list or ())
    kept = set(columns.names if sink.column_list is None else sink.column_list) - left_out
    return StructType([part for part in columns if part.name in kept])


def sequence_type(records: Records, sink: KeyedSink) -> str:
    """Of what orders the changes of a key, as Spark names it. Raises ConfigurationError."""
    from pyspark.errors import PySparkException

    if sink.sequence_by is None:
        return "bigint"
    try:
        return records.frame.selectExpr(f"({sink.sequence_by}) AS found").schema[0].dataType.simpleString()
    except PySparkException as error:
        problem = next(line for line in str(error).splitlines() if line.strip())
        raise ConfigurationError(f"sinks[0].sequence_by: Spark doesn't take it: {problem.strip()}") from None


def beyond(cut: Sequence[Bounds], topic: str, partition: str, offset: str) -> str:
    """SQL: whether these coordinates lie after the claim."""
    ends = literal(json.dumps({f"{part.at.topic} {part.at.partition}": part.end for part in cut}))
    return f"coalesce({offset} >= from_json({ends}, 'map<string, bigint>')[concat({topic}, ' ', {partition})], false)"


def changes(records: Records, sink: KeyedSink, cut: Sequence[Bounds]) -> DataFrame:
    """e_k*: the key; the coordinates; e_sequence, e_order; e_change (update, delete, truncate); e_values (comparable),
    e_json; e_later: after the claim.

    The order is that of ``sequence_by``, then of the coordinates; without it that of the offsets.
    """
    from pyspark.sql import functions as F

    deletes = f"coalesce({sink.apply_as_deletes}, false)" if sink.apply_as_deletes else "false"
    truncates = "false"
    if isinstance(sink, DeltaUpsertSink) and sink.apply_as_truncates:
        truncates = f"NOT {_TOMBSTONE} AND coalesce({sink.apply_as_truncates}, false)"
    sequence = F.expr(sink.sequence_by) if sink.sequence_by else F.col("_offset")
    columns = table_columns(records.columns, sink)
    marked = records.frame.select(
        *(F.col(identifier(name)).alias(f"e_k{index}") for index, name in enumerate(sink.key)),
        *(F.col(name).alias(f"e{name}") for name in COORDINATES),
        sequence.alias("e_sequence"),
        F.expr(
            f"CASE WHEN {truncates} THEN 'truncate' WHEN {_TOMBSTONE} OR {deletes} THEN 'delete' ELSE 'update' END"
        ).alias("e_change"),
        comparable_values(columns, lambda name: F.col(identifier(name)), F.col("_timestamp")).alias("e_values"),
        F.to_json(F.struct(*(F.col(identifier(name)) for name in columns.names))).alias("e_json"),
    )
    return marked.withColumns(
        {
            "e_order": F.struct("e_sequence", "e_topic", "e_partition", "e_offset"),
            "e_later": F.expr(beyond(cut, "e_topic", "e_partition", "e_offset")),
        }
    )
