"""The full name of the Avro schema that each record of a registry names, as the auditor finds it out."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.audit.avro_schema import Schema
from connector.audit.batches import headers
from connector.audit.registries import Schemas
from sinks.errors import UnusableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME = "lakelock_schema"
"""STRING, the name; empty of a schema without one. Null: the registry has no such schema."""


@dataclass(frozen=True)
class Names:
    """The names of the schemas of a topic's values."""

    schemas: Schemas
    alone: bool
    """Whether the values have no columns that all of them share: then a record is fine that names some schema."""

    def read(self, records: DataFrame) -> DataFrame:
        """The records with ``NAME``. Asks for the schema of each header. Raises RegistryUnreachable,
        ConfigurationError."""
        from pyspark.sql import functions as F

        named, sent = self._names(records), F.substring(F.col("value"), 1, self.schemas.header)
        found = F.lit(None).cast("string")
        for header, name in named.items():
            found = F.when(sent == F.lit(header), F.lit(name)).otherwise(found)
        return records.withColumn(NAME, found)

    def _names(self, records: DataFrame) -> Mapping[bytes, str]:
        found = {}
        for header in headers(records, "value", self.schemas.header):
            texts = self.schemas.of(header)
            with suppress(UnusableSchema):
                if texts is not None:
                    found[header] = Schema.of(texts, defaults=False).name
        return found
