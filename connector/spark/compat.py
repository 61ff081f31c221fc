"""Differences between Spark's versions, and between a classic session and Spark Connect."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_creating = threading.Lock()


def is_connect(spark: SparkSession) -> bool:
    """Whether ``spark`` is a Spark Connect client, where one session can't read another session's rows."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def needed_by_connect(spark: SparkSession) -> None:
    """Raises ConfigurationError if the client can't clone a session. Platforms number their servers differently."""
    if not hasattr(spark, "cloneSession"):
        raise ConfigurationError(
            "Spark Connect needs PySpark 4.1 or later, whose sessions can be cloned, but this client is older.",
            hint="Run it where Spark's driver is, or use a newer client (Databricks Connect 18).",
        )


def needs(spark: SparkSession, release: str, option: str, hint: str) -> None:
    """Raises ConfigurationError, with the option's path, if this Spark is older than ``release``, such as "4.0"."""
    if _numbers(spark.version) < _numbers(release):
        raise ConfigurationError(f"{option} needs Spark {release}, and this is {spark.version}.", hint=hint)


def _numbers(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def from_ddl(text: str) -> DataType:
    """Parse columns in Spark's DDL. Raises PySparkException if ``text`` isn't DDL."""
    from pyspark.sql.types import StructType

    if "${" not in text:
        return _parsed(text)
    # Spark Connect parses it in the user's session, which would expand ``${env:NAME}`` in a name.
    aside = next(char for char in map(chr, range(0xE000, 0xF900)) if char not in text)
    parsed = _parsed(text.replace("${", f"{aside}{{"))
    if not isinstance(parsed, StructType):
        return parsed
    named = json.dumps(parsed.jsonValue(), ensure_ascii=False).replace(aside, "$")
    return StructType.fromJson(json.loads(named))


def type_from_ddl(text: str) -> DataType:
    """Parse a type in Spark's DDL, as in ``DECIMAL(10, 2)``. Raises PySparkException if ``text`` isn't one."""
    from pyspark.sql.types import StructType

    columns = from_ddl(f"x {text}")  # Spark 3.5 knows no other way than that of columns
    assert isinstance(columns, StructType)
    return columns["x"].dataType


def local_frame(
    spark: SparkSession, rows: Sequence[Any], schema: StructType | str, *, verify: bool = True
) -> DataFrame:
    """A DataFrame of rows from the driver. It leaves the active session unchanged.

    ``createDataFrame`` makes its session the active one. The user's next statement, or the next pipeline, would then
    run in Lakelock's session, which lacks the user's later settings.
    """
    return _created(spark, lambda: spark.createDataFrame(rows, schema, verifySchema=verify))


def local_table(spark: SparkSession, rows: Sequence[Any], schema: str, arrow: pa.Schema) -> DataFrame:
    """The same, without a Python process that Spark starts to convert the rows.

    A query that takes the first of many rows would leave such a process in mid-sentence, and its stack trace
    (BrokenPipeError) on the terminal. ``arrow``: the same schema in Arrow. Spark 3.5 can't take rows in Arrow.
    """
    if _numbers(spark.version) < (4, 0):
        return local_frame(spark, rows, schema, verify=False)
    import pyarrow as pa

    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), arrow, strict=True)]
    return _created(spark, lambda: spark.createDataFrame(pa.Table.from_arrays(columns, schema=arrow)))


def _created(spark: SparkSession, create: Callable[[], DataFrame]) -> DataFrame:
    from pyspark.sql import SparkSession

    if is_connect(spark):  # with Connect no session becomes active
        return create()
    with _creating:
        active = SparkSession.active()
        try:
            return create()
        finally:
            active.createDataFrame([], "nothing INT")


def _parsed(text: str) -> DataType:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    if hasattr(StructType, "fromDDL"):
        return StructType.fromDDL(text)
    nothing = SparkSession.active().range(0)  # before Spark 4
    return nothing.select(F.lit(None).cast(f"STRUCT<{text}>").alias("columns")).schema["columns"].dataType
