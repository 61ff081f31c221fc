"""Fields that the newest schema of a registry has dropped, although older records still have them.

A table keeps the column of a dropped field. Records that were written before have its values, so they are read with it,
whatever ``on_new_column`` says: that option is about fields that no table has a column for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from connector.config import OWN_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField

ROWS_OF_EVENT, _OF_EVENT = ("before", "after"), ("_source.", "_transaction.")
"""The fields of a Debezium event that are rows, and what else a table holds of it."""


def paths(kind: DataType, at: str = "") -> Iterator[str]:
    """The paths of the fields in a type, in lower case. What is in an ARRAY or a MAP has the path of its field."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        yield from paths(kind.elementType, at)
    elif isinstance(kind, MapType):
        yield from paths(kind.valueType, at)
    elif isinstance(kind, StructType):
        for field in kind:
            inner = f"{at}.{field.name.lower()}" if at else field.name.lower()
            yield inner
            yield from paths(field.dataType, inner)


def held_of_event(held: Collection[str]) -> frozenset[str]:
    """The paths in a Debezium event of what a table holds of its row, and of the event itself."""
    of_event = (each.removeprefix("_") for each in held if each.startswith(_OF_EVENT))
    return frozenset((*(f"{row}.{each}" for row in ROWS_OF_EVENT for each in held), *of_event))


def own_names(row: DataType) -> Sequence[str]:
    """The columns of a row that have a name of Lakelock's own."""
    return [name for name in getattr(row, "names", ()) if name.lower() in OWN_COLUMNS]


def row_of_event(event: DataType) -> DataType:
    """The type of the row in a Debezium event, or the event's own if it has none."""
    from pyspark.sql.types import StructType

    return event["after"].dataType if isinstance(event, StructType) and "after" in event.names else event


def is_own(path: str, rows: Collection[str] = ()) -> bool:
    """Whether a field would become a column with a name of Lakelock's own. ``rows``: the fields that are rows, by
    default the value itself."""
    row, _, name = path.lower().partition(".") if rows else ("", "", path.lower())
    return name in OWN_COLUMNS and (not rows or row in rows)


def taken_names(fields: Sequence[str]) -> str | None:
    """Why records can't be read that have these fields, which `is_own`. None: there are none."""
    return f"has fields with names of columns that Lakelock itself uses: {', '.join(fields)}" if fields else None


def holds(held: Collection[str], field: StructField, at: Sequence[str]) -> bool:
    """Whether a field of the STRUCT at this path is among those that a table holds."""
    path = ".".join((*at, field.name)).lower()
    return path in held and not is_own(path)


def lacks(fields: Sequence[str], of: str, part: str) -> str | None:
    """Why records can't be read that have these fields, which ``of`` lacks. None: there are none."""
    if not fields:
        return None
    # The option is about the fields of a value. Those of a key say which row is meant.
    hints = {
        "value": "; on_new_column: add keeps such fields, ignore leaves them out",
        "key": "; the key's schema_file, schema or descriptor_file says which fields tell rows apart",
    }
    how = hints.get(part, "")
    return f"has fields that {of} lacks: {', '.join(fields)}{how}"
