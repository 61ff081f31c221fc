"""A pipeline for a topic, from a look at some of its records: the file of ``lakelock init --from-topic``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from connector.config import OWN_COLUMNS, PipelineConfig, parse
from connector.config.placeholders import safe
from connector.decode.inferred import columns
from connector.decode.registry.wire_format import ConfluentWire
from connector.operations.topic_key import Record, as_json, key_of, schema_lines
from connector.protocol.plan import to_sample
from connector.source.topics import SAMPLED_RECORDS, KafkaSource
from sinks.errors import BrokerUnreachable, ConfigurationError
from sinks.offsets import OffsetRange
from sinks.plurals import plural

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")
"""A time that a TIMESTAMP holds exactly."""
_SOME_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_NUMBER = re.compile(r"-?\d{1,30}\.\d{1,8}")

_HEADER = "  # They begin as Confluent's JSON Schema serializer has it: a zero byte, and the schema's id in four.\n"
_OF_REGISTRY = (
    "  # With registry: {url: ...} in place of schema, the newest schema in the registry gives the columns.\n"
)


@dataclass(frozen=True)
class Draft:
    """A pipeline file for a topic, and what the user should know of it: a sentence each."""

    text: str
    remarks: Sequence[str]


def from_topic(topic: str, kafka: Mapping[str, str]) -> tuple[Draft, int]:
    """The pipeline file, and the number of records that were looked at.

    ``kafka``: Kafka's options; by default bootstrap.servers is 127.0.0.1:9092. Raises ConfigurationError (also if the
    topic has no record yet), TopicMissing and BrokerUnreachable.
    """
    options = {"bootstrap.servers": "127.0.0.1:9092", **kafka}
    source = KafkaSource(parse(yaml.safe_load(written(topic, options, []).text)).source)
    try:
        held = source.look()
        ranges = to_sample(source.starting(held)(), held)
        records = [*source.sample(ranges), *source.sample(list(_newest(ranges)))]
    except BrokerUnreachable as error:
        # There is no file yet whose option the usual hint could name.
        raise BrokerUnreachable(
            error.message,
            hint="Name your broker: --kafka bootstrap.servers=HOST:PORT, and --kafka security.protocol=... where it "
            "wants TLS or SASL. `lakelock broker` starts one on this machine, for trials.",
        ) from None
    finally:
        source.close()
    if not records:
        raise ConfigurationError(
            f"Topic {topic} has no record yet that could show its columns.",
            hint="`lakelock init FILE`, without --from-topic, writes a file with comments to start from.",
        )
    draft = written(topic, options, records)
    parse(yaml.safe_load(draft.text))
    return draft, len(records)


def _newest(ranges: Sequence[OffsetRange]) -> Iterator[OffsetRange]:
    """The ends of ranges that are too long to be looked at as a whole: a producer may have added fields, or deletes."""
    for each in ranges:
        if each.span > 2 * SAMPLED_RECORDS:
            yield replace(each, start=each.end - SAMPLED_RECORDS)


def for_topic(topic: str, kafka: Mapping[str, str], changes: Mapping[str, object]) -> PipelineConfig:
    """The pipeline of that file, where ``changes`` are options that are to be others. Raises what `from_topic` does."""
    draft, _ = from_topic(topic, kafka)
    return parse({**yaml.safe_load(draft.text), **changes}, origin=f"pipeline for topic {topic}")


def written(topic: str, kafka: Mapping[str, str], records: Sequence[Record]) -> Draft:
    """The pipeline file for a topic with these records. It holds Kafka's options as they are given."""
    framed = _framed([record.value for record in records])
    framed_key = framed and _framed([record.key for record in records])
    if framed:
        records = [_Text(_text_of(record.key, framed_key), _text_of(record.value, framed)) for record in records]
    values = [record.value for record in records if record.value is not None]
    place, name = f"lake/{safe(topic, 'path')}", safe(topic, "name")
    known = "\n".join(f"    {option}: {json.dumps(value)}" for option, value in kafka.items())
    value, table = _value(values)
    if framed:
        value = f"{_HEADER}{_OF_REGISTRY if 'format: json' in value else ''}{value}  wire_format: confluent\n"
    found, bad = key_of(records, table), _bad(values)
    sinks = f"{found.comment}  - type: {found.sink}\n    path: {json.dumps(place)}\n{found.of_sink}"
    times = [column for column, kind in table.items() if kind == "TIMESTAMP"]
    event_time = f"# event_time: {times[0]}    # for `lakelock rewind --to-event-time`\n" if times else ""
    looked_at = plural(len(records), "record")
    text = (
        f"# Written from {looked_at} of {topic}. Next: `lakelock check FILE`, then `lakelock run FILE`.\n"
        "# `lakelock init` alone writes a file that explains every option.\n"
        f"name: {name}\n"
        f"source:\n  topics: [{json.dumps(topic)}]\n  kafka:\n{known}\n  start: earliest\n"
        f"value:\n{value}"
        f"{found.of_file(framed=framed_key)}"
        f"{_on_bad_record(f'{place}_dead', bad)}"
        f"{event_time}sinks:\n{sinks}"
    )
    remarks = [found.told] if records else []
    if bad:
        remarks.append(
            f"{bad} of {plural(len(values), 'value')} {'is' if bad == 1 else 'are'} no JSON object: a run sets such "
            f"records aside in {place}_dead (on_bad_record: dead_letter). With fail it would stop at the first one."
        )
    return Draft(text, remarks)


