"""The column ``_schema``: the full name of the Avro schema that a record was written with, for ``route.by``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from connector.config.own_schema import SCHEMA_NAME
from connector.decode.avro import AvroOfRegistry
from connector.decode.avro_schema import AvroSchema, full_name
from connector.decode.format import NeverPlain, problem_of
from connector.decode.records import fields_of
from connector.decode.registry.record_schemas import RecordSchemas
from connector.decode.registry.registry import Registry
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_AVRO = "_of_avro"


class SchemaNames(NeverPlain):
    """Avro of a registry whose records share no columns: of each only the name of its schema is read.

    Whether its bytes are a value of that schema shows where the columns of its table are read.
    """

    def __init__(self, registry: Registry[AvroSchema], known: Sequence[AvroOfRegistry]) -> None:
        """Requests a schema when a record names it. ``known``: have some already."""
        self._names: dict[str, str] = {}
        self._schemas = RecordSchemas(registry, (), "value", self._learn)
        for avro in known:
            self._schemas.take(avro.writers)

    def _learn(self, schema_id: str, schema: AvroSchema) -> None:
        self._names[schema_id] = full_name(schema.root)

    @property
    def type(self) -> DataType:
        """See `Format.type`."""
        from pyspark.sql.types import StringType, StructType

        return StructType().add(SCHEMA_NAME, StringType())

    def decoded(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """See `Format.decoded`."""
        from pyspark.sql import functions as F

        value = F.col(column)
        name = _name(value, self._schemas, self._names)
        problem = F.when(value.isNotNull(), self._schemas.problem(value, None)).cast("string")
        return records.withColumns({into: F.struct(name.alias(SCHEMA_NAME)), problem_of(into): problem})

    def begin_epoch(self) -> None:
        """See `Format.begin_epoch`."""
        self._schemas.begin_epoch()

    def resolve(self, ids: Iterable[str], records: DataFrame) -> None:
        """See `Format.resolve`."""
        self._schemas.resolve(ids, records)


class WithSchemaName(NeverPlain):
    """Avro of a registry, with the name of each record's schema beside its fields."""

    def __init__(self, avro: AvroOfRegistry) -> None:
        """Raises ConfigurationError if a field has this name."""
        self._avro = avro
        if SCHEMA_NAME in {name.lower() for name in fields_of(avro)}:
            raise ConfigurationError(
                f"route.by: {SCHEMA_NAME} is the name of a record's schema, and the records have a field of this name "
                "as well.",
                hint="Give the field another name by a reader's schema: value.schema_file, with an alias.",
            )

    @property
    def type(self) -> DataType:
        """See `Format.type`."""
        from pyspark.sql.types import StringType, StructType

        kind = self._avro.type
        fields = kind if isinstance(kind, StructType) else StructType().add("value", kind)
        return StructType([*fields]).add(SCHEMA_NAME, StringType())

    @property
    def comments(self) -> Mapping[str, str]:
        """See `Format.comments`."""
        return self._avro.comments

    def decoded(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """See `Format.decoded`."""
        from pyspark.sql import functions as F

        found = self._avro.decoded(records, column, _AVRO)
        fields = (F.expr(f"{_AVRO}{path}").alias(name) for name, path in fields_of(self._avro).items())
        names = {schema_id: full_name(writer.root) for schema_id, writer in self._avro.writers.items()}
        name = _name(F.col(column), self._avro.schemas, names)
        value = F.struct(*fields, name.alias(SCHEMA_NAME))
        problem = F.col(problem_of(_AVRO))
        return found.withColumns({into: value, problem_of(into): problem}).drop(_AVRO, problem_of(_AVRO))

    def begin_epoch(self) -> None:
        """See `Format.begin_epoch`."""
        self._avro.begin_epoch()

    def resolve(self, ids: Iterable[str], records: DataFrame) -> None:
        """See `Format.resolve`."""
        self._avro.resolve(ids, records)


def _name(value: Column, schemas: RecordSchemas[AvroSchema], names: Mapping[str, str]) -> Column:
    """STRING: the name of the schema that a value names. Null of one without a name, as of a union."""
    from pyspark.sql import functions as F

    found = F.lit(None).cast("string")
    for each in sorted({name for name in names.values() if name}):
        ids = [schema_id for schema_id, name in names.items() if name == each]
        found = F.when(schemas.one_of(value, ids), F.lit(each)).otherwise(found)
    return found
