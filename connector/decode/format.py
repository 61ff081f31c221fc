"""How the bytes of a Kafka key or value become a Spark value, or a problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from connector.source.columnar import PlainValues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


class Format(Protocol):
    """One format, with the schema of its values."""

    @property
    def type(self) -> DataType:
        """The type of a valid value. The fields of a STRUCT become columns."""

    @property
    def header(self) -> int:
        """The number of bytes before the text of a value, which a message skips. 0: there are none, or no text."""

    @property
    def plain(self) -> PlainValues | None:
        """The values that the columnar reader may decode in place of ``decoded``. None: it can decode none."""

    @property
    def comments(self) -> Mapping[str, str]:
        """Column -> its comment in the schema, where it has one."""

    def decoded(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """``records`` with two more columns, computed from the bytes in ``column`` where they aren't null.

        ``into`` is the value. The column named by ``problem_of`` is a STRING, and null if the value is valid and
        nothing was lost. Otherwise it describes the problem, and the value may be anything. A STRUCT may have more
        fields than ``type``. If a schema must first be requested or learned, the problem is ``UNKNOWN`` and the
        schema's ID. If a record is in order and says nothing of a row, it is ``NOTHING``.
        """

    def of_plain(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """As ``decoded``, of values that the columnar reader has decoded into ``column``: STRUCTs as ``plain`` says.

        Their bytes are in the column ``value``.
        """

    def with_faults(self, bad: DataFrame, value: str, column: str, into: str) -> DataFrame | None:
        """Look again at records with a problem: ``bad`` with one more column ``into``, STRUCT<fault, shown>.

        ``value`` is SQL of the bytes, which ``column`` had. ``fault`` says more than the problem, as which field is
        wrong, and ``shown`` is the start of that field's value. Null if there is no more to say. None: there never is.
        """

    def begin_epoch(self) -> None:
        """Say that what is decoded from now on is of another epoch."""

    def resolve(self, ids: Iterable[str], records: DataFrame) -> None:
        """Request these schemas from the registry, or learn new fields from the column ``bytes`` of ``records``.

        Then the same query can run again. The type may have gained fields.
        """


UNKNOWN = "unknown_schema:"
NOTHING = "says_nothing"


def problem_of(into: str) -> str:
    """The name of the column with the problem of ``into``."""
    return f"{into}_problem"


def comments_in(kind: DataType) -> Mapping[str, str]:
    """Field of a STRUCT -> its COMMENT."""
    from pyspark.sql.types import StructType

    fields = kind.fields if isinstance(kind, StructType) else ()
    return {field.name: field.metadata["comment"] for field in fields if field.metadata.get("comment")}


class NeverPlain:
    """A format whose values the columnar reader can't decode, and whose problems say everything."""

    header = 0

    @property
    def comments(self) -> Mapping[str, str]:
        """A schema of its own has none."""
        return {}

    def with_faults(self, _: DataFrame, __: str, ___: str, ____: str) -> DataFrame | None:
        """None: there is no more to say."""
        return None

    @property
    def plain(self) -> PlainValues | None:
        """None: it can decode none."""
        return None

    def of_plain(self, _: DataFrame, column: str, __: str) -> DataFrame:
        """Never called."""
        raise AssertionError(f"the columnar reader can't have decoded {column}")


class SchemaFixed(NeverPlain):
    """A format whose schema is known from the start, so that nothing is ever requested."""

    def begin_epoch(self) -> None:
        """Nothing depends on the epoch."""

    def resolve(self, ids: Iterable[str], _: DataFrame) -> None:
        """Never called."""
        raise AssertionError(f"records name no schemas, but these were requested: {ids}")
