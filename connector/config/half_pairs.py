"""Texts that no file, table or message can hold: with half of a surrogate pair, as "\\ud800" in quotes gives one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from connector.config.faults import Fault
from connector.config.kinds import dotted

_HALF = re.compile("[\ud800-\udfff]")


def half_pairs(value: object, path: tuple[str | int, ...] = ()) -> Iterator[Fault]:
    """The options with such a text, as a value or as a name. A value may be a secret: only that half of it is told."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if isinstance(name, str) and _HALF.search(name):
                yield _fault(path, f"the name {name!a} has")
            yield from half_pairs(inner, (*path, name))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from half_pairs(inner, (*path, index))
    elif isinstance(value, str) and (half := _HALF.search(value)):
        yield _fault(path, f"has {half[0]!a},")


def _fault(path: tuple[str | int, ...], found: str) -> Fault:
    option = ascii(dotted(path))[1:-1] or "the options"
    return Fault(path, f"{option}: {found} half of a surrogate pair, which is no text")
