"""All faults of some options at once: also those that show only once others are out of the way."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from connector.config.faults import Fault, Moved, described, faults_of, is_there
from connector.config.marks import Path

_Model = TypeVar("_Model", bound=BaseModel)
_DECIDE = (("together",), ("delivery",), ("route",))
"""Options on which the sense of others hangs: with another value of theirs, other options would be wrong."""


def checked(
    options: Mapping[Any, Any],
    root: type[_Model],
    *,
    moved: Moved = lambda path: path,
    beside: Collection[str] = (),
) -> tuple[_Model | None, list[Fault]]:
    """The options as a ``root``, or None and their faults. ``moved`` and ``beside`` are as in ``faults_of``.

    What doesn't go together is checked only where each value is right. So the options are looked at again without
    those that are wrong, and what is said of these is left out: it may be wrong itself.
    """
    faults: dict[Fault, None] = {}
    left_out: set[str] = set()
    given = options
    while True:
        try:
            model = root.model_validate(given)
        except ValidationError as error:
            found = faults_of(error, given, root, moved=moved, beside=beside)
            faults.update(dict.fromkeys(fault for fault in found if not _is_of(fault, left_out)))
            wrong = list(described(error, given, root, beside))
            if not all(_may_be_left_out(path, kind) for path, _, kind in wrong):
                return None, list(faults)
            before, given = given, _without(given, [path for path, _, _ in wrong])
            if given == before:
                return None, list(faults)
            left_out |= {str(path[-1]) for path, _, _ in wrong}
            left_out |= {meant for path, meant, _ in wrong if meant is not None and not is_there(given, path, meant)}
        else:
            return (None if faults else model), list(faults)


def _may_be_left_out(path: Path, kind: str) -> bool:
    return bool(path) and isinstance(path[-1], str) and kind not in ("missing", "tag_missing") and path not in _DECIDE


def _is_of(fault: Fault, names: Iterable[str]) -> bool:
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", fault.text) for name in names)


def _without(options: Any, paths: Collection[Path]) -> Any:
    """A copy without the options at these paths."""
    if not isinstance(options, Mapping | list | tuple):
        return options
    kept: dict[Any, Any] = {}
    for name, value in _items(options):
        below = [path[1:] for path in paths if path[:1] == (name,)]
        if () not in below:
            kept[name] = _without(value, below) if below else value
    return kept if isinstance(options, Mapping) else list(kept.values())


def _items(options: Mapping[Any, Any] | list[Any] | tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
    return iter(options.items()) if isinstance(options, Mapping) else enumerate(options)
