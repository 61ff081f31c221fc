"""Rows of the user's own streaming query, treated as if they had been decoded from Kafka records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.decode.format import SchemaFixed, comments_in, problem_of
from connector.spark.compat import from_ddl
from sinks.delta.table import COORDINATES
from sinks.errors import ConfigurationError
from sinks.spark.sql import identifier, literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_ROW = "row"
"""A column beside Kafka's: the row that was made from the record."""
_TYPES = dict(zip(COORDINATES, ("STRING", "INT", "BIGINT", "TIMESTAMP"), strict=True))


@dataclass(frozen=True)
class Rows(SchemaFixed):
    """A format for rows that are decoded already."""

    type: StructType

    @property
    def comments(self) -> Mapping[str, str]:
        """See ``Format.comments``."""
        return comments_in(self.type)

    def decoded(self, records: DataFrame, _: str, into: str) -> DataFrame:
        """See ``Format.decoded``. There is never a problem."""
        row = _ROW if _ROW in records.columns else f"CAST(NULL AS {sql_type(self.type)})"
        return records.selectExpr("*", f"{row} AS {into}", f"CAST(NULL AS STRING) AS {problem_of(into)}")


def as_records(rows: DataFrame, columns: str) -> DataFrame:
    """Each row as the Kafka record that it was decoded from. ``columns`` are in DDL. Raises ConfigurationError.

    The value's bytes are the row as JSON, which is computed only if an error shows it.
    """
    from pyspark.sql.types import StructType

    schema = from_ddl(columns)
    assert isinstance(schema, StructType)
    wanted = {field.name: sql_type(field.dataType).upper() for field in schema} | _TYPES
    found = {field.name: sql_type(field.dataType).upper() for field in rows.schema}
    faults = [f"{name} {kind} is missing" for name, kind in wanted.items() if name not in found]
    faults += [f"{name} is {found[name]}, not {kind}" for name, kind in wanted.items() if found.get(name, kind) != kind]
    faults += [f"{name} {kind} isn't in value.schema" for name, kind in found.items() if name not in wanted]
    if faults:
        raise ConfigurationError(
            f"The batch doesn't have the columns of value.schema and Kafka's coordinates: {'; '.join(faults)}.",
            hint="Select the columns of value.schema, and topic AS _topic, partition AS _partition, offset AS _offset, "
            "timestamp AS _timestamp.",
        )
    pairs = ", ".join(f"{literal(name)}, {identifier(name)}" for name in schema.names)
    return rows.selectExpr(
        "CAST(NULL AS BINARY) AS key",
        f"coalesce(CAST(to_json(named_struct({pairs})) AS BINARY), X'') AS value",
        *(f"{name} AS {name.removeprefix('_')}" for name in COORDINATES),
        f"named_struct({pairs}) AS {_ROW}",
    )
