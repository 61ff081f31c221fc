"""Debezium's control events: they tell of the connector or of the database, and say nothing of a row.

They have topics of their own, unless a transformation in Kafka Connect sends them to a table's topic.
"""

from __future__ import annotations

from collections.abc import Sequence

from connector.decode.format import NOTHING
from sinks.spark.sql import literal

_HEARTBEAT, _TRANSACTION, _SCHEMA_CHANGE = "a heartbeat", "the begin or end of a transaction", "a change of a schema"
_MESSAGE = "a message in the database's log"
_FORMS = {
    _HEARTBEAT: (("ts_ms",), ()),
    _TRANSACTION: (("status", "id", "event_count", "data_collections"), ("ts_ms",)),
    _SCHEMA_CHANGE: (("source", "databaseName", "ddl", "tableChanges"), ("ts_ms", "schemaName")),
}
"""The fields that one in JSON has, and those that it may have. No row of a database looks so by chance."""
_SCHEMAS = {
    "Heartbeat": _HEARTBEAT, "TransactionMetadataValue": _TRANSACTION, "SchemaChangeValue": _SCHEMA_CHANGE,
    "MessageValue": _MESSAGE,
}  # fmt: skip
_OF_DEBEZIUM = "io.debezium.connector."


def of_schema(name: str) -> str | None:
    """The problem of records whose Avro schema has this full name. None: they are no control events."""
    space, _, last = name.rpartition(".")
    kind = _SCHEMAS.get(last) if f"{space}.".startswith(_OF_DEBEZIUM) else None
    return None if kind is None else f"{NOTHING}{kind}"


def fields(op: str, text: str) -> str:
    """SQL of the names of the fields of an event in JSON that has no ``op``; null of any other. ``text``: SQL of the
    JSON, in which the event may be within its schema."""
    inner = f"json_object_keys(get_json_object({text}, '$.payload'))"
    outer = f"json_object_keys({text})"
    within = f"array_contains({outer}, 'payload') AND size(array_except({outer}, array('payload', 'schema'))) = 0"
    return f"CASE WHEN {op} IS NULL THEN IF({within}, {inner}, {outer}) END"


def problem(op: str, fields: str) -> str:
    """SQL of the WHENs of a problem for control events. ``fields``: see above; SQL."""
    whens = [f"WHEN {op} = 'm' THEN {literal(NOTHING + _MESSAGE)}"]
    for kind, (has, may) in _FORMS.items():
        has_all = f"size(array_except({_array(has)}, {fields})) = 0"
        no_other = f"size(array_except({fields}, {_array((*has, *may))})) = 0"
        whens.append(f"WHEN {has_all} AND {no_other} THEN {literal(NOTHING + kind)}")
    return " ".join(whens)


def _array(names: Sequence[str]) -> str:
    return f"array({', '.join(map(literal, names))})"
