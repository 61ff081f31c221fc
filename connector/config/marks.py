"""Where in a pipeline file each option stands, for errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import yaml

Path: TypeAlias = tuple[str | int, ...]
"""The names and indexes that lead to an option: ``("sinks", 0, "path")``."""
_Position: TypeAlias = tuple[int, int]
_MERGE = "tag:yaml.org,2002:merge"


class Marks:
    """The line and column of each option and of its value, by the option's path. Without a text it knows none."""

    def __init__(self, node: yaml.Node | None = None) -> None:
        self._keys: dict[Path, _Position] = {}
        self._values: dict[Path, _Position] = {}
        self._set: dict[Path, str] = {}
        if node is not None:
            self._note((), node, frozenset())

    def _note(self, path: Path, node: yaml.Node, above: frozenset[int]) -> None:
        self._values[path] = (node.start_mark.line + 1, node.start_mark.column + 1)
        if id(node) in above:  # an anchor that contains itself
            return
        for key, value, mark in _children(node):
            below = (*path, key)
            if mark is not None:
                self._keys[below] = (mark.line + 1, mark.column + 1)
            self._note(below, value, above | {id(node)})

    def set_by(self, path: Sequence[str | int], override: str) -> None:
        """Note that ``--set`` gave this option and all below it."""
        self._set[tuple(path)] = f"--set {override}"

    def where(self, path: Path, *, name: bool = False) -> tuple[_Position, str]:
        """What sorts the option among others, and where it stands, as text: ``line 3, column 8``.

        That is where its value begins, or its ``name``. An option that isn't in the file stands where the one does that
        it is a part of. Empty text: nowhere.
        """
        for length in range(len(path), 0, -1):
            here = path[:length]
            if here in self._set:
                return (0, 0), self._set[here]
            as_name = name or length < len(path)
            found = self._keys.get(here) if as_name and here in self._keys else self._values.get(here)
            if found is not None:
                return found, f"line {found[0]}, column {found[1]}"
        return (0, 0), ""


def _children(node: yaml.Node) -> Iterator[tuple[str | int, yaml.Node, yaml.Mark | None]]:
    if isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield index, value, None
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.tag == _MERGE:  # `<<: *defaults`; what the mapping has itself comes later, and counts
                several = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for merged in several:
                    yield from _children(merged)
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                yield _key(key), value, key.start_mark


def _key(node: yaml.ScalarNode) -> str | int:
    is_number = node.tag == "tag:yaml.org,2002:int" and node.value.isdigit()
    return int(node.value) if is_number else str(node.value)
