"""Uploads a DataFrame as objects that only need to be completed: one Spark job, and no rows pass the driver.

* **Parquet**: Arrow's types for Spark's. Timestamps are microseconds in UTC. Types that Parquet can't store faithfully
  (intervals, variants, void) are refused.
* **JSON lines**: Spark's ``to_json``, in UTC with microseconds, binary as Base64. A null is written as ``null``, so
  that every line has every column.
* **partitions**: the key contains the partition columns as text, and the object doesn't. A timestamp's text is in UTC
  whatever the session's time zone is: the text names no zone, and sessions of other zones read it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sinks.errors import ConfigurationError, SchemaMismatch, SinkError
from sinks.objects.refusals import explained
from sinks.objects.upload import RECEIPTS, Format, Receipt, Target, on_executor
from sinks.plurals import plural
from sinks.spark.checksum import Fingerprint, fingerprinted
from sinks.spark.row_errors import raised
from sinks.spark.sql import AS_JSON, identifier, in_utc
from sinks.spark.worker_code import ship

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

ZONE = "UTC"
"""The time zone of the timestamps in folders' names. Receipts and manifests note it: earlier versions took that of the
session."""
_ODD = ("DayTimeIntervalType", "YearMonthIntervalType", "CalendarIntervalType", "VariantType", "NullType")
"""Types by name, because not every Spark version has all of them."""


def upload(rows: DataFrame, target: Target, *, url: str) -> tuple[list[Receipt], Fingerprint]:
    """Upload the rows. Returns the receipts of all objects, in the order of their keys, and the rows' fingerprint.

    Raises SchemaMismatch, ConfigurationError or StoreUnreachable.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    parts = partition_columns(rows.schema, target.partition_by, target.format)
    if parts:
        # Puts a partition into few objects. A large partition is still split among tasks.
        by = [identifier(name) for name in parts]
        # In SQL, because DataFrame.hint takes no columns in Spark 3.5. Braces in a name would stand for a DataFrame.
        hint = ", ".join(by).replace("{", "{{").replace("}", "}}")
        rows = rows.sparkSession.sql(f"SELECT /*+ REBALANCE({hint}) */ * FROM {{rows}}", rows=rows)
        rows = rows.sortWithinPartitions(*by)
        target = replace(target, partition_by=tuple(parts))
    observed, fingerprint = fingerprinted(rows)
    row = F.struct(*[F.col(identifier(name)) for name in rows.columns if name not in parts])
    values = F.array(*[F.expr(_in_folder(rows.schema[name])) for name in parts]).cast("array<string>")
    shaped = observed.select(
        (F.to_json(row, AS_JSON) if target.format == "json_lines" else row).alias("row"),
        *([F.to_json(values).alias("at")] if parts else []),
    )
    ship(rows.sparkSession)
    try:
        found = shaped.mapInArrow(on_executor(target), RECEIPTS).collect()
    except PySparkException as error:
        said = raised(error)
        if said is not None and said.get("kind") == "s3":
            raise explained(said, url) from None
        lacking = re.search(r"ModuleNotFoundError: No module named '(.+?)'", str(error))
        if lacking is not None:
            raise ConfigurationError(
                f"Spark's Python workers upload the rows for {url}, and their Python lacks {lacking[1]}.",
                hint="Install it on every executor, set PYSPARK_PYTHON to a Python there that has it, or give Spark an "
                "environment that has it (spark.archives, see docs/spark.md).",
            ) from error
        raise
    receipts = sorted(Receipt(**each.asDict()) for each in found)
    counted = fingerprint()
    uploaded = sum(each.rows for each in receipts)
    if uploaded != counted.rows:
        raise SinkError(
            f"{plural(counted.rows, 'row was', 'rows were')} to be uploaded to {url}, but {uploaded:,} arrived. "
            "The epoch isn't committed."
        )
    return receipts, counted


def partition_columns(schema: StructType, partition_by: Sequence[str], kind: Format) -> list[str]:
    """The partition columns' names as the rows have them. Raises SchemaMismatch if the rows can't be written so."""
    from pyspark.sql import types as T

    by_name = {field.name.lower(): field for field in schema}
    faults = [f"there is no column {name} to partition by" for name in partition_by if name.lower() not in by_name]
    parts = [by_name[name.lower()] for name in partition_by if name.lower() in by_name]
    rest = [field for field in schema if field not in parts]
    nested = (T.ArrayType, T.MapType, T.StructType, T.BinaryType, T.NullType)
    faults += [
        f"column {field.name} is {field.dataType.simpleString()}, which can't name a partition"
        for field in parts
        if isinstance(field.dataType, nested) or type(field.dataType).__name__ == "VariantType"
    ]
    if not rest:
        faults.append("all columns are in partition_by, so none is left for the objects")
    if kind == "parquet":
        faults += [
            f"column {field.name} is {field.dataType.simpleString()}, which Parquet can't store faithfully"
            for field in rest
            if _without_parquet(field.dataType)
        ]
    if faults:
        raise SchemaMismatch(
            "The rows can't be written as objects: " + "; ".join(faults) + ".",
            hint="Change partition_by, or cast the column (for example to STRING) in the pipeline's transform.",
        )
    return [field.name for field in parts]


def _in_folder(column: StructField) -> str:
    """SQL of a partition column's text."""
    from pyspark.sql.types import TimestampType

    value = identifier(column.name)
    if isinstance(column.dataType, TimestampType):
        value = in_utc(value)
    return f"CAST({value} AS STRING)"


def _without_parquet(kind: DataType) -> bool:
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return not kind.fields or any(_without_parquet(field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return _without_parquet(kind.elementType)
    if isinstance(kind, T.MapType):
        return _without_parquet(kind.keyType) or _without_parquet(kind.valueType)
    return type(kind).__name__ in _ODD
