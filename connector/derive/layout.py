"""The layout of a pipeline's table, compared with the columns that the table will have."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from connector.config import DeltaSink
from connector.spark.compat import is_connect
from sinks.delta.detail import name_parts
from sinks.delta.layout import COLUMN_MAPPING, Layout
from sinks.errors import ConfigurationError
from sinks.spark.limits import shows_an_hour_twice, told_of_hours
from sinks.spark.types import names, needs_column_mapping, sql_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

_INTERNAL = ("_sequence", "_deleted_by", "_columns", "_state", "_applied")
"""Columns that Lakelock keeps for itself."""
_OF_CHANGES = ("_change_type", "_commit_version", "_commit_timestamp")
"""Columns of Delta's change data feed."""
_CHANGES, _STATS_OF, _STATS = (
    "delta.enableChangeDataFeed", "delta.dataSkippingStatsColumns", "delta.dataSkippingNumIndexedCols",
)  # fmt: skip
_OF_DATABRICKS = (
    "delta.parquet.compression.codec", "delta.targetFileSize", "delta.tuneFileSizesForRewrites",
    ("delta.isolationLevel", "WriteSerializable"),
)  # fmt: skip
_COUNTED = 32
"""The number of columns of which Delta keeps statistics, if no property says another."""


def laid_out(
    sink: DeltaSink,
    schema: StructType,
    carried: Sequence[str],
    declared: Mapping[str, str] = MappingProxyType({}),
    *,
    zone: str = "UTC",
) -> Layout:
    """The layout that the sink's options say.

    ``schema``: the table's; ``carried``: the columns that hold values of records as they are; ``declared``: column of
    the records -> its comment in their schema; ``zone``: the session's time zone. Raises ConfigurationError if the
    columns don't fit the options.
    """
    for option in ("partition_by", "cluster_by", "comments"):
        for column in getattr(sink, option):
            _check_column(sink.option(option), column, schema, may_be_internal=option == "comments")
    for column in sink.partition_by:
        _check_partition(sink.option("partition_by"), schema[column], carried=column in carried, zone=zone)
    with_statistics = _with_statistics(schema, sink.properties)
    for column in sink.cluster_by:
        _check_cluster(sink.option("cluster_by"), schema[column], with_statistics)
    _check_properties(sink.option("properties"), sink.properties, schema)
    return Layout(
        sink.partition_by,
        sink.cluster_by,
        sink.properties,
        sink.comment or "",
        sink.comments,
        {name: comment for name, comment in declared.items() if name in carried},
    )


def refuse_of_databricks(sink: DeltaSink, spark: SparkSession) -> None:
    """Raises ConfigurationError for properties that only Databricks has, where Spark isn't that of Databricks."""
    if is_connect(spark) or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return
    for name, value in sink.properties.items():
        if name in _OF_DATABRICKS or (name, value) in _OF_DATABRICKS:
            raise ConfigurationError(
                f"{sink.option('properties')}: {name} = {value} is for Databricks only: Delta makes no such table.",
                hint="Remove it, or run the pipeline on Databricks.",
            )


def _check_column(option: str, column: str, schema: StructType, *, may_be_internal: bool) -> None:
    if column not in schema.names:
        raise ConfigurationError(
            f"{option}: {column!r} isn't a column of the table.",
            hint=f"Its columns are {', '.join(name for name in schema.names if name not in _INTERNAL)}.",
        )
    if column in _INTERNAL and not may_be_internal:
        raise ConfigurationError(
            f"{option}: {column!r} is a column that Lakelock keeps for itself.", hint="Name another column."
        )


