"""Fields that the newest schema of a registry has dropped, although older records still have them.

A table keeps the column of a dropped field. Records that were written before have its values, so they are read with it,
whatever ``on_new_column`` says: that option is about fields that no table has a column for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField

_ROWS, _OF_EVENT = ("before", "after"), ("_source.", "_transaction.")


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
    return frozenset((*(f"{row}.{each}" for row in _ROWS for each in held), *of_event))


def holds(held: Collection[str], field: StructField, at: Sequence[str]) -> bool:
    """Whether a field of the STRUCT at this path is among those that a table holds."""
    return ".".join((*at, field.name)).lower() in held


def lacks(fields: Sequence[str], of: str, part: str) -> str | None:
    """Why records can't be read that have these fields, which ``of`` lacks. None: there are none."""
    if not fields:
        return None
    # The option is about the fields of a value.
    how = "; on_new_column: add keeps such fields, ignore leaves them out" if part == "value" else ""
    return f"has fields that {of} lacks: {', '.join(fields)}{how}"
