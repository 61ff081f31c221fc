"""Fields that the newest schema of a registry lacks, and older ones have: whether the records are read with them.

They are, where ``on_new_column: add`` has made a column of each, and where the table has one from before. And the
columns that a table has got from fields of JSON, which no schema has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from connector.audit.protobuf_schema import grown
from connector.config import OWN_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Takes: TypeAlias = Callable[[str], bool]
"""Whether records are read with the field at this path, as ``at.city``, that the newest schema lacks."""


def takes(table: DataType | None, *, grows: bool = False, under: str = "") -> Takes:
    """``grows``: with every field. ``under``: of the column of this name in the table. A column of Lakelock's own never
    comes from a field."""
    there = frozenset(paths(table, "")) if table is not None else frozenset()

    def takes(path: str) -> bool:
        own = not under and path.lower() in OWN_COLUMNS
        return not own and (grows or (f"{under}.{path}" if under else path).lower() in there)

    return takes


def of_groups(table: StructType | None, group_by: Sequence[str]) -> StructType:
    """The columns of an aggregate's table that say which group a record is of."""
    from pyspark.sql.types import StructType

    groups = {name.lower() for name in group_by}
    return StructType([each for each in table or () if each.name.lower() in groups])


def in_groups(table: StructType, *, reshaped: bool) -> Takes:
    """The same for an aggregate: a STRUCT among its groups has exactly the fields that it has in the table.

    ``table``: its ``of_groups``; ``reshaped``: whether steps or a transform make columns, which aren't fields then.
    """
    held = takes(table)
    return lambda path: held(path) and ("." in path or not reshaped)


def of_event(takes: Takes) -> Takes:
    """The same for the fields of a Debezium event, in whose ``before`` and ``after`` the row is."""

    def in_event(path: str) -> bool:
        part, _, inner = path.partition(".")
        return takes(inner) if part in ("before", "after") else takes(f"_{path}")

    return in_event


def column_of_event(path: str) -> str:
    """The path of a field of a Debezium event in the columns that the event makes."""
    part, _, inner = path.partition(".")
    return inner if part in ("before", "after") else f"_{path}"


def without(grown: StructType, newest: StructType, takes: Takes, path: str = "") -> StructType:
    """The columns ``grown`` without the fields that ``newest`` lacks and that nothing ``takes``."""
    from pyspark.sql.types import StructField, StructType

    there, fields = {each.name.lower(): each.dataType for each in newest}, []
    for each in grown:
        inner = f"{path}.{each.name}" if path else each.name
        if (old := there.get(each.name.lower())) is not None:
            fields.append(StructField(each.name, _without(each.dataType, old, takes, inner), each.nullable))
        elif takes(inner):
            fields.append(each)
    return StructType(fields)


def _without(grown: DataType, newest: DataType, takes: Takes, path: str) -> DataType:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(grown, ArrayType) and isinstance(newest, ArrayType):
        return ArrayType(_without(grown.elementType, newest.elementType, takes, path))
    if isinstance(grown, MapType) and isinstance(newest, MapType):
        return MapType(grown.keyType, _without(grown.valueType, newest.valueType, takes, path))
    if isinstance(grown, StructType) and isinstance(newest, StructType):
        return without(grown, newest, takes, path)
    return grown


def readable(table: StructType) -> StructType:
    """The table's columns that may come from fields of JSON records."""
    from pyspark.sql.types import StructType

    own = {name.lower() for name in OWN_COLUMNS}
    return StructType([each for each in table if each.name.lower() not in own and _of_json(each.dataType)])


def with_fields_of(declared: StructType, table: StructType) -> StructType:
    """The declared columns, with the fields that only the table has, at any depth."""
    found = grown(declared, table)
    assert isinstance(found, type(declared))
    return found


def _of_json(kind: DataType) -> bool:
    """Whether JSON can hold values of this type: its names are text."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and _of_json(kind.valueType)
    if isinstance(kind, StructType):
        return all(_of_json(each.dataType) for each in kind)
    return not isinstance(kind, ArrayType) or _of_json(kind.elementType)


def paths(kind: DataType, at: str) -> Iterator[str]:
    """The paths of all fields in a type, in lower case. ``at``: that of the type itself."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        yield from paths(kind.elementType, at)
    elif isinstance(kind, MapType):
        yield from paths(kind.valueType, at)
    elif isinstance(kind, StructType):
        for field in kind:
            inner = f"{at}.{field.name}".removeprefix(".").lower()
            yield inner
            yield from paths(field.dataType, inner)
