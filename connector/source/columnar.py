"""Reads Kafka with Lakelock's own reader for Spark, which decodes plain JSON on the way, into columns.

The reader decodes a record itself if its value is plain JSON of the wanted types: if the decoder in Spark SQL
(`connector.decode.json`) gives the same row, without loss. All other records are odd, whether they are broken or merely
unusual. They are left to that decoder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.source.records import tasks_for
from sinks.kafka import spark_reader
from sinks.offsets import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

PACKAGE = "lakelock.reader"
"""Of the Java classes. Their source is in ``connector/spark/jars/java/reader``."""
_OF_SPARK = "4."
"""The versions of Spark that they were built for. They use classes of Spark that another version may lack."""
PLAIN = "plain"
"""The column with the decoded value: a STRUCT, null for a tombstone and for an odd record."""
ODD = "odd"
"""A column, with ``keep_odd`` only: whether the record is odd."""
FOUND_ODD = "IllegalStateException: LAKELOCK_ODD_RECORD"
"""What the error says if an odd record fails the query."""
_VERSION = 2
"""Of the options. A jar of another version refuses them."""


@dataclass(frozen=True)
class PlainValues:
    """What the reader decodes itself."""

    schema: StructType
    refuse_unknown: bool
    """A value with a field that the schema lacks is odd."""
    keep_odd: bool = False
    """An odd record is a row, and there is the column ``ODD``; else it fails the query, with ``FOUND_ODD``."""
    framed: bool = False
    """A zero byte and four bytes of a schema's ID come before the JSON. A value without them is odd."""
    schema_ids: tuple[int, ...] | None = None
    """With ``framed``: a value that names another schema is odd. None: it may name any."""
    latest_by: Sequence[str] = ()
    """Fields: of the plain records of a partition that share their values, the reader may leave out those that a later
    one replaces. It decodes and checks them all the same."""


def is_plain(kind: DataType) -> bool:
    """Whether the reader decodes values of this type."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return all(is_plain(field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return is_plain(kind.elementType)
    if isinstance(kind, T.MapType):
        return kind.keyType == T.StringType() and is_plain(kind.valueType)
    taken = (
        T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType,
        T.DateType, T.TimestampType, T.TimestampNTZType,
    )  # fmt: skip
    return type(kind) in taken or kind == T.StringType()


def is_here(spark: SparkSession) -> bool:
    """Whether this session's Spark has the reader's jar."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    if not spark.version.startswith(_OF_SPARK):
        return False
    nothing = PlainValues(StructType(), refuse_unknown=False)
    try:
        return PLAIN in read(spark, {"group.id": ""}, (), nothing).columns
    except PySparkException:
        return False


def read(
    spark: SparkSession, kafka: Mapping[str, str], ranges: Sequence[OffsetRange], values: PlainValues
) -> DataFrame:
    """The records of these ranges, with the columns of Spark's own source, and ``PLAIN``.

    ``kafka``: Kafka's options, with secrets in clear text. A query fails if any record is gone.
    """
    wanted = [[part.topic, part.partition, part.start, part.end] for part in ranges]
    return (
        spark_reader(spark, kafka, format=f"{PACKAGE}.KafkaRecords")
        .option("version", _VERSION)
        .option("kafka.group.id", kafka["group.id"])
        .option("ranges", json.dumps(wanted))
        .option("schema", values.schema.json())
        .option("zone", str(spark.conf.get("spark.sql.session.timeZone")))
        .option("refuse_unknown", values.refuse_unknown)
        .option("keep_odd", values.keep_odd)
        .option("framed", values.framed)
        .option("schema_ids", json.dumps(values.schema_ids))
        .option("latest_by", json.dumps(list(values.latest_by)))
        .option("tasks", tasks_for(ranges))
        .load()
    )
