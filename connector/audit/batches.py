"""What the formats that Python decodes have in common: values one by one on the executors, in Arrow's batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pyarrow import DataType as ArrowType
    from pyarrow import RecordBatch
    from pyspark.sql import Column, DataFrame

ValueOf: TypeAlias = Callable[[bytes | None], Any]
"""What Kafka's bytes become, as Arrow takes it."""
_MOST = 2_000
"""The number of different headers whose schemas are asked for."""


def with_column(
    batches: Iterable[RecordBatch], column: str, into: str, type: ArrowType, value_of: ValueOf
) -> Iterator[RecordBatch]:
    """On an executor: the batches with one more column ``into``, made of the bytes in ``column``."""
    import pyarrow

    for batch in batches:
        values = [value_of(each) for each in batch.column(batch.schema.get_field_index(column)).to_pylist()]
        columns = [*batch.columns, pyarrow.array(values, type)]
        fields = [*batch.schema, pyarrow.field(into, type)]
        yield pyarrow.RecordBatch.from_arrays(columns, schema=pyarrow.schema(fields))


def headers(records: DataFrame, column: str, length: int, which: Column | None = None) -> list[bytes]:
    """The headers that most records have: corrupt ones may have any. ``length``: of a header; 0: there is one, the
    empty one. ``which``: of these records only; by default of those with a value."""
    from pyspark.sql import functions as F

    if not length:
        return [b""]
    header = F.substring(F.col(column), 1, length)
    counted = records.where(F.col(column).isNotNull() if which is None else which)
    counts = counted.groupBy(header.alias("header")).count()
    return [bytes(row["header"]) for row in counts.orderBy(F.desc("count"), "header").limit(_MOST).collect()]
