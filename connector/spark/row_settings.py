"""The settings of a Spark session that may change which rows are made of records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from sinks.errors import ConfigurationError
from sinks.spark.settings import AS_WRITTEN, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_ROWS = (
    "spark.sql.session.", "spark.sql.ansi.", "spark.sql.legacy.", "spark.sql.timestampType", "spark.sql.caseSensitive",
    "spark.sql.storeAssignmentPolicy", "spark.sql.mapKeyDedupPolicy", "spark.sql.json.", "spark.sql.jsonGenerator.",
    "spark.sql.avro.", "spark.sql.parquet.int96", "spark.sql.parquet.datetimeRebase", "spark.sql.defaultCollation",
    "spark.sql.decimalOperations.", "spark.sql.charAsVarchar", "spark.sql.preserveCharVarcharTypeInfo",
    "spark.sql.readSideCharPadding", "spark.sql.sources.partitionColumnTypeInference", "spark.sql.variable.",
    "spark.sql.escapedStringLiterals", "spark.sql.parser.", "spark.sql.datetime", "spark.sql.columnNameOfCorruptRecord",
    "spark.sql.function.", "spark.sql.icu.",
)  # fmt: skip
"""What the names of settings begin with that may change what is stored, and not only how fast, or where."""
_TIMESTAMPS = "spark.sql.timestampType"
ALWAYS = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")
"""Those that every session of a run sets."""


def refuse_without_zone(spark: SparkSession, begun: Callable[[], bool]) -> None:
    """Raises ConfigurationError if TIMESTAMP means another type in this session: the text of an instant would be no
    value of it, and each record a bad one. ``begun``: whether the pipeline has, which is asked only then."""
    if (told(spark, _TIMESTAMPS) or "").strip().upper() == "TIMESTAMP_NTZ" and not begun():
        raise ConfigurationError(
            f"The session has {_TIMESTAMPS} = TIMESTAMP_NTZ: in a new table each TIMESTAMP of the pipeline file, and "
            "_timestamp, would be without a time zone.",
            hint=f"Set {_TIMESTAMPS} to TIMESTAMP_LTZ, under `spark:` in the file or, in a session of yours, with "
            "spark.conf.set. Write TIMESTAMP_NTZ in the schema for columns that have no time zone.",
        )


def row_settings(spark: SparkSession) -> Mapping[str, str]:
    """The other ones that somebody has set, by name."""
    return {
        name: value
        for name, value in sorted(_all(spark).items())
        if name.startswith(OF_ROWS) and name not in ALWAYS and name not in AS_WRITTEN
    }


def _all(spark: SparkSession) -> Mapping[str, str]:
    from pyspark.errors import AnalysisException

    # A platform may hide its settings. Then nobody else has set them either.
    with suppress(AnalysisException):
        if hasattr(type(spark.conf), "getAll"):
            return dict(spark.conf.getAll)
        return {row["key"]: row["value"] for row in spark.sql("SET").collect()}  # before Spark 4
    return {}
