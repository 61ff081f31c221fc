"""Puts values of rows and records into a form that Spark can compare."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from connector.audit.in_both import as_in

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


def comparable_values(columns: StructType, frame: DataFrame) -> Column:
    """A struct of all these columns and the timestamp, under names of our own."""
    from pyspark.sql import functions as F

    column = as_in(columns, frame)
    return F.struct(
        *(_comparable(column(part.name), part.dataType).alias(f"v{index}") for index, part in enumerate(columns)),
        F.col("_timestamp").alias("timestamp"),
    )


class Default(NamedTuple):
    """What a record has in a field that its own schema lacks, if it is read by a schema that has the field."""

    path: str
    """Of the field, as records say that they lack it."""
    json: str
    """A JSON object that has the default as ``v``."""
    others: tuple[Default, ...] = ()
    """Those of fields around it, for records that lack these: a step has made one column of each field in them."""


def defaults_of(value: Mapping[str, str] | None, key: Mapping[str, str] | None) -> dict[str, Default]:
    """By the path in the columns that Kafka's value and key make, from the defaults of both by their path."""
    paths = {**(value or {}), **{f"_key.{path}": text for path, text in (key or {}).items()}}
    return {path: Default(path, text) for path, text in paths.items()}


def paths_lacking(value: Column | None, key: Column | None) -> Column:
    """The paths that Kafka's value or key lack, from the arrays of both. None: nothing of it lacks any."""
    from pyspark.sql import functions as F

    arrays = [value] if value is not None else []
    if key is not None:
        arrays.append(F.transform(key, lambda path: F.concat(F.lit("_key."), path)))
    nothing = F.expr("CAST(array() AS ARRAY<STRING>)")
    return F.concat(nothing, *(F.coalesce(each, nothing) for each in arrays))


def alike(
    made: str,
    there: str,
    columns: StructType,
    defaults: Mapping[str, Default],
    lacks: str,
    numbered: Collection[str] = (),
) -> Column:
    """Whether comparable values of a record and a row are the same. A field that the record lacks has its default, or
    null where the row was written before the table had the field: both are right. ``lacks``: a column with the paths of
    such fields. ``numbered``: columns in which the row may have anything where the record has null."""
    from pyspark.sql import functions as F

    one, other = (with_defaults(F.col(name), columns, defaults, F.col(lacks)) for name in (made, there))
    given = {at: F.col(made)[f"v{at}"].isNotNull() for at, name in enumerate(columns.names) if name in numbered}
    return one.eqNullSafe(where_given(other, columns, given))


def where_given(values: Column, columns: StructType, given: Mapping[int, Column]) -> Column:
    """Comparable values, with null in the columns at these indexes where they aren't ``given``."""
    from pyspark.sql import functions as F

    if not given:
        return values
    parts = ((values[f"v{index}"], given.get(index, F.lit(True)), f"v{index}") for index in range(len(columns)))
    kept = (F.when(there, value).alias(name) for value, there, name in parts)
    return F.when(values.isNotNull(), F.struct(*kept, values["timestamp"].alias("timestamp")))


def with_defaults(values: Column, columns: StructType, defaults: Mapping[str, Default], lacks: Column) -> Column:
    """Comparable values, with the default in place of null in fields that the record lacks."""
    from pyspark.sql import functions as F

    if not defaults:
        return values
    filled = (
        _filled(values[f"v{index}"], part.dataType, part.name, defaults, lacks).alias(f"v{index}")
        for index, part in enumerate(columns)
    )
    return F.when(values.isNotNull(), F.struct(*filled, values["timestamp"].alias("timestamp")))


def _filled(value: Column, kind: DataType, path: str, defaults: Mapping[str, Default], lacks: Column) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    inner = _filled_inside(value, kind, path, defaults, lacks)
    if (default := defaults.get(path)) is None:
        return inner
    found: Any = F
    for each in (default, *default.others):
        read = F.from_json(F.lit(each.json), StructType().add("v", kind))["v"]
        found = found.when(value.isNull() & F.array_contains(lacks, each.path), _comparable(read, kind))
    made: Column = found.otherwise(inner)
    return made


def _filled_inside(value: Column, kind: DataType, path: str, defaults: Mapping[str, Default], lacks: Column) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if not any(each.startswith(f"{path}.") for each in defaults):
        return value
    if isinstance(kind, StructType):
        names = [part.name if _compares(kind) else f"v{index}" for index, part in enumerate(kind)]
        fields = (
            _filled(value[name], part.dataType, f"{path}.{part.name}", defaults, lacks).alias(name)
            for name, part in zip(names, kind, strict=True)
        )
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        of = kind.elementType
        return F.transform(value, lambda each: _filled(each, of, f"{path}.element", defaults, lacks))
    if isinstance(kind, MapType):
        inner = kind.valueType

        def entry(each: Column) -> Column:
            filled = _filled(each["value"], inner, f"{path}.value", defaults, lacks)
            return F.struct(each["key"].alias("key"), filled.alias("value"))

        return F.transform(value, entry)
    return value


def _comparable(value: Column, kind: DataType) -> Column:
    """Spark compares structs and arrays deeply, and NaN as equal to NaN, but neither maps nor VARIANTs.

    Maps become sorted arrays of entries. A VARIANT becomes its JSON, which has the names of an object in their order,
    and every digit of a number.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if _compares(kind):
        return value
    if isinstance(kind, StructType):
        fields = (_comparable(value[part.name], part.dataType).alias(f"v{index}") for index, part in enumerate(kind))
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.transform(value, lambda item: _comparable(item, element))
    if isinstance(kind, MapType):
        of_key, of_value = kind.keyType, kind.valueType

        def entry(item: Column) -> Column:
            return F.struct(
                _comparable(item["key"], of_key).alias("key"), _comparable(item["value"], of_value).alias("value")
            )

        return F.array_sort(F.transform(F.map_entries(value), entry))
    return F.to_json(value)


def _compares(kind: DataType) -> bool:
    """Whether Spark compares values of this type."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, StructType):
        return all(_compares(part.dataType) for part in kind)
    if isinstance(kind, ArrayType):
        return _compares(kind.elementType)
    return kind.typeName() not in ("map", "variant")
