"""How a record names the schema of its bytes: a header before the Avro value, for each kind of registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from pyspark.sql import Column


class Wire(Protocol):
    """The header of one kind of registry."""

    length: int
    """The length of the header in bytes."""

    def header(self, schema_id: str) -> bytes:
        """The header of every record with this schema."""
        ...

    def schema_id(self, value: Column) -> Column:
        """STRING: the ID in the header of a record whose `problem` is null."""
        ...

    def problem(self, value: Column) -> Column:
        """STRING: why these bytes have no such header. Null if they have one."""
        ...


class ConfluentWire:
    """A zero byte, then the id in four bytes, the highest first."""

    length = 5

    @staticmethod
    def body(value: str) -> str:
        """SQL of what comes after the header. Null if there is no such header. ``value``: SQL of the bytes."""
        framed = f"startswith({value}, X'00') AND octet_length({value}) >= {ConfluentWire.length}"
        return f"CASE WHEN {framed} THEN substring({value}, {ConfluentWire.length + 1}) END"

    @staticmethod
    def body_of(value: bytes | None) -> bytes | None:
        """As ``body``, of a value."""
        framed = value is not None and value[:1] == b"\0" and len(value) >= ConfluentWire.length
        return value[ConfluentWire.length :] if value is not None and framed else None

    def header(self, schema_id: str) -> bytes:
        """See ``Wire.header``."""
        return b"\0" + int(schema_id).to_bytes(4, "big")

    def schema_id(self, value: Column) -> Column:
        """See ``Wire.schema_id``."""
        from pyspark.sql import functions as F

        return F.conv(F.hex(F.substring(value, 2, 4)), 16, 10)

    def problem(self, value: Column) -> Column:
        """See ``Wire.problem``."""
        from pyspark.sql import functions as F

        framed = F.startswith(value, F.lit(b"\0")) & (F.length(value) >= self.length)
        return F.when(
            ~framed, "not in Confluent's wire format: a zero byte and four bytes of the schema's id come first"
        )


class GlueWire:
    """The byte 3, then 0 for plain or 5 for zlib, then the 16 bytes of a UUID."""

    length = 18

    def header(self, schema_id: str) -> bytes:
        """See ``Wire.header``."""
        return b"\x03\0" + UUID(schema_id).bytes

    def schema_id(self, value: Column) -> Column:
        """See ``Wire.schema_id``."""
        from pyspark.sql import functions as F

        parts = [F.substring(value, start, length) for start, length in ((3, 4), (7, 2), (9, 2), (11, 2), (13, 6))]
        return F.lower(F.concat_ws("-", *(F.hex(part) for part in parts)))

    def problem(self, value: Column) -> Column:
        """See ``Wire.problem``."""
        from pyspark.sql import functions as F

        long_enough = F.length(value) >= self.length
        # Spark can't inflate bytes without Python.
        compressed = F.when(
            F.startswith(value, F.lit(b"\x03\x05")) & long_enough,
            "compressed by the producer, which isn't supported: set its compressionType to NONE, and Kafka's "
            "compression.type instead",
        )
        framed = F.startswith(value, F.lit(b"\x03\0")) & long_enough
        return compressed.when(
            ~framed, "not in AWS Glue's wire format: the bytes 3 and 0 and the 16 of the schema's id come first"
        )
