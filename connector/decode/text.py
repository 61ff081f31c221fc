"""Bytes without change, and text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.decode.format import SchemaFixed, problem_of
from sinks.spark.sql import literal
from sinks.spark.types import is_utf8

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

NOT_UTF8 = "not UTF-8 text"


@dataclass(frozen=True)
class Bytes(SchemaFixed):
    """The unchanged bytes, in a column ``value``."""

    @property
    def type(self) -> DataType:
        """BINARY."""
        from pyspark.sql.types import BinaryType

        return BinaryType()

    def decoded(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """See ``Format.decoded``. There is never a problem."""
        return records.selectExpr("*", f"{column} AS {into}", f"CAST(NULL AS STRING) AS {problem_of(into)}")


@dataclass(frozen=True)
class Text(SchemaFixed):
    """UTF-8."""

    @property
    def type(self) -> DataType:
        """STRING."""
        from pyspark.sql.types import StringType

        return StringType()

    def decoded(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """See ``Format.decoded``. The problem is that the bytes aren't UTF-8."""
        wrong = f"CASE WHEN NOT {is_utf8(column)} THEN {literal(NOT_UTF8)} END"
        return records.selectExpr("*", f"CAST({column} AS STRING) AS {into}", f"{wrong} AS {problem_of(into)}")
