"""Keys and values of Debezium's records, and what a consumer has to read in each.

The cases are those of the tests of Debezium's own serde (Apache License 2.0, github.com/debezium/debezium,
io.debezium.serde.SerdeTest). The records are our own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

SOURCE = (
    "https://github.com/debezium/debezium/blob/264f7a6e585eef1f9a46ea93e89a9b33dec3e8d5/debezium-core/src/test/java/io/"
    "debezium/serde/SerdeTest.java"
)
BAD = "a bad record"


@dataclass(frozen=True)
class Case:
    """A text, and the columns that are read in it."""

    about: str
    text: str
    found: Any
    refused: str = ""
    """Why it is a bad record here, although Debezium's serde reads it."""


KEYS = [
    Case("a key in one column", '{"a": 1}', [1]),
    Case("a key as its value alone", "1", [1]),
    Case("a null in the key's column", '{"a": null}', [None]),
    Case("a null for a key", "null", [None]),
    Case("a null within its schema", '{"schema": {}, "payload": null}', [None]),
    Case("a null in the column, within its schema", '{"schema": {}, "payload": {"a": null}}', [None]),
    Case("a key within its schema", '{"schema": {}, "payload": {"a": 1}}', [1]),
    Case("a key's value within its schema", '{"schema": {}, "payload": 1}', [1]),
    Case("a key of two columns", '{"a": 1, "b": 2}', [1, 2]),
]
"""Of tombstones, whose key is all that says which row they delete. ``found``: the columns a, or a and b."""

OLD, NEW = {"id": 5, "name": "Ann", "city": "Oslo"}, {"id": 5, "name": "Anna", "city": "Oslo"}


def event(op: str, before: Any, after: Any) -> dict[str, Any]:
    source = {"version": "3.3", "connector": "mysql", "file": "binlog.7", "pos": 9, "row": 0, "snapshot": "false"}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1767225600000}


def within(payload: Any) -> str:
    return json.dumps({"schema": {"type": "struct", "optional": False, "fields": []}, "payload": payload})


EVENTS = [
    Case("an event within its schema", within(event("c", None, NEW)), {**NEW, "_op": "c"}),
    Case("an event by itself", json.dumps(event("c", None, NEW)), {**NEW, "_op": "c"}),
    Case("the row after an update", within(event("u", OLD, NEW)), {**NEW, "_op": "u"}),
    Case("the row before a delete", json.dumps(event("d", OLD, None)), {**OLD, "_op": "d"}),
    Case("a field that no column has", json.dumps(event("c", None, {**NEW, "more": [1]})), {**NEW, "_op": "c"}),
    Case(
        "the text `null`", "null", BAD,
        "a tombstone is a record without a value, and this one has a value. That it deletes a row would be a guess",
    ),
]  # fmt: skip
"""Of `format: debezium`."""
UNWRAPPED = Case("a row without its event, as `format: json`", json.dumps(NEW), NEW)
ALL = [*KEYS, *EVENTS, UNWRAPPED]
