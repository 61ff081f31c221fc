"""``key: kafka_key`` of a sink: rows that are identified by Kafka's key as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from connector.config.route import Route
from connector.config.sinks import KAFKA_KEY, KAFKAS_KEY
from sinks.errors import ConfigurationError

_KEY = "key"
_TEXT = {"format": "string"}
_COLUMN = re.compile(rf"(?:^|,)\s*`?{KAFKA_KEY}`?\s", re.IGNORECASE)


def with_kafkas_key(options: Mapping[str, object], origin: str) -> Mapping[str, object]:
    """The options of a pipeline file, with a format of Kafka's key if a sink needs one. ``origin`` names the file.

    Raises ConfigurationError if the records have a column of this name.
    """
    if not any(sink.get(_KEY) == KAFKA_KEY for sink in _sinks(options)):
        return options
    value = options.get("value")
    schema = value.get("schema") if isinstance(value, Mapping) else None
    if isinstance(schema, str) and _COLUMN.search(schema):
        raise ConfigurationError(
            f"{origin}: key: {KAFKA_KEY} means Kafka's key, and value.schema has a column of this name.",
            hint=f"Write key: [{KAFKA_KEY}] for the column, or key: {KAFKAS_KEY} for Kafka's key.",
        )
    if options.get(_KEY) is not None:
        return options
    others = [sink[_KEY] for sink in _sinks(options) if sink.get(_KEY) not in (None, KAFKA_KEY)]
    if others:
        raise ConfigurationError(
            f"{origin}: key: {KAFKA_KEY} of one sink, and key: {others[0]} of another: a tombstone names the row of "
            "both by Kafka's key, so its format has to be known.",
            hint="Write key: {format: json, schema: ...} or another format beside value. Then the fields of Kafka's "
            "key of these names are the key columns.",
        )
    return {**options, _KEY: _TEXT}


def _sinks(options: Mapping[str, object]) -> Iterator[Mapping[str, Any]]:
    """The options of all sinks of a file."""
    given, route = options.get("sinks"), options.get("route")
    found = list(given) if isinstance(given, list | tuple) else []
    if isinstance(route, Route):
        found += [override.sink for override in route.overrides.values()]
    yield from (sink for sink in found if isinstance(sink, Mapping))
