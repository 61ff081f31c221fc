"""``--set OPTION=VALUE``: change options of a pipeline file for one command, as for one environment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from connector.config.fault_texts import shown
from connector.config.kinds import dotted
from connector.config.marks import Marks
from connector.config.yaml_text import read_yaml
from sinks.errors import ConfigurationError

_PART = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_KEYS_WITH_DOTS = (["source", "kafka"], ["spark"])
"""Mappings whose keys contain dots: the options of Kafka and Spark, and beside them the properties of a table."""


def overridden(document: dict[Any, Any], overrides: Sequence[str], marks: Marks, *, origin: str) -> dict[Any, Any]:
    """The document with overrides such as ``sinks[0].path=...``, applied in their order.

    A value is YAML. An empty value removes the option. Missing mappings on the way are created, missing list members
    aren't. ``marks`` learns which options were set. Raises ConfigurationError.
    """
    if overrides:
        document = _apart(document, frozenset())
    for override in overrides:
        option, equals, text = override.partition("=")
        path = _parts(option)
        if not equals or not path or isinstance(path[0], int):
            raise ConfigurationError(
                f"--set {option!r}: write OPTION=VALUE, as in sinks[0].path=s3a://lake/flights or source.start=latest."
            )
        value, _ = read_yaml(text, f"--set {option}")
        _set(document, path, value, f"--set {option}", origin)
        marks.set_by(path, option)
    return document


def _apart(held: Any, above: frozenset[int]) -> Any:
    """The same with mappings and lists of its own at each place. YAML gives one object for an anchor and all of its
    aliases, so that setting an option of one would set that of all.

    ``above``: ids of those that this is in. An anchor that contains itself stays, to be refused."""
    if id(held) in above or not isinstance(held, dict | list):
        return held
    above |= {id(held)}
    if isinstance(held, list):
        return [_apart(member, above) for member in held]
    return {name: _apart(value, above) for name, value in held.items()}


def _parts(option: str) -> list[str | int]:
    """Split ``sinks[0].path`` into sinks, 0, path. Returns an empty list for any other notation."""
    parts: list[str | int] = []
    at = 0
    while at < len(option):
        if (parts in _KEYS_WITH_DOTS or parts[-1:] == ["properties"]) and option[at : at + 1] == ".":
            return [*parts, option[at + 1 :]]
        found = _PART.match(option, at)
        if found is None or (at == 0) == option[at].startswith((".", "[")):
            return []
        parts.append(found[1] if found[2] is None else int(found[2]))
        at = found.end()
    return parts


def _set(document: Any, path: Sequence[str | int], value: object, what: str, origin: str) -> None:
    here = document
    for depth, part in enumerate(path):
        last, above = depth == len(path) - 1, dotted(tuple(path[:depth]))
        if isinstance(part, int):
            if not isinstance(here, list) or part >= len(here):
                raise ConfigurationError(f"{what}: {_no_member(here, part, above, origin)}")
        elif not isinstance(here, dict):
            raise ConfigurationError(
                f"{what}: {above} in {origin} is {shown(here)}, not a mapping of options, so it can't have {part!r}."
            )
        if not last:
            here = here.setdefault(part, {}) if isinstance(here, dict) else here[part]
        elif value is None and isinstance(here, dict):
            here.pop(part, None)
        else:
            here[part] = value


def _no_member(held: object, index: int, option: str, origin: str) -> str:
    """Why ``option[index]`` can't be set."""
    if held == {}:
        return f"{origin} has no list {option}. Set it as a whole, as in --set '{option}=[...]'."
    if not isinstance(held, list):
        return f"{option} in {origin} is {shown(held)}, not a list, so it has no [{index}]."
    if not held:
        return f"the list {option} in {origin} is empty, so there is no {option}[{index}]."
    only = f"the only one is {option}[0]"
    return (
        f"there is no {option}[{index}] in {origin}. Counting begins at 0: "
        + (only if len(held) == 1 else f"the last one is {option}[{len(held) - 1}]")
        + "."
    )
