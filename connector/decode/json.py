"""Kafka values as JSON, one object per record, by a Spark DDL schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sinks.delta.table import ddl, sql_type
from sinks.raised import identifier, literal, raise_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

SHOWN_OF_A_BAD_VALUE = 200
"""Characters."""


def decode_json(records: DataFrame, schema: StructType, key: Sequence[str] | None = None) -> DataFrame:
    """The value's columns, then the coordinates ``_topic``, ``_partition``, ``_offset``, ``_timestamp``.

    With ``key``, columns of the value, a tombstone (a null value) is a record too: ``_tombstone`` is true, its key's
    columns come from Kafka's key, see :func:`_tombstone_row`, and the others are null. Without, it is a bad record.

    A record that isn't exactly one JSON object of these types fails the query with its coordinates and the start of
    its value. Missing fields are null, fields that the schema lacks are left out.

    Spark's ``from_json`` stops reading at the end of the first object: of ``{"a":1}{"a":2}`` it would silently drop
    the second. So the value is read as the one element of an array with a field behind it, which is found only when
    the value was a single, complete element.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

    envelope = StructType(
        [
            StructField("value", ArrayType(schema)),
            StructField("end", BooleanType()),
            StructField("malformed", StringType()),
        ]
    )
    text = F.concat(F.lit('{"value":['), F.col("value").cast("string"), F.lit('],"end":true}'))
    parsed = F.from_json(text, envelope, {"columnNameOfCorruptRecord": "malformed", "allowSingleQuotes": "false"})
    whole = "parsed.malformed IS NULL AND parsed.`end` AND size(parsed.value) = 1 AND parsed.value[0] IS NOT NULL"
    bad = raise_sql(
        "bad_record",
        topic="topic",
        partition="partition",
        offset="offset",
        value=f"substring(CAST(value AS STRING), 1, {SHOWN_OF_A_BAD_VALUE})",
    )
    # One CASE in one projection: a filter would be pushed below it and parse every record twice.
    decoded = records.withColumn("parsed", parsed).withColumn(
        "row",
        F.expr(
            f"CASE {f'WHEN value IS NULL THEN {_tombstone_row(schema, key)} ' if key else ''}"
            f"WHEN coalesce({whole}, false) THEN parsed.value[0] ELSE {bad} END"
        ),
    )
    return decoded.select(
        *(F.col(f"row.{identifier(name)}").alias(name) for name in schema.names),
        *([F.expr("value IS NULL").alias("_tombstone")] if key else []),
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
    )


def refuse_tombstones(rows: DataFrame, tombstone: str) -> DataFrame:
    """Without the column ``tombstone``. A row in which it is true fails the query, with its coordinates."""
    bad = raise_sql("bad_record", topic="_topic", partition="_partition", offset="_offset")
    checked = f"CASE WHEN {tombstone} THEN {bad} ELSE _offset END AS _offset"
    names = (name for name in rows.columns if name != tombstone)
    return rows.selectExpr(*(checked if name == "_offset" else identifier(name) for name in names))


def _tombstone_row(schema: StructType, key: Sequence[str]) -> str:
    """SQL of the row that a tombstone stands for: Kafka's key is a JSON object with the key's columns, or, where the
    key is one column, that value as text or as a JSON string. What can't be read stays null, as do columns of the key
    that the transform makes."""
    from pyspark.sql.types import AtomicType, StructType

    text = "CAST(key AS STRING)"
    wanted = StructType([field for field in schema if field.name in key])
    parsed = f"from_json({text}, {literal(ddl(wanted))})"
    fields = []
    for field in schema:
        kind = sql_type(field.dataType)
        value = f"CAST(NULL AS {kind})"
        if field.name in key:
            value = f"CASE WHEN {text} LIKE '{{%}}' THEN {parsed}.{identifier(field.name)} "
            if len(key) == 1 and isinstance(field.dataType, AtomicType):
                as_json = f"from_json(concat('{{\"v\":', {text}, '}}'), {literal(f'v {kind}')}).v"
                value += f"WHEN {text} LIKE '\"%\"' THEN {as_json} ELSE try_cast({text} AS {kind}) "
            value += "END"
        fields.append(f"{literal(field.name)}, {value}")
    return f"named_struct({', '.join(fields)})"
