"""Debezium's control events: they tell of the connector or of the database, and say nothing of a row.

They have topics of their own, unless a transformation in Kafka Connect sends them to a table's topic.
"""

from __future__ import annotations

from collections.abc import Sequence

from sinks.spark.sql import literal

_FORMS = (
    (("ts_ms",), ()),  # a heartbeat
    (("status", "id", "event_count", "data_collections"), ("ts_ms",)),  # the begin or end of a transaction
    (("source", "databaseName", "ddl", "tableChanges"), ("ts_ms", "schemaName")),  # a change of a schema
)
"""The fields that one in JSON has, and those that it may have. No row of a database looks so by chance."""
_MESSAGE = "m"
"""The op of a message in PostgreSQL's log."""
_SCHEMAS = ("Heartbeat", "TransactionMetadataValue", "SchemaChangeValue", "MessageValue")
_OF_DEBEZIUM = "io.debezium.connector."


def is_of_schema(name: str) -> bool:
    """Whether records are control events whose Avro schema has this full name."""
    space, _, last = name.rpartition(".")
    return last in _SCHEMAS and f"{space}.".startswith(_OF_DEBEZIUM)


def fields(op: str, text: str) -> str:
    """SQL of the names of the fields of an event in JSON that has no ``op``; null of any other. ``text``: SQL of the
    JSON, in which the event may be within its schema."""
    inner = f"json_object_keys(get_json_object({text}, '$.payload'))"
    outer = f"json_object_keys({text})"
    within = f"array_contains({outer}, 'payload') AND size(array_except({outer}, array('payload', 'schema'))) = 0"
    return f"CASE WHEN {op} IS NULL THEN IF({within}, {inner}, {outer}) END"


def is_one(op: str, fields: str) -> str:
    """SQL: whether an event is a control event. ``fields``: see above; SQL."""
    same = (
        f"(size(array_except({_array(has)}, {fields})) = 0 "
        f"AND size(array_except({fields}, {_array((*has, *may))})) = 0)"
        for has, may in _FORMS
    )
    return f"({op} = '{_MESSAGE}' OR {' OR '.join(same)})"


def _array(names: Sequence[str]) -> str:
    return f"array({', '.join(map(literal, names))})"
