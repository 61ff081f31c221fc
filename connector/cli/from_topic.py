"""``lakelock init --from-topic``: a pipeline file for a topic, written from a look at some of its records."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import yaml

from connector.config import parse
from connector.config.placeholders import safe
from connector.decode.inferred import columns
from connector.decode.registry.wire_format import ConfluentWire
from connector.protocol.plan import to_sample
from connector.source.topics import KafkaSource
from sinks.errors import ConfigurationError
from sinks.plurals import plural
from sinks.spark.sql import identifier

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")
"""A time that a TIMESTAMP holds exactly."""

_HEADER = "  # They begin as Confluent's JSON Schema serializer has it: a zero byte, and the schema's number in four.\n"
_OF_REGISTRY = (
    "  # With registry: {url: ...} in place of schema, the newest schema in the registry gives the columns.\n"
)


class Record(Protocol):
    """What is looked at of a record."""

    key: bytes | None
    value: bytes | None


def from_topic(topic: str, kafka: Sequence[str]) -> tuple[str, int]:
    """The text of a pipeline file, and the number of records that were looked at.

    ``kafka``: Kafka's options, as NAME=VALUE. Raises ConfigurationError (also if the topic has no record yet),
    TopicMissing and BrokerUnreachable.
    """
    options = {"bootstrap.servers": "127.0.0.1:9092"}
    for each in kafka:
        name, given, value = each.partition("=")
        if not given:
            raise ConfigurationError(
                f"--kafka: write NAME=VALUE, as in bootstrap.servers=127.0.0.1:9092, not {each!r}."
            )
        options[name] = value
    source = KafkaSource(parse(yaml.safe_load(written(topic, options, []))).source)
    try:
        held = source.look()
        records = source.sample(to_sample(source.starting(held)(), held))
    finally:
        source.close()
    if not records:
        raise ConfigurationError(
            f"--from-topic: {topic} has no record yet that could show its columns.",
            hint="`lakelock init` without it writes a file with comments to start from.",
        )
    text = written(topic, options, records)
    parse(yaml.safe_load(text))
    return text, len(records)


def written(topic: str, kafka: Mapping[str, str], records: Sequence[Record]) -> str:
    """The pipeline file for a topic with these records. It holds Kafka's options as they are given."""
    framed = _framed([record.value for record in records])
    framed_key = framed and _framed([record.key for record in records])
    if framed:
        records = [_Text(_text_of(record.key, framed_key), _text_of(record.value, framed)) for record in records]
    values = [record.value for record in records if record.value is not None]
    place, name = f"lake/{safe(topic, 'path')}", safe(topic, "name")
    known = "\n".join(f"    {option}: {json.dumps(value)}" for option, value in kafka.items())
    value, table, key = _value(values)
    if framed:
        value = f"{_HEADER}{_OF_REGISTRY if 'format: json' in value else ''}{value}  wire_format: confluent\n"
    of_key = key or _key_columns(records, table)
    sinks = f"  - type: delta_append\n    path: {json.dumps(place)}\n"
    if of_key:
        sinks = (
            "  # One row per key: Kafka's key has these columns in all records that were looked at.\n"
            "  # delta_append would keep every record, delta_history every version of a row.\n"
            f"  - type: delta_upsert\n    path: {json.dumps(place)}\n    key: {json.dumps(of_key)}\n"
        )
    times = [column for column, kind in table.items() if kind == "TIMESTAMP"]
    event_time = f"# event_time: {times[0]}    # for `lakelock rewind --to-event-time`\n" if times else ""
    looked_at = plural(len(records), "record")
    return (
        f"# Written from {looked_at} of {topic}. Next: `lakelock check FILE`, then `lakelock run FILE`.\n"
        "# `lakelock init` alone writes a file that explains every option.\n"
        f"name: {name}\n"
        f"source:\n  topics: [{json.dumps(topic)}]\n  kafka:\n{known}\n  start: earliest\n"
        f"value:\n{value}"
        f"{_framed_key(of_key, table) if framed_key and of_key else ''}"
        f"on_bad_record: fail    # or dead_letter, with dead_letters: {{path: {place}_dead}}\n"
        f"{event_time}sinks:\n{sinks}"
    )


