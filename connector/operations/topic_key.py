"""Which rows a table for a topic has, one for each record or one for each key, seen from some of its records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from connector.config.sinks import KAFKA_KEY
from connector.decode.inferred import columns
from sinks.spark.sql import identifier

_FRAMED = "  wire_format: confluent\n"


class Record(Protocol):
    """What is looked at of a record."""

    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class TopicKey:
    """The lines of a pipeline file that say which rows its table has. ``told``: the same as a sentence."""

    sink: str
    """The sink's type."""
    comment: str
    told: str
    of_sink: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Columns of Kafka's keys -> types, if a delete finds its row by them. Empty: the key's text does."""
    alone: bool = False
    """Whether only Kafka's key has them, and no value."""

    def of_file(self, *, framed: bool) -> str:
        """The lines of the file's option ``key``. ``framed``: after Confluent's header.

        Without them a tombstone of such a key would name no row. They add a column ``_key``.
        """
        if not self.fields or not (framed or self.alone):
            return ""
        schema = schema_lines(self.fields, "of the keys, by which a delete finds its row")
        return f"key:\n  format: json\n{schema}{_FRAMED if framed else ''}"


def key_of(records: Sequence[Record], table: Mapping[str, str]) -> TopicKey:
    """The key that all these records have. ``table``: the columns of their values -> types.

    Columns that Kafka's key has too, or Kafka's key as a whole if it is in no column and there are tombstones: only a
    table with a row per key can follow a delete. Without a key every record is a row.
    """
    if names := _columns(records, table):
        return TopicKey(
            "delta_upsert",
            "  # One row per key: Kafka's key has these columns in all records that were looked at.\n"
            "  # delta_append would keep every record, delta_history every version of a row.\n",
            f"The table keeps the newest row of each {' and '.join(names)}, which Kafka's key has too (delta_upsert); "
            "to keep every record, write delta_append.",
            f"    key: {json.dumps(list(names))}\n",
            {name: table[name] for name in names},
        )
    taken = KAFKA_KEY in {name.lower() for name in table}
    keyed = bool(records) and not taken and all(_is_text(record.key) for record in records)
    if keyed and any(record.value is None for record in records):
        return TopicKey(
            "delta_upsert",
            "  # One row per key: Kafka's key is in no column, so it becomes the column _key. Records without a value\n"
            "  # are deletes. delta_history would keep every version of a row.\n",
            "The table keeps the newest row of each of Kafka's keys, which become its column _key (delta_upsert). "
            "Records without a value are deletes.",
            "    key: kafka_key\n",
            _fields_of_keys(records),
            alone=True,
        )
    other = "  # For one row per key: type: delta_upsert, with key: [COLUMN, ...]"
    return TopicKey(
        "delta_append",
        f"{other}, or key: kafka_key, which is Kafka's key as a whole.\n" if keyed else f"{other}.\n",
        "The table keeps every record (delta_append).",
    )


def _columns(records: Sequence[Record], table: Mapping[str, str]) -> Sequence[str]:
    """The columns that Kafka's key has in all records: the fields of its JSON, or the one column that it is the text
    of. A record whose value is no JSON object says nothing about the latter."""
    names = {tuple(key) if isinstance(key, dict) else () for key in map(_inner, records)}
    if len(names) == 1 and (only := names.pop()) and set(only) <= table.keys():
        return only
    rows = [(record.key, row) for record in records if isinstance(row := as_json(record.value), dict)]
    for name in table:
        if rows and all(key is not None and _text(row.get(name)) == key for key, row in rows):
            return (name,)
    return ()


def _inner(record: Record) -> object:
    key = as_json(record.key)
    return key.get("payload", key) if isinstance(key, dict) else None


def _fields_of_keys(records: Sequence[Record]) -> Mapping[str, str]:
    """The fields of keys that are JSON objects with the same names."""
    keys = [as_json(record.key) for record in records]
    names = {tuple(key) if isinstance(key, dict) else () for key in keys}
    return columns(record.key for record in records) if len(names) == 1 and names != {()} else {}


def schema_lines(table: Mapping[str, str], of: str) -> str:
    """The option ``schema``, a column a line. ``of``: whose fields they are."""
    lines = ",\n".join(f"    {identifier(name)} {kind}" for name, kind in table.items())
    return f"  # The fields {of}. `lakelock check` shows rows, and what doesn't fit.\n  schema: |\n{lines}\n"


def as_json(value: bytes | None) -> object:
    """What these bytes are as JSON. None: they are no JSON."""
    try:
        return json.loads(value or b"")
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> bytes | None:
    """The bytes of a key that is this value as text."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value).encode()


def _is_text(value: bytes | None) -> bool:
    try:
        return value is not None and value.decode().isprintable()
    except UnicodeDecodeError:
        return False
