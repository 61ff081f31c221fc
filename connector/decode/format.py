"""How the bytes of a Kafka key or value become a value of Spark's, or a problem with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


class Format(Protocol):
    """One format, with the schema that its values have."""

    @property
    def type(self) -> DataType:
        """Of a right value. A STRUCT's fields become columns."""

    def decoded(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """With two columns more, of the bytes in ``column`` where they aren't null: ``into``, the value, and, under the
        name of ``problem_of``, a STRING, null where the value is right, whole and without loss.

        Where there is a problem, told in words, the value may be anything. A STRUCT may have more fields than ``type``.
        Of a schema that has to be asked for, or learned, first, it is ``UNKNOWN`` and the schema's id.
        """

    def resolve(self, ids: Iterable[str], records: DataFrame) -> None:
        """Ask the registry for these schemas, or learn what is new from the column ``bytes`` of ``records``; then the
        same query can be run again. The type may have got more fields by it."""


UNKNOWN = "unknown_schema:"


def problem_of(into: str) -> str:
    """The name of the column with what is wrong with ``into``."""
    return f"{into}_problem"


class SchemaFixed:
    """A format whose schema is known from the start."""

    def resolve(self, ids: Iterable[str], _: DataFrame) -> None:
        raise AssertionError(f"no record names a schema, and these were asked for: {ids}")
