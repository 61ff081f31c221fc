"""``--set OPTION=VALUE``: options of a pipeline file, changed for one command. What differs from place to place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

from sinks.errors import ConfigurationError

_PART = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_KEYS_WITH_DOTS = (["source", "kafka"], ["spark"])
"""Options of Kafka and Spark have dots in their names."""


def overridden(document: dict[Any, Any], overrides: Sequence[str], *, origin: str) -> dict[Any, Any]:
    """The document with ``sinks[0].path=...`` carried out, in their order. A value is YAML; none leaves the option out.

    Mappings on the way are made, members of lists aren't. Raises ConfigurationError.
    """
    for override in overrides:
        option, equals, text = override.partition("=")
        path = _parts(option)
        if not equals or not path or isinstance(path[0], int):
            raise ConfigurationError(
                f"--set {option!r}: write OPTION=VALUE, as in sinks[0].path=s3a://lake/flights or source.start=latest."
            )
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigurationError(
                f"--set {option}: its value isn't YAML: {getattr(error, 'problem', error)}."
            ) from None
        _set(document, path, value, f"--set {option}: {origin}")
    return document


def _parts(option: str) -> list[str | int]:
    """``sinks[0].path`` -> sinks, 0, path. Empty where it isn't written so."""
    parts: list[str | int] = []
    at = 0
    while at < len(option):
        if parts in _KEYS_WITH_DOTS and option[at] == ".":
            return [*parts, option[at + 1 :]]
        found = _PART.match(option, at)
        if found is None or (at == 0) == option[at].startswith((".", "[")):
            return []
        parts.append(found[1] if found[2] is None else int(found[2]))
        at = found.end()
    return parts


def _set(document: Any, path: Sequence[str | int], value: object, what: str) -> None:
    here = document
    for depth, part in enumerate(path):
        last = depth == len(path) - 1
        if isinstance(part, int):
            if not isinstance(here, list) or part >= len(here):
                held = f"{len(here)} members" if isinstance(here, list) else "no list there"
                raise ConfigurationError(f"{what} has {held}, so there is no [{part}] to set (the first is [0]).")
        elif not isinstance(here, dict):
            raise ConfigurationError(f"{what} has no options there, so there is no {part!r} to set.")
        if not last:
            here = here.setdefault(part, {}) if isinstance(here, dict) else here[part]
        elif value is None and isinstance(here, dict):
            here.pop(part, None)
        else:
            here[part] = value