@dataclass
class _Text:
    """A record without the headers of its key and value."""

    key: bytes | None
    value: bytes | None


def _framed(values: Sequence[bytes | None]) -> bool:
    """Whether all of these have Confluent's header, and JSON objects come after it, but for bad records. Nulls don't
    count."""
    bodies = [ConfluentWire.body_of(value) for value in values if value is not None]
    objects = [found for body in bodies if isinstance(found := as_json(body), dict)]
    return any(objects) and None not in bodies and len(objects) > len(bodies) / 2


def _text_of(value: bytes | None, framed: bool) -> bytes | None:
    return ConfluentWire.body_of(value) if framed else value


def _value(values: Sequence[bytes]) -> tuple[str, Mapping[str, str]]:
    """The lines of ``value``, and the columns with their types."""
    if values and all(each[:1] == b"\0" and len(each) > 5 for each in values):
        lines = (
            "  # They begin as Avro and Protobuf with a schema registry do: a zero byte, and the schema's id in four.\n"
            '  format: avro    # or protobuf\n  registry: {url: "http://127.0.0.1:8081"}    # the registry\'s URL\n'
        )
        return lines, {}
    objects = [value for value in values if _is_object(value)]
    events = [row for each in objects if (row := _row_of_event(each)) is not None]
    if events and len(events) == len(objects):
        table = _with_times(events)
        ids = "  tx_id: string    # the IDs of transactions are texts\n" if any(map(_has_text_id, objects)) else ""
        return f"  format: debezium\n{schema_lines(table, 'that their rows have')}{ids}", table
    table = _with_times(objects)
    if table and not _mostly_other(values):
        return f"  format: json\n{_notes(objects, table)}{schema_lines(table, 'that these records have')}", table
    return f"  format: {'string' if all(map(_is_text, values)) else 'bytes'}    # its records aren't JSON objects\n", {}


def _bad(values: Sequence[bytes]) -> int:
    """How many values are no JSON objects, among others that are."""
    return 0 if _mostly_other(values) else sum(not _is_object(value) for value in values)


def _mostly_other(values: Sequence[bytes]) -> bool:
    """Whether less than half of these are JSON objects."""
    return sum(map(_is_object, values)) < len(values) / 2


def _on_bad_record(place: str, bad: int) -> str:
    """A run that stops at the first bad record is right until it is known that there are some."""
    if bad:
        return (
            "on_bad_record: dead_letter    # or fail, without dead_letters: a run stops at the first one\n"
            f"dead_letters: {{path: {json.dumps(place)}}}\n"
        )
    return f"on_bad_record: fail    # a run stops; or dead_letter, with dead_letters: {{path: {json.dumps(place)}}}\n"


def _is_object(value: bytes) -> bool:
    return isinstance(as_json(value), dict)


def _with_times(values: Sequence[bytes]) -> Mapping[str, str]:
    """The columns of JSON objects. A text that is a time in all of them is a TIMESTAMP."""
    found = {name: kind for name, kind in columns(values).items() if name.lower() not in OWN_COLUMNS}
    return {**found, **dict.fromkeys(_columns_like(_TIME, values, found), "TIMESTAMP")}


def _notes(values: Sequence[bytes], table: Mapping[str, str]) -> str:
    """Comments on columns of texts whose values may be meant as something else."""
    notes = {
        _NUMBER: "numbers in quotes: STRING keeps the text, a DECIMAL(p, s) its value",
        _DATE: "dates: STRING keeps the text, a DATE takes them too",
        _SOME_TIME: "times of several forms, or without a zone: a TIMESTAMP takes those for UTC",
    }
    found = [(note, _columns_like(pattern, values, table)) for pattern, note in notes.items()]
    own = [name for name in columns(values) if name.lower() in OWN_COLUMNS]
    found.append(("left out, as Lakelock itself has a column of this name", own))
    return "".join(f"  # {', '.join(names)}: {note}.\n" for note, names in found if names)


def _columns_like(pattern: re.Pattern[str], values: Sequence[bytes], table: Mapping[str, str]) -> list[str]:
    """The STRINGs all of whose values have this form."""
    rows = [row for value in values if isinstance(row := as_json(value), dict)]
    texts = {
        name: [row[name] for row in rows if row.get(name) is not None]
        for name, kind in table.items()
        if kind == "STRING"
    }
    return [
        name
        for name, of in texts.items()
        if of and all(isinstance(each, str) and pattern.fullmatch(each) for each in of)
    ]


def _row_of_event(value: bytes) -> bytes | None:
    """The row in an event of Debezium's, as JSON. None: it is no event."""
    event = _event(value)
    if event is None or event.get("op") not in ("c", "u", "r", "d", "t") or "after" not in event:
        return None
    row = event["after"] if event["op"] != "d" else event.get("before")
    return json.dumps(row if isinstance(row, dict) else {}).encode()


def _event(value: bytes) -> dict[str, Any] | None:
    """The object of an event of Debezium's, without its schema."""
    event = as_json(value)
    event = event.get("payload", event) if isinstance(event, dict) else None
    return event if isinstance(event, dict) else None


def _has_text_id(value: bytes) -> bool:
    """Whether an event names its transaction by a text, as those of Oracle do."""
    source = (_event(value) or {}).get("source")
    return isinstance(source, dict) and isinstance(source.get("txId"), str)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
