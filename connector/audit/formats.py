"""The formats of value and key, as the pipeline file gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.audit.debezium import Events, events
from connector.config import (
    OTHER,
    BytesFormat,
    DebeziumFormat,
    FormatOptions,
    JsonFormat,
    PipelineConfig,
    Route,
    StringFormat,
)
from connector.spark.compat import from_ddl
from sinks.errors import ConfigurationError
from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


@dataclass(frozen=True)
class Form:
    """The format of Kafka's value or key: JSON has the fields of a struct; text and bytes are one value."""

    type: DataType
    permissive: bool = False
    events: Events | None = None
    """How Debezium's events are read. None: the values aren't events."""

    @property
    def columns(self) -> StructType:
        """The columns of a value with this format. One without fields is a single column, ``value``."""
        from pyspark.sql.types import StructField, StructType

        if isinstance(self.type, StructType):
            return self.type
        return StructType([StructField("value", self.type)])


@dataclass(frozen=True)
class RouteForm:
    """Which table of a route a record is for."""

    sql: str
    """SQL over its columns: the name of the table, or null."""
    refused: bool
    """Whether a record that names none is a bad record."""
    keys: tuple[str, ...] = ()
    """The key columns of all its tables: a tombstone names its table by them. Empty: no table takes tombstones."""
    value: Form | None = None
    """The format by which a record names its table. None: that by which it is read."""

    def names(self, table: str) -> str:
        """SQL: whether a record is for the table of this name."""
        return f"({self.sql}) IS NULL" if table == OTHER else f"({self.sql}) <=> {literal(table)}"


@dataclass(frozen=True)
class Forms:
    """How the pipeline file says that a record is read: value, key, headers, the rule in ``require``, the route."""

    value: Form
    key: Form | None
    headers: bool
    require: str | None
    route: RouteForm | None = None


def forms(config: PipelineConfig) -> Forms:
    """The formats of a pipeline file. Raises ConfigurationError, also for a format that the auditor can't read."""
    return Forms(
        _form(config.schema_option.removesuffix(".schema"), config.value),
        _form("key", config.key) if config.key is not None else None,
        config.headers,
        config.require,
        _route(config.route) if config.route is not None else None,
    )


def _route(route: Route) -> RouteForm:
    text = f"CAST(({route.by}) AS STRING)"
    takes = f"{text} NOT IN ('', {literal(OTHER)})"
    if route.values is not None:
        takes += f" AND {text} IN ({', '.join(map(literal, route.values))})"
    by = _form("value", route.named_by) if route.named_by is not None else None
    return RouteForm(f"IF({takes}, {text}, NULL)", route.other in (None, "fail", "dead_letter"), route.key_columns, by)


def _form(option: str, format: FormatOptions) -> Form:
    from pyspark.sql.types import BinaryType, StringType

    if isinstance(format, JsonFormat):
        return Form(_columns(option, format.schema_), format.mode == "permissive")
    if isinstance(format, DebeziumFormat) and format.schema_ is not None:
        found = events(format, _columns(option, format.schema_))
        return Form(found.columns, found.permissive, found)
    if isinstance(format, StringFormat):
        return Form(StringType())
    if isinstance(format, BytesFormat):
        return Form(BinaryType())
    raise ConfigurationError(
        f"{option}: the auditor doesn't read Avro yet, only JSON (with Debezium's events), string and bytes. It can't "
        "say what this table should hold.",
        hint="You can verify a delta_append of the same topic with {format: bytes}, and join it with this table by "
        "_topic, _partition and _offset.",
    )


def _columns(option: str, text: str) -> StructType:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        schema = from_ddl(text)
    except PySparkException as error:
        problem = next(line for line in str(error).splitlines() if line.strip())
        raise ConfigurationError(f"{option}.schema: not a Spark schema: {problem.strip()}") from None
    if not isinstance(schema, StructType):
        raise ConfigurationError(f'{option}.schema: write columns, as in "carrier STRING, flight INT".')
    return schema
