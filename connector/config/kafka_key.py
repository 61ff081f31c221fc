"""``key: kafka_key`` of a sink: rows that are identified by Kafka's key as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from connector.config.faults import Fault
from connector.config.flows import FLOWS
from connector.config.kinds import dotted
from connector.config.marks import Path
from connector.config.route import Route
from connector.config.routed_sinks import from_route
from connector.config.sinks import KAFKA_KEY, KAFKAS_KEY

_KEY = "key"
_TEXT = {"format": "string"}
_COLUMN = re.compile(rf"(?:^|,)\s*`?{KAFKA_KEY}`?\s", re.IGNORECASE)


def with_kafkas_key(options: Mapping[Any, Any], given: Mapping[Any, Any]) -> tuple[Mapping[Any, Any], list[Fault]]:
    """The options of a pipeline file, with a format of Kafka's key if a sink needs one, and what is wrong with that.

    ``given``: the options as the file has them, without the sinks of its ``route``.
    """
    keys = {(*from_route(given, path), _KEY): sink.get(_KEY) for path, sink in _sinks(options)}
    kafkas = next((path for path, key in keys.items() if key == KAFKA_KEY), None)
    if kafkas is None:
        return options, []
    faults = [
        f"{KAFKA_KEY} means Kafka's key, and {option} has a column of this name. Write key: [{KAFKA_KEY}] for the "
        f"column, or key: {KAFKAS_KEY} for Kafka's key"
        for option, schema in _schemas(options)
        if isinstance(schema, str) and _COLUMN.search(schema)
    ]
    if options.get(_KEY) is not None:
        return options, _at(kafkas, faults)
    other = next((path for path, key in keys.items() if key not in (None, KAFKA_KEY)), None)
    if other is not None:
        faults.append(
            f"is {KAFKA_KEY}, and {dotted(other)} names columns, so Kafka's key has to have them: it alone says which "
            "rows a tombstone deletes. Write key: {format: json, schema: ...} or another format beside value"
        )
    return {**options, _KEY: _TEXT}, _at(kafkas, faults)


def _schemas(options: Mapping[Any, Any]) -> Iterator[tuple[str, object]]:
    """The schemas of values that a file has, and where they are."""
    flows = options.get(FLOWS)
    of_flows = {
        f"{FLOWS}[{index}].": flow for index, flow in enumerate(flows if isinstance(flows, list | tuple) else ())
    }
    for where, each in {"": options, **of_flows}.items():
        value = each.get("value") if isinstance(each, Mapping) else None
        if isinstance(value, Mapping):
            yield f"{where}value.schema", value.get("schema")


def _at(path: Path, texts: list[str]) -> list[Fault]:
    return [Fault(path, f"{dotted(path)}: {text}") for text in texts]


def _sinks(options: Mapping[Any, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The options of all sinks of a file, and where they are."""
    given, route = options.get("sinks"), options.get("route")
    for index, sink in enumerate(given if isinstance(given, list | tuple) else ()):
        if isinstance(sink, Mapping):
            yield ("sinks", index), sink
    if isinstance(route, Route):
        for value, override in route.overrides.items():
            yield ("route", "overrides", value, "sink"), override.sink
