"""Values of records for which the table has no column, although no run leaves them out.

By a schema that isn't in the file a run finds out whether the table takes its records: it doesn't start where a column
is missing, and a record with a value in an unknown field is a bad one. So the column was dropped since. Or another file
has written the table: with ``on_new_column: ignore``, or with another ``schema_file``. Nothing tells which it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from connector.audit.claim import Bounds
from connector.audit.records import LACKS, PLACE, Records, beyond
from connector.config import PipelineConfig, ProtobufFormat
from sinks.plurals import first_of
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_SHOWN = 5
_ZEROS = {"string": "''", "boolean": "false", "binary": "X''"}


def values_without_column(
    config: PipelineConfig, made: Records, missing: Sequence[str], cut: Sequence[Bounds], letters: DataFrame | None
) -> list[str]:
    """Why the table can't be called exact, as a sentence, if records of the claim have such values.

    ``made``: the rows of good records, with all their columns; ``missing``: the paths that the table lacks.
    ``letters``: all dead letters; None: nobody can tell which records are, as such a record may be, or there are none.
    Runs one Spark job if some are missing: only names leave the executors.
    """
    may_be_letters = config.on_bad_record == "dead_letter" and letters is None
    if not missing or may_be_letters or config.on_new_column in ("add", "ignore"):
        return []
    # An absent field of Protobuf may be read as 0: that is no value of the record.
    zeros = any(isinstance(flow.value, ProtobufFormat) for flow in config.by_flow)
    found = {name: text for name in missing if (text := given(made, name, zeros=zeros)) is not None}
    claimed = made.frame.where(f"NOT {beyond(cut, *PLACE)}")
    row = claimed.selectExpr(*(f"max({text}) AS g{index}" for index, text in enumerate(found.values()))).first()
    names = [name for index, name in enumerate(found) if row is not None and row[f"g{index}"]]
    if not names:
        return []
    return [
        f"Records have values in these fields, for which the table has no column: {first_of(names, _SHOWN)}. Somebody "
        "has dropped it, unless the field came into the schema after these records, or the table was written with "
        "on_new_column: ignore or with another schema: then give verify the same (--set on_new_column=ignore)."
    ]


def given(made: Records, path: str, *, zeros: bool) -> str | None:
    """SQL: whether a record has a value at this path. None: there is no such path.

    What is read only as the default of a field that the record lacks is none, and with ``zeros`` no zero is."""
    for part in made.columns:
        if path == part.name or path.startswith(f"{part.name}."):
            inner = path.removeprefix(part.name).removeprefix(".")
            text = _given(identifier(part.name), part.dataType, inner, zeros=zeros)
            if made.defaults and text is not None:
                near = [
                    default for each, default in made.defaults.items() if path == each or path.startswith(f"{each}.")
                ]
                of_path = [each.path for default in near for each in (default, *default.others)]
                lacks = f"arrays_overlap(coalesce({LACKS}, array()), array({', '.join(map(literal, of_path))}))"
                text = f"({text} AND NOT {lacks})" if of_path else text
            return text
    return None


def _given(value: str, kind: DataType, path: str, *, zeros: bool, depth: int = 0) -> str | None:
    """The same of a ``value`` of this type, and the rest of the path in it."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if not path:
        return _is_value(value, kind, zeros=zeros, depth=depth)
    each = f"each{depth}"
    if isinstance(kind, StructType):
        for part in kind:
            if path == part.name or path.startswith(f"{part.name}."):
                rest = path.removeprefix(part.name).removeprefix(".")
                return _given(f"{value}.{identifier(part.name)}", part.dataType, rest, zeros=zeros, depth=depth)
    if isinstance(kind, ArrayType):
        inner = _given(each, kind.elementType, path.removeprefix("element."), zeros=zeros, depth=depth + 1)
        return None if inner is None else f"coalesce(exists({value}, {each} -> {inner}), false)"
    if isinstance(kind, MapType):
        inner = _given(each, kind.valueType, path.removeprefix("value."), zeros=zeros, depth=depth + 1)
        return None if inner is None else f"coalesce(exists(map_values({value}), {each} -> {inner}), false)"
    return None


def _is_value(value: str, kind: DataType, *, zeros: bool, depth: int) -> str:
    from pyspark.sql.types import ArrayType, MapType, NumericType, StructType

    if not zeros:
        return f"({value} IS NOT NULL)"
    if isinstance(kind, StructType):
        parts = [_is_value(f"{value}.{identifier(part.name)}", part.dataType, zeros=True, depth=depth) for part in kind]
        return f"({' OR '.join(parts or ['false'])})"
    if isinstance(kind, ArrayType | MapType):
        return f"coalesce(size({value}) > 0, false)"
    zero = "0" if isinstance(kind, NumericType) else _ZEROS.get(kind.typeName())
    return f"({value} IS NOT NULL)" if zero is None else f"coalesce({value} <> {zero}, false)"