def _check_partition(option: str, field: StructField, *, carried: bool, zone: str) -> None:
    """``carried``: whether the column holds values of records as they are."""
    from pyspark.sql.types import BinaryType, StringType, TimestampType

    kind = sql_type(field.dataType).upper()
    if not _is_atomic(field.dataType) or isinstance(field.dataType, BinaryType):
        raise ConfigurationError(
            f"{option}: {field.name!r} is of type {kind}, and a partition's value has to be the name of a folder.",
            hint="Name a column with a number, a date, a time, a boolean or a text.",
        )
    if field.name == "_offset":
        raise ConfigurationError(
            f"{option}: {field.name!r} has another value in each record: each would get a folder of its own.",
            hint="Write cluster_by, or partition by a column with few values.",
        )
    if isinstance(field.dataType, StringType) and not carried:
        raise ConfigurationError(
            f"{option}: {field.name!r} is a text that the pipeline works out. It may be the empty text, which Delta "
            "reads back as NULL from a partition column.",
            hint="Partition by a column of the records, or write cluster_by.",
        )
    if isinstance(field.dataType, TimestampType) and not carried and shows_an_hour_twice(zone):
        raise ConfigurationError(
            f"{option}: {field.name!r} is {told_of_hours(zone)}: Delta reads it back from the folder's name.",
            hint="Write spark: {spark.sql.session.timeZone: UTC}, or cluster_by.",
        )


def _check_cluster(option: str, field: StructField, with_statistics: Sequence[str]) -> None:
    from pyspark.sql import types as T

    clustered = (T.NumericType, T.DateType, T.TimestampType, T.TimestampNTZType)
    if not isinstance(field.dataType, clustered) and field.dataType != T.StringType():
        raise ConfigurationError(
            f"{option}: {field.name!r} is of type {sql_type(field.dataType).upper()}, of which Delta keeps no "
            "statistics to cluster by.",
            hint="Name a column with a number, a date, a time or a text.",
        )
    if field.name.lower() not in with_statistics:
        raise ConfigurationError(
            f"{option}: Delta keeps no statistics of {field.name!r}, and can't cluster by it.",
            hint=f"By default it keeps those of the first {_COUNTED} columns, fields of a STRUCT counted one by one. "
            f"Write properties: {{{_STATS_OF}: ...}} with this column in the list.",
        )


def _with_statistics(schema: StructType, properties: Mapping[str, str]) -> list[str]:
    """The columns, in lower case, of which Delta keeps statistics."""
    if _STATS_OF in properties:
        return [".".join(name_parts(each)).lower() for each in _stats_of(properties)]
    room = int(properties.get(_STATS, _COUNTED))
    found = []
    for field in schema:
        if room == 0:
            break
        found.append(field.name.lower())
        room = -1 if room < 0 else max(0, room - _leaves(field.dataType))
    return found


def _stats_of(properties: Mapping[str, str]) -> list[str]:
    return [each.strip() for each in properties.get(_STATS_OF, "").split(",") if each.strip()]


def _leaves(kind: DataType) -> int:
    """How many columns Delta counts a column as."""
    from pyspark.sql.types import StructType

    return sum(_leaves(field.dataType) for field in kind) if isinstance(kind, StructType) else 1


def _check_properties(option: str, properties: Mapping[str, str], schema: StructType) -> None:
    reserved = [name for name in schema.names if name.lower() in _OF_CHANGES]
    if reserved and properties.get(_CHANGES, "").lower() == "true":
        raise ConfigurationError(
            f"{option}: {_CHANGES} doesn't work with a column {reserved[0]!r}: Delta's change data feed has a column "
            "of this name.",
            hint="Give the column another name in `transform:`, or remove the property.",
        )
    there = {name.lower() for name in schema.names}
    for name in _stats_of(properties):
        if name_parts(name)[0].lower() not in there:
            raise ConfigurationError(
                f"{option}: {_STATS_OF}: {name} isn't a column of the table.",
                hint=f"Its columns are {', '.join(schema.names)}.",
            )
    special = [name for name in names(schema) if needs_column_mapping(name)]
    if special and properties.get(COLUMN_MAPPING) == "none":
        raise ConfigurationError(
            f"{option}: {COLUMN_MAPPING} is none, and the name {special[0]!r} needs column mapping.",
            hint="Write name, or remove the property: Lakelock then sets it itself.",
        )


def _is_atomic(kind: DataType) -> bool:
    from pyspark.sql import types as T

    number_or_time = (T.NumericType, T.DateType, T.TimestampType, T.TimestampNTZType)
    return isinstance(kind, (*number_or_time, T.BooleanType, T.StringType, T.BinaryType))
