"""Fields of JSON records that neither the file nor the table knows, with `on_new_column: add`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from connector.audit.claim import Bounds
from connector.audit.exact_json import LENIENT, STRICT
from connector.audit.formats import Form, learns_columns
from connector.audit.records import PLACE, beyond
from connector.config import DeltaAggregateSink, KeyedSink, PipelineConfig
from sinks.plurals import first_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField

_SHOWN = 5
_HEADER = 5
"""The bytes of Confluent's header."""
_ROWS = ("after", "before", "payload.after", "payload.before")
"""Where the row is in an event."""


def fields_without_column(
    config: PipelineConfig,
    records: DataFrame,
    form: Form,
    table: Sequence[str],
    cut: Sequence[Bounds],
    letters: DataFrame | None,
) -> tuple[list[str], list[str]]:
    """A note on the fields with a value, at any depth, that neither ``form`` nor the ``table`` has; and the same as a
    reason why the table can't be called exact: a run adds a column for each, so somebody has dropped it since.

    It is a note only where a run may have added none: of permissive JSON, which it learns no fields from, and where
    nobody knows which records are ``letters``, as a field that can't be a column makes a bad record. ``records``: as
    Kafka has them; ``table``: its columns, whose fields ``form`` has.

    A sink that names its columns takes no others, but all fields inside of them. Runs one Spark job: only names leave
    the executors.
    """
    from pyspark.sql import functions as F

    if not learns_columns(config) or isinstance(config.sinks[0], DeltaAggregateSink):
        return [], []
    claimed = records.where(f"NOT {beyond(cut, 'topic', 'partition', 'offset')}")
    if letters is not None:
        aside = letters.selectExpr(*(f"{name} AS l{name}" for name in PLACE))
        same = F.expr(" AND ".join(f"{name.removeprefix('_')} = l{name}" for name in PLACE))
        claimed = claimed.join(aside, same, "left_anti")
    names = _fields(config, claimed, form, table)
    if not names:
        return [], []
    told = f"The table has no column for these fields of records, which aren't compared: {first_of(names, _SHOWN)}."
    if form.permissive or (config.on_bad_record == "dead_letter" and letters is None):
        return [told], []
    return [], [
        f"{told} With on_new_column: add a run makes a column of each: it was dropped since, or "
        "the table was written without that."
    ]


def _fields(config: PipelineConfig, claimed: DataFrame, form: Form, table: Sequence[str]) -> list[str]:
    """The paths of some of these fields, one more than are shown. ``claimed``: the records that make rows."""
    from pyspark.sql import functions as F

    sink, left_out, alone = config.sinks[0], set[str](), None
    if isinstance(sink, KeyedSink):
        alone = sink.column_list
        left_out = {name.lower() for name in sink.except_column_list or ()}
    text = f"substring(value, {_HEADER + 1})" if form.framed is not None else "value"
    text = f"CAST({text} AS STRING)"
    rows = [f"get_json_object({text}, '$.{at}')" for at in _ROWS] if form.events is not None else [text]
    objects = claimed.selectExpr(f"explode(array({', '.join(rows)})) AS text").where("text IS NOT NULL")
    find = _Fields(LENIENT if form.permissive else STRICT)
    inside = [part for part in form.columns if part.name.lower() not in left_out]
    if alone is not None:
        inside = [part for part in inside if part.name in alone and _has_fields(part.dataType)]
        if not inside:
            return []
    found = find.in_columns(F.col("text"), inside, "", {name.lower() for name in table} | left_out, new=alone is None)
    more = objects.select(F.explode(found).alias("name")).distinct().orderBy("name")
    return [row["name"] for row in more.limit(_SHOWN + 1).collect()]


class _Fields:
    """Finds the names that JSON has and that its columns lack."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """``options``: how JSON is read."""
        self._options = dict(options)

    def in_columns(
        self, text: Column, fields: Sequence[StructField], path: str, others: Collection[str] = (), *, new: bool = True
    ) -> Column:
        """An array of the paths that the object with these ``fields`` has beside them, below ``path``.

        ``others``: further names that it may have, in lower case; ``new``: whether other names count."""
        from pyspark.sql import functions as F

        sent = F.map_entries(F.from_json(text, "map<string, string>", self._options))
        sent = F.filter(sent, lambda each: each["value"].isNotNull())
        known = sorted({part.name.lower() for part in fields} | set(others))
        beside = F.filter(sent, lambda each: F.lit(new) & ~F.lower(each["key"]).isin(known))
        found = [F.transform(beside, lambda each: F.concat(F.lit(path), each["key"]))]
        found += [self._in_field(sent, part, path) for part in fields if _has_fields(part.dataType)]
        return F.concat(*(F.coalesce(each, F.expr("CAST(array() AS ARRAY<STRING>)")) for each in found))

    def _in_field(self, sent: Column, field: StructField, path: str) -> Column:
        """The same of one of the fields. ``sent``: the entries of the object."""
        from pyspark.sql import functions as F

        named = F.filter(sent, lambda each: F.lower(each["key"]) == field.name.lower())
        inner = f"{path}{field.name}"
        return F.flatten(F.transform(named, lambda each: self._in_value(each["value"], field.dataType, inner)))

    def _in_value(self, text: Column, kind: DataType, path: str) -> Column:
        """The same of a value of this type, which has fields."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import ArrayType, MapType, StructType

        if isinstance(kind, StructType):
            return self.in_columns(text, kind.fields, f"{path}.")
        if isinstance(kind, ArrayType):
            values, inner, of = F.from_json(text, "array<string>", self._options), kind.elementType, "element"
        else:
            assert isinstance(kind, MapType)
            values = F.map_values(F.from_json(text, "map<string, string>", self._options))
            inner, of = kind.valueType, "value"
        found = F.flatten(F.transform(values, lambda each: self._in_value(each, inner, f"{path}.{of}")))
        return F.coalesce(found, F.expr("CAST(array() AS ARRAY<STRING>)"))


def _has_fields(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        return _has_fields(kind.elementType)
    return _has_fields(kind.valueType) if isinstance(kind, MapType) else isinstance(kind, StructType)
