"""The columns of an upserted table that only some options fill. The options can't change under the table's rows.

* ``_deleted_by`` (with ``_deleted``) is there with soft deletes. A hard delete leaves no mark, and a run with hard
  deletes leaves a row that comes back marked as deleted.
* ``_columns`` is there with ignored nulls by sequence. A run that doesn't fill it leaves the orders of older values,
  and a value without an order is older than every change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sinks.delta.order import has_changes
from sinks.delta.table import DeltaTable
from sinks.delta.upsert_rule import COLUMNS, DELETED_BY
from sinks.errors import SchemaMismatch

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def check_own_columns(table: DeltaTable, wanted: StructType, *, begun: Callable[[], bool]) -> None:
    """Raises SchemaMismatch if the table was written with other ``deletes`` or ``ignore_null_updates``.

    ``wanted``: the columns that the pipeline fills; ``begun``: whether an epoch was committed to the table. A table
    without changes may get the columns that it lacks.
    """
    schema = table.schema
    there = {name.lower() for name in schema.names}
    if "_offset" not in there:
        return
    was_soft, soft = DELETED_BY in there, DELETED_BY in wanted.names
    sequenced = "_sequence" in wanted.names
    had, has = (_ordered_values(schema), _ordered_values(wanted)) if sequenced else ((), ())
    left = [name for name in had if name not in has]
    # A column that the table lacks holds no value yet.
    new = [name for name in has if name not in had and name in there]
    if was_soft == soft and not left and not new:
        return
    rows = has_changes(table, there)
    if not (rows or was_soft or left or begun()):
        return
    hint = f"The table has no rows. Drop it, and the next run makes it anew: DROP TABLE {table.sql}"
    if was_soft != soft:
        was, now = ("soft", "hard") if was_soft else ("hard", "soft")
        has_or_not = "a column _deleted_by" if was_soft else "no column _deleted_by"
        raise SchemaMismatch(
            f"The table {table.label!r} was written with deletes: {was} (it has {has_or_not}), and the pipeline says "
            f"deletes: {now}. Rows that were deleted before couldn't be told from others.",
            hint=f"Write deletes: {was}, or replay the topic into a new table." if rows else hint,
        )
    raise SchemaMismatch(
        f"The table {table.label!r} was written with another ignore_null_updates: its column _columns holds the order "
        f"of each value of {_listed(had)}, and the pipeline ignores nulls in {_listed(has)}. With sequence_by, a late "
        "update couldn't be compared with the other values.",
        hint="Write the ignore_null_updates that the table was written with, or replay the topic into a new table."
        if rows
        else hint,
    )


def _ordered_values(schema: StructType) -> Sequence[str]:
    """The columns whose values have an order of their own in ``_columns``, in lower case."""
    from pyspark.sql.types import StructType

    kinds = [field.dataType for field in schema if field.name.lower() == COLUMNS]
    return [name.lower() for kind in kinds if isinstance(kind, StructType) for name in kind.names]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "no column"
