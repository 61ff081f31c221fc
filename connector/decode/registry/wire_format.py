"""How a record says which schema its bytes are of: a header before the Avro value, per kind of registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from pyspark.sql import Column


class Wire(Protocol):
    length: int
    """Of the header, in bytes."""

    def header(self, schema_id: str) -> bytes:
        """Of every record of this schema."""
        ...

    def schema_id(self, value: Column) -> Column:
        """STRING: the id in the header of a record whose `problem` is null."""
        ...

    def problem(self, value: Column) -> Column:
        """STRING: why these bytes have no such header, null where they have."""
        ...


class ConfluentWire:
    """A zero byte, then the id in four bytes, the highest first."""

    length = 5

    def header(self, schema_id: str) -> bytes:
        return b"\0" + int(schema_id).to_bytes(4, "big")

    def schema_id(self, value: Column) -> Column:
        from pyspark.sql import functions as F

        return F.conv(F.hex(F.substring(value, 2, 4)), 16, 10)

    def problem(self, value: Column) -> Column:
        from pyspark.sql import functions as F

        framed = F.startswith(value, F.lit(b"\0")) & (F.length(value) >= self.length)
        return F.when(
            ~framed, "not in Confluent's wire format: a zero byte and four bytes of the schema's id come first"
        )


class GlueWire:
    """The byte 3, then 0 for plain or 5 for zlib, then the 16 bytes of a UUID."""

    length = 18

    def header(self, schema_id: str) -> bytes:
        return b"\x03\0" + UUID(schema_id).bytes

    def schema_id(self, value: Column) -> Column:
        from pyspark.sql import functions as F

        parts = [F.substring(value, start, length) for start, length in ((3, 4), (7, 2), (9, 2), (11, 2), (13, 6))]
        return F.lower(F.concat_ws("-", *(F.hex(part) for part in parts)))

    def problem(self, value: Column) -> Column:
        from pyspark.sql import functions as F

        long_enough = F.length(value) >= self.length
        # Spark can't inflate bytes without Python.
        compressed = F.when(
            F.startswith(value, F.lit(b"\x03\x05")) & long_enough,
            "compressed by the producer, which can't be read: set its compressionType to NONE, and Kafka's "
            "compression.type instead",
        )
        framed = F.startswith(value, F.lit(b"\x03\0")) & long_enough
        return compressed.when(
            ~framed, "not in AWS Glue's wire format: the bytes 3 and 0 and the 16 of the schema's id come first"
        )
