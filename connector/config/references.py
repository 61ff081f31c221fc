"""``${env:NAME}`` and ``${file:/path}``: values of a pipeline file that stand elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import SecretStr

from connector.config.faults import Fault
from connector.config.kinds import REFERENCE, dotted
from connector.config.secret_places import holds_secret

_NOWHERE = "1"
"""Stands for a value that is missing, while the other options are checked."""
_REQUIRED = (
    *("path", "table", "name", "topic", "topics", "require", "transform", "filter", "key", "group_by", "partition_by"),
    *("sequence_by", "system_sequence_by", "apply_as_deletes", "apply_as_truncates"),
)
"""Options whose text may not be empty."""
_SEPARATORS = {"path": "/", **dict.fromkeys(("table", "name", "topic", "topics", "group.id"), ".")}


class References:
    """Replaces references by what they stand for, and collects the ``faults`` of those that stand for nothing.

    A relative path belongs to ``folder``. ``texts`` has the text of the file by the value that took its place.
    ``forgiven`` are those that ``forgive`` has taken from the faults.
    """

    def __init__(self, folder: str = "") -> None:
        self._folder = folder
        self.faults: list[Fault] = []
        self.forgiven: list[Fault] = []
        self.texts: dict[str, str] = {}
        self._unknown: list[str] = []

    def resolve(self, value: object, path: tuple[str | int, ...] = ()) -> object:
        """The value with what its references stand for. A value that may be a secret is wrapped."""
        if isinstance(value, Mapping):
            return {key: self.resolve(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.resolve(item, (*path, index)) for index, item in enumerate(value)]
        if not isinstance(value, str) or not REFERENCE.search(value):
            return value
        known = {found[0]: self._look_up(found[1], found[2], path) for found in REFERENCE.finditer(value)}
        self._refuse_emptied(value, path, known)
        resolved = REFERENCE.sub(lambda found: known[found[0]], value)
        self.texts[resolved] = value
        return SecretStr(resolved) if holds_secret(path) else resolved

    def _look_up(self, kind: str, name: str, path: tuple[str | int, ...]) -> str:
        if kind == "env":
            if name not in os.environ:
                self._missing(path, f"the environment variable {name} isn't set")
            # A store of secrets that was filled from a file may give the newline at its end, too.
            return os.environ.get(name, _NOWHERE).rstrip("\r\n")
        try:
            return Path(self._folder, name).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            self._missing(path, f"the file {name} can't be read ({type(error).__name__})")
            return _NOWHERE

    def _refuse_emptied(self, written: str, path: tuple[str | int, ...], known: Mapping[str, str]) -> None:
        """A fault where an empty value leaves nothing of a required text, or nothing between two separators of a name:
        ``lake//x`` is another table than the one of any stage. A prefix or suffix may be empty."""
        empty = [reference for reference, stands_for in known.items() if not stands_for.strip()]
        named = next((part for part in reversed(path) if isinstance(part, str)), "")
        if not empty or {"options", "properties", "spark"} & set(path[:-1]):
            return
        filled = REFERENCE.sub(_NOWHERE, written)
        tested = REFERENCE.sub(lambda found: "" if found[0] in empty else _NOWHERE, written)
        nothing = named in _REQUIRED and not tested.strip()
        # In a text alone a `.` may be a pattern's.
        separator = _SEPARATORS.get(named) if named != "topics" or path[-1] != named else None
        emptied = separator and tested and _empty(tested, separator) > _empty(filled, separator)
        if nothing or emptied:
            where = " and ".join(reference[2:-1].replace(":", " ", 1) for reference in empty)
            self._missing(path, f"{where} is set, and empty. Give it a value, or write the option without it")

    def _missing(self, path: tuple[str | int, ...], why: str) -> None:
        self.faults.append(Fault(path, f"{dotted(path)}: {why}"))

    def forgive(self, where: Callable[[tuple[str | int, ...]], bool] = lambda _: True) -> None:
        """Don't report references that stand for nothing here, nor anything about the options that have them.

        ``where``: by the paths of the options, for which of them. The others are reported as before."""
        self.forgiven = [fault for fault in self.faults if where(fault.path)]
        self._unknown = [dotted(fault.path) for fault in self.forgiven]
        self.faults = [fault for fault in self.faults if not where(fault.path)]

    def without_unknown(self, faults: list[Fault]) -> list[Fault]:
        """The faults of options whose value is known here."""
        unknown = [*self._unknown, *(dotted(fault.path) for fault in self.faults)]
        # `trigger: interval: ...` is a fault of trigger.interval.
        return [fault for fault in faults if not any(name in fault.text.replace(": ", ".") for name in unknown)]


def _empty(text: str, separator: str) -> int:
    """How many parts are empty. A path may begin with ``/``."""
    parts = text.split(separator)
    return (parts[1:] if separator == "/" else parts).count("")
