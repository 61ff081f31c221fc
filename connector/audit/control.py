"""Debezium's control events, as the auditor knows them: heartbeats, transactions that begin or end, changes of schemas,
and messages in the database's log. They say nothing of a row, so no table has them and no dead letter."""

from __future__ import annotations

import re
from itertools import combinations

from sinks.spark.sql import literal

_ALWAYS_AND_SOMETIMES = (
    (("ts_ms",), ()),
    (("data_collections", "event_count", "id", "status"), ("ts_ms",)),
    (("databaseName", "ddl", "source", "tableChanges"), ("schemaName", "ts_ms")),
)
_FIELDS = [
    sorted((*always, *more))
    for always, sometimes in _ALWAYS_AND_SOMETIMES
    for size in range(len(sometimes) + 1)
    for more in combinations(sometimes, size)
]
"""What the events without an op consist of."""
_SCHEMAS = re.compile(
    r"io\.debezium\.connector\.(.+\.)?(Heartbeat|TransactionMetadataValue|SchemaChangeValue|MessageValue)"
)


def is_control(op: str, text: str) -> str:
    """SQL: whether an event in JSON is a control event. ``op``: SQL of its op; ``text``: SQL of the JSON."""
    outer = f"from_json({text}, 'MAP<STRING, STRING>')"
    inner = f"from_json({outer}['payload'], 'MAP<STRING, STRING>')"
    alone = f"array_remove(map_keys({outer}), 'schema') = array('payload')"
    names = f"array_sort(array_distinct(map_keys(IF({alone}, {inner}, {outer}))))"
    known = ", ".join(f"array({', '.join(map(literal, each))})" for each in _FIELDS)
    return f"coalesce({op} = 'm' OR ({op} IS NULL AND {names} IN ({known})), false)"


def is_of_control(schema: str) -> bool:
    """Whether records are control events whose Avro schema has this full name."""
    return _SCHEMAS.fullmatch(schema) is not None
