"""The key columns of a tombstone, as the auditor guesses them from Kafka's key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.audit import exact_json
from sinks.spark.sql import identifier, let, literal

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField

_IN_CONNECTS_JSON = (
    "size(parts) = 2 AND map_contains_key(parts, 'payload') AND map_contains_key(parts, 'schema') "
    "AND coalesce(startswith(parts['schema'], '{'), true)",
    "startswith(parts['payload'], '{')",
)
"""SQL: whether the parts of an object are those that Connect's JSON converter writes, its data beside their schema; and
whether these data are an object."""


def of_kafkas_key(column: StructField, *, alone: bool) -> Column:
    """A key column of a tombstone: a field of the JSON object in Kafka's key.

    ``alone``: it is the key's only column, so Kafka's key may also be a JSON string or the text itself.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import AtomicType, StructField, StructType

    text, name, kind = "CAST(key AS STRING)", identifier(column.name), column.dataType
    named = _in_the_columns_case(text, column.name) if isinstance(kind, AtomicType) else text

    def read(field: StructField, path: str) -> Column:
        found = f"{exact_json.columns_of(StructType([field]), named)}.{path}"
        return F.expr(_exactly(kind, found))

    whole = F.expr(f"startswith({text}, '{{') AND endswith({text}, '}}')")
    parts = f"from_json({text}, 'MAP<STRING, STRING>')"
    with_schema, of_object = (F.expr(let("parts", parts, condition)) for condition in _IN_CONNECTS_JSON)
    sole = alone and isinstance(kind, AtomicType)
    of_schema = F.when(of_object, read(StructField("payload", StructType([column])), f"payload.{name}"))
    if sole:
        of_schema = of_schema.otherwise(read(StructField("payload", kind), "payload"))
    value = F.when(whole & with_schema, of_schema).when(whole, read(column, name))
    if sole:
        as_field = f"concat('{{\"v\":', {text}, '}}')"
        found = f"{exact_json.columns_of(StructType([StructField('v', kind)]), as_field)}.v"
        is_quoted = f"length({text}) > 1 AND startswith({text}, '\"') AND endswith({text}, '\"')"
        value = value.when(F.expr(is_quoted), F.expr(_exactly(kind, found)))
        value = value.otherwise(F.expr(exact_json.of_text(kind, text)))
    return value


def _exactly(kind: DataType, found: str) -> str:
    is_exact, value = (each(kind, found, permissive=False) for each in (exact_json.is_exact, exact_json.value))
    return f"IF({is_exact}, {value}, NULL)"


def _in_the_columns_case(text: str, name: str) -> str:
    """SQL of the key, in which the name of the column stands as the column is called. Names have no case, as in values,
    but one that is there twice isn't taken for the other."""
    if not name.replace("_", "").isalnum():
        return text
    pattern, plain = literal(f'(?iu)"{name}"(?=\\s*:)'), literal(f'"{name}"')
    return (
        f"CASE regexp_count({text}, {pattern}) WHEN 1 THEN regexp_replace({text}, {pattern}, {plain}) ELSE {text} END"
    )