@dataclass
class _Text:
    """A record without the headers of its key and value."""

    key: bytes | None
    value: bytes | None


def _framed(values: Sequence[bytes | None]) -> bool:
    """Whether all of these are JSON objects after Confluent's header, and one has a field. Nulls don't count."""
    found = [_json(ConfluentWire.body_of(value)) for value in values if value is not None]
    return any(found) and all(isinstance(each, dict) for each in found)


def _text_of(value: bytes | None, framed: bool) -> bytes | None:
    return ConfluentWire.body_of(value) if framed else value


def _framed_key(names: Sequence[str], table: Mapping[str, str]) -> str:
    """The lines of ``key``. Without them a tombstone of such a key would name no row. They add a column ``_key``."""
    fields = _schema({name: table[name] for name in names}, "of the keys, by which a delete finds its row")
    return f"key:\n  format: json\n{fields}  wire_format: confluent\n"


def _value(values: Sequence[bytes]) -> tuple[str, Mapping[str, str], Sequence[str]]:
    """The lines of ``value``, the columns with their types, and a key if the records' format has one of its own."""
    if values and all(each[:1] == b"\0" and len(each) > 5 for each in values):
        lines = (
            "  # They begin as Avro with a schema registry does: a zero byte, and the schema's number in four.\n"
            '  format: avro\n  registry: {url: "http://127.0.0.1:8081"}    # the registry\'s URL\n'
        )
        return lines, {}, ()
    events = [row for each in values if (row := _row_of_event(each)) is not None]
    if events and len(events) == len(values):
        table = _with_times(events)
        return f"  format: debezium\n{_schema(table, 'that their rows have')}", table, ()
    table = _with_times(values)
    if table:
        return f"  format: json\n{_schema(table, 'that these records have')}", table, ()
    return (
        f"  format: {'string' if all(map(_is_text, values)) else 'bytes'}    # its records aren't JSON objects\n",
        {},
        (),
    )


def _schema(table: Mapping[str, str], of: str) -> str:
    lines = ",\n".join(f"    {identifier(name)} {kind}" for name, kind in table.items())
    return f"  # The fields {of}. `lakelock check` shows rows, and what doesn't fit.\n  schema: |\n{lines}\n"


def _with_times(values: Sequence[bytes]) -> Mapping[str, str]:
    """The columns of JSON objects. A text that is a time in all of them is a TIMESTAMP."""
    found = dict(columns(values))
    rows = [row for value in values if isinstance(row := _json(value), dict)]
    for name, kind in found.items():
        texts = [row[name] for row in rows if row.get(name) is not None]
        if kind == "STRING" and texts and all(isinstance(text, str) and _TIME.fullmatch(text) for text in texts):
            found[name] = "TIMESTAMP"
    return found


def _row_of_event(value: bytes) -> bytes | None:
    """The row in an event of Debezium's, as JSON. None: it is no event."""
    event = _json(value)
    event = event.get("payload", event) if isinstance(event, dict) else None
    if not isinstance(event, dict) or event.get("op") not in ("c", "u", "r", "d", "t") or "after" not in event:
        return None
    row = event["after"] if event["op"] != "d" else event.get("before")
    return json.dumps(row if isinstance(row, dict) else {}).encode()


def _key_columns(records: Sequence[Record], table: Mapping[str, str]) -> Sequence[str]:
    """The columns that Kafka's key has in all records: the fields of its JSON, or the one column that it is the text
    of."""
    keys = [_json(record.key) for record in records]
    inner = [key.get("payload", key) if isinstance(key, dict) else None for key in keys]
    names = {tuple(key) if isinstance(key, dict) else () for key in inner}
    if len(names) == 1 and (only := names.pop()) and set(only) <= table.keys():
        return only
    rows = [(record.key, _json(record.value)) for record in records if record.value is not None]
    for name in table:
        if rows and all(key is not None and isinstance(row, dict) and _text(row.get(name)) == key for key, row in rows):
            return (name,)
    return ()


def _json(value: bytes | None) -> object:
    try:
        return json.loads(value or b"")
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> bytes | None:
    """The bytes of a key that is this value as text."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value).encode()


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
