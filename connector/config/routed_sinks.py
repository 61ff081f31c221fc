"""The sinks that ``route`` gives a pipeline file. A file has either ``sinks``, ``route`` or ``tables``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from connector.config.faults import Fault
from connector.config.marks import Path
from connector.config.placeholders import merged
from connector.config.route import OPTION as ROUTE
from connector.config.route import Route, sink_faults

SINKS = "sinks"
_NO_FAULT = {"type": "delta_append", "path": "lake"}


def one_way(options: Mapping[Any, Any], *ways: str) -> list[Fault]:
    """A fault of each option that says a second time where records go, though there may be only one of ``ways``."""
    given = [way for way in ways if way in options]
    return [
        Fault((other,), f"{other}: give either {given[0]} or {other}, not both. Remove one of them", name=True)
        for other in given[1:]
    ]


def with_route(options: Mapping[Any, Any]) -> tuple[Mapping[Any, Any], list[Fault]]:
    """The options with the sinks of ``route``: that of each value, as the file has it, and that of the other records.

    They come after the sinks that the file has beside a route, which is one of the faults.
    """
    if ROUTE not in options:
        return options, []
    given, before = options[ROUTE], _listed(options)
    faults = [*one_way(options, SINKS, ROUTE), *_faults_of_overrides(given)]
    if SINKS in options and not before:  # whatever it is, it is told as a fault
        return options, faults
    try:
        route = Route.model_validate(given)
    except ValidationError:  # the route's own faults are told with those of the whole file
        sink, other = (given.get("sink"), given.get("other")) if isinstance(given, Mapping) else (None, None)
        stand_ins = [sink if isinstance(sink, Mapping) else _NO_FAULT, *([other] if isinstance(other, Mapping) else [])]
        return {**options, SINKS: [*before, *stand_ins]}, faults
    return {**options, ROUTE: route, SINKS: [*before, *route.template()]}, faults


def from_route(options: Mapping[Any, Any], path: Path) -> Path:
    """Where the file with these options has an option of a sink, if ``route`` may have given it."""
    before = len(_listed(options))
    if ROUTE in options and path[:1] == (SINKS,) and len(path) > 1 and isinstance(path[1], int) and path[1] >= before:
        return (ROUTE, "other" if path[1] == before + 1 else "sink", *path[2:])
    return path


def _listed(options: Mapping[Any, Any]) -> Sequence[Any]:
    sinks = options.get(SINKS)
    return list(sinks) if isinstance(sinks, list | tuple) else []


def _faults_of_overrides(route: Any) -> list[Fault]:
    """What is wrong with the sinks of single values, if that of all others is right."""
    sink, overrides = (route.get("sink"), route.get("overrides")) if isinstance(route, Mapping) else (None, None)
    if not isinstance(sink, Mapping) or not isinstance(overrides, Mapping) or sink_faults(sink, ())[1]:
        return []
    faults = []
    for value, override in overrides.items():
        changes = override.get("sink") if isinstance(override, Mapping) else None
        if isinstance(changes, Mapping):
            faults += sink_faults(merged(sink, changes), (ROUTE, "overrides", value, "sink"))[1]
    return faults
