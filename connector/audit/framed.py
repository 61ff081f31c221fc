"""JSON after Confluent's header, as the auditor reads it: a zero byte, the ID of a schema in four bytes, the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.audit.batches import headers
from connector.audit.registries import Schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HEADER = 5


@dataclass(frozen=True)
class Framed:
    """``schemas``: the registry that has to know the ID of every record. None: an ID may be any."""

    schemas: Schemas | None = None

    def read(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """``records`` with the text of each value in the column ``into``, as bytes. Null where the header isn't right.

        Asks the registry for the schema of each header that the records have. Raises RegistryUnreachable and
        ConfigurationError.
        """
        from pyspark.sql import functions as F

        value = F.col(column)
        right = (F.octet_length(value) >= _HEADER) & (F.hex(F.substring(value, 1, 1)) == "00")
        if self.schemas is not None:
            known = self._known(records, column, self.schemas)
            right &= F.hex(F.substring(value, 1, _HEADER)).isin(known) if known else F.lit(False)
        return records.withColumn(into, F.when(right, F.substring(value, _HEADER + 1, 2**31 - 1)))

    def _known(self, records: DataFrame, column: str, schemas: Schemas) -> list[str]:
        """The headers that the registry knows, of those that most records have."""
        from pyspark.sql import functions as F

        found = headers(records, column, _HEADER, F.octet_length(column) >= _HEADER)
        return [each.hex().upper() for each in found if schemas.of(each) is not None]
