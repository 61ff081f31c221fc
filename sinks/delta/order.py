"""The order of the changes in an upserted table: by Kafka's offset, or by a sequence. The two can't be mixed.

The columns tell which it is: only a table with a sequence has ``_sequence``. A table that nothing was written to may
change its order. If it keeps ``_sequence`` from before, a property of the table tells its order.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from sinks.delta.table import DeltaTable
from sinks.errors import SchemaMismatch
from sinks.spark.sql import literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_ORDER = "lakelock.order"
"""The property: ``offset`` or ``sequence``."""


def check_order(
    table: DeltaTable,
    wanted: StructType,
    *,
    sequence_by: str | None,
    begun: Callable[[], bool],
    unfolded: Callable[[], int] = lambda: 0,
) -> bool:
    """Whether the pipeline orders changes in another way than the table does, and the table holds no change yet.

    ``wanted``: the columns that the pipeline fills; ``begun``: whether an epoch was committed to the table;
    ``unfolded``: how many epochs are in the table's change log only. Raises SchemaMismatch if the table's rows, or the
    deletes of an epoch, are ordered in another way.
    """
    there = [name.lower() for name in table.schema.names]
    if "_offset" not in there or _is_sequenced(table, there) == (sequence_by is not None):
        return False
    rows = has_changes(table, there)
    if not rows and not begun():
        return True
    # Deletes leave no row, and without a sequence nothing else of them.
    hint = "" if rows else f"The table has no rows. Drop it, and the next run makes it anew: DROP TABLE {table.sql}"
    if sequence_by is not None:
        kept = "_sequence" in there
        why = f"the table has {_ORDER} = offset" if kept else "the table has no column _sequence"
        raise SchemaMismatch(
            f"The rows of {table.label!r} are ordered by Kafka's offset ({why}), and the pipeline orders changes with "
            f"sequence_by: {sequence_by}. The two orders can't be mixed.",
            hint=hint or _converting(table, wanted, sequence_by, kept=kept, unfolded=unfolded()),
        )
    raise SchemaMismatch(
        f"The rows of {table.label!r} are ordered by their column _sequence, and the pipeline has no "
        "sequence_by: it would order changes by Kafka's offset. The two orders can't be mixed.",
        hint=hint or "Give the sink the sequence_by that the table was written with, or write to another table.",
    )


def _converting(table: DeltaTable, wanted: StructType, sequence_by: str, *, kept: bool, unfolded: int) -> str:
    """What to do with rows that are ordered by offset. ``kept``: they have a ``_sequence`` from before."""
    if "_deleted_by" in wanted.names:  # the order of a row's delete can't be told from the row
        return "Replay the topic into a new table."
    kind = sql_type(wanted["_sequence"].dataType)
    change = f"SET TBLPROPERTIES ('{_ORDER}' = 'sequence')" if kept else f"ADD COLUMNS (_sequence {kind})"
    fold = (
        "first run `lakelock fold` with the pipeline file as it was ({} epochs are in the change log only), and then "
    )
    first = fold.format(unfolded) if unfolded else ""
    return (
        f"Replay the topic into a new table; or, where the rows themselves tell their sequence, {first}say so: "
        f"ALTER TABLE {table.sql} {change}; UPDATE {table.sql} SET _sequence = {sequence_by}. A row without a "
        "_sequence is older than every change, and so are the deletes until now."
    )


def back_to_offsets(table: DeltaTable) -> str:
    """The statement that gives a table with a column ``_sequence`` its order by offset back."""
    return f"ALTER TABLE {table.sql} SET TBLPROPERTIES ('{_ORDER}' = 'offset')"


def keep_order(table: DeltaTable, *, sequenced: bool) -> None:
    """Note the order of changes in the table, unless its columns tell it."""
    if _is_sequenced(table, [name.lower() for name in table.schema.names]) != sequenced:
        order = literal("sequence" if sequenced else "offset")
        table.spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ({literal(_ORDER)} = {order})")
        table.forget()


def _is_sequenced(table: DeltaTable, columns: Container[str]) -> bool:
    """Whether the table's changes are ordered by a sequence. ``columns``: its columns, in lower case."""
    detail = table.detail()
    order = detail.properties.get(_ORDER) if detail is not None else None
    return order == "sequence" if order is not None else "_sequence" in columns


def has_changes(table: DeltaTable, columns: Container[str]) -> bool:
    """Whether a row comes from a record. ``columns``: the table's columns, in lower case."""
    changes = ["_offset", *(["_deleted_by"] if "_deleted_by" in columns else [])]
    rows = table.spark.table(table.sql).where(" OR ".join(f"{name} IS NOT NULL" for name in changes))
    return not rows.isEmpty()
