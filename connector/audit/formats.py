"""The formats of value and key, as the pipeline file gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.config import BytesFormat, FormatOptions, JsonFormat, PipelineConfig, StringFormat
from connector.spark.compat import from_ddl
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


@dataclass(frozen=True)
class Form:
    """The format of Kafka's value or key: JSON has the fields of a struct; text and bytes are one value."""

    type: DataType
    permissive: bool = False

    @property
    def columns(self) -> StructType:
        """The columns of a value with this format. One without fields is a single column, ``value``."""
        from pyspark.sql.types import StructField, StructType

        if isinstance(self.type, StructType):
            return self.type
        return StructType([StructField("value", self.type)])


@dataclass(frozen=True)
class Forms:
    """How the pipeline file says that a record is read: value, key, headers, and the rule in ``require``."""

    value: Form
    key: Form | None
    headers: bool
    require: str | None


def forms(config: PipelineConfig) -> Forms:
    """The formats of a pipeline file. Raises ConfigurationError, also for a format that the auditor can't read."""
    return Forms(
        _form("value", config.value),
        _form("key", config.key) if config.key is not None else None,
        config.headers,
        config.require,
    )


def _form(option: str, format: FormatOptions) -> Form:
    from pyspark.sql.types import BinaryType, StringType

    if isinstance(format, JsonFormat):
        return Form(_columns(option, format.schema_), format.mode == "permissive")
    if isinstance(format, StringFormat):
        return Form(StringType())
    if isinstance(format, BytesFormat):
        return Form(BinaryType())
    raise ConfigurationError(
        f"{option}: the auditor doesn't read {format.format} yet, only json, string and bytes. It can't say what this "
        "table should hold.",
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


def as_written(kind: DataType) -> DataType:
    """The type as which permissive JSON is read before it is cast. Numbers, booleans and times may stand in quotes.

    A number without quotes would keep only 17 digits as text. A decimal keeps them all, and also reads numbers in
    quotes.
    """
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(part.name, as_written(part.dataType)) for part in kind])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(as_written(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(kind.keyType, as_written(kind.valueType))
    if isinstance(kind, T.IntegralType):
        return T.DecimalType(38, 15)
    as_it_is = isinstance(kind, T.DecimalType | T.BinaryType) or kind.typeName() == "variant"
    return kind if as_it_is else T.StringType()


LENIENT: Mapping[str, str] = dict.fromkeys(
    (
        "allowComments", "allowSingleQuotes", "allowUnquotedFieldNames", "allowNumericLeadingZeros",
        "allowUnquotedControlChars", "allowBackslashEscapingAnyCharacter",
    ),
    "true",
)  # fmt: skip
