"""Validates JSON by a JSON Schema: what the schema doesn't allow is a problem of the record.

A Java class of ours does it, by a plan that the driver makes of the schemas: see `json_plan`. It is registered as a
function of SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from connector.decode.format import Format, problem_of
from connector.decode.json_plan import Plan, of_one
from connector.decode.json_schema import JsonSchema
from connector.decode.registry.wire_format import ConfluentWire
from connector.source.columnar import PlainValues
from connector.spark.jars import JSON_JAR
from sinks.errors import JarsMissing
from sinks.spark.row_errors import problem as first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

PACKAGE = "lakelock.json"
_FUNCTION = "lakelock_json_validate"


def validated(decoded: DataFrame, column: str, into: str, plan: bytes) -> DataFrame:
    """Records that a format has decoded, with its columns, and a problem where the plan has one and they have none.

    Raises JarsMissing.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType

    try:
        decoded.sparkSession.udf.registerJavaFunction(_FUNCTION, f"{PACKAGE}.Validate", StringType())
    except PySparkException as error:
        raise JarsMissing(
            f"Spark has no {JSON_JAR.name}, which validates by JSON Schemas: {first_line(error)}.",
            hint="A session that Lakelock starts has it. Add it to the jars of your own (spark.jars): `python -c "
            '"from connector.spark import jars; print(jars.JSON_JAR)"` says where it is.',
        ) from None
    problem = problem_of(into)
    broken = F.call_udf(_FUNCTION, F.col(column), F.lit(plan))
    return decoded.withColumn(problem, F.coalesce(F.col(problem), broken))


class Validated:
    """A format of JSON values, with or without a header, which all have to be what one schema allows."""

    def __init__(self, format: Format, schema: JsonSchema) -> None:
        """Raises UnusableSchema."""
        self._format = format
        self._plan = of_one(Plan(schema))

    @property
    def plain(self) -> PlainValues | None:
        """None: the columnar reader doesn't validate."""
        return None

    @property
    def type(self) -> DataType:
        """See ``Format.type``."""
        return self._format.type

    @property
    def header(self) -> int:
        """See ``Format.header``."""
        return self._format.header

    @property
    def comments(self) -> Mapping[str, str]:
        """See ``Format.comments``."""
        return self._format.comments

    def decoded(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """See ``Format.decoded``."""
        found = self._format.decoded(records, column, into)
        if not self.header:
            return validated(found, column, into, self._plan)
        body = f"_text{into}"
        found = found.selectExpr("*", f"{ConfluentWire.body(column)} AS {body}")
        return validated(found, body, into, self._plan).drop(body)

    def of_plain(self, _: DataFrame, column: str, __: str) -> DataFrame:
        """Never called."""
        raise AssertionError(f"the columnar reader can't have decoded {column}")

    def with_faults(self, bad: DataFrame, value: str, column: str, into: str) -> DataFrame | None:
        """See ``Format.with_faults``."""
        return self._format.with_faults(bad, value, column, into)

    def begin_epoch(self) -> None:
        """See ``Format.begin_epoch``."""
        self._format.begin_epoch()

    def resolve(self, ids: Iterable[str], records: DataFrame) -> None:
        """See ``Format.resolve``."""
        self._format.resolve(ids, records)
