"""``{topic}`` and the like in a sink's options: what stands for them in a path, a table's name, a pipeline's name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Any

_PLACEHOLDER = re.compile(r"\{(\w*)\}")
_SAFE = {
    "path": re.compile(r"[a-z0-9][a-z0-9._-]*"),
    "table": re.compile(r"[a-z0-9_]+"),
    "name": re.compile("[a-z0-9_-]+"),
}
"""What can be a part of a folder, of a table's name, and of a pipeline's, as it is."""
_LONGEST = 100


def digest(text: str) -> str:
    """Eight characters that stand for a text, in a name."""
    # With half of a surrogate pair it is refused later, with the option's name.
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]


def safe(text: str, of: str) -> str:
    """The text as a part of a ``path``, a ``table`` or a pipeline's ``name``: the same always, and of no other text.

    A name that would be unsafe there, too long, or the same as another without its capitals, gets a part of its hash.
    """
    if len(text) <= _LONGEST and _SAFE[of].fullmatch(text):
        return text
    words = re.sub("[^a-z0-9]+", "_", text.lower()).strip("_")[:_LONGEST]
    return "_".join(filter(None, [words, digest(text)]))


def placeholders(sink: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The path or table of a sink's options, and the placeholders in it."""
    place = str(sink.get("path") or sink.get("table") or "")
    return place, _PLACEHOLDER.findall(place)


def misplaced(sink: Mapping[str, Any], names: Collection[str], what: str) -> str | None:
    """What is wrong if a sink's path or table can't tell ``what`` apart, which go to many tables. None: it can.

    ``names``: what may stand in braces.
    """
    place, found = placeholders(sink)
    stray = [name for name in found if name not in names]
    if found and not stray:
        return None
    option = "table" if sink.get("table") and not sink.get("path") else "path"
    known = [f"{{{name}}}" for name in sorted(names)]
    wrong = f"{place!r} has {{{stray[0]}}}" if stray else f"{place!r} has no {' or '.join(known)}"
    return (
        f"sink.{option}: {wrong}: all {what} would have one table. Write {' or '.join(known)} where the value is to "
        f"stand, as in {option}: lake{'/' if option == 'path' else '.'}{known[-1]}"
    )


def placed(options: Mapping[str, Any], placeholder: str, text: str) -> dict[str, Any]:
    """The options with the text for ``{placeholder}`` in a path or a table's name, made safe there.

    Other options stay as they are: they may be SQL, and the text may come from a record.
    """
    stands = f"{{{placeholder}}}"
    return {
        name: value.replace(stands, safe(text, name)) if name in _SAFE and isinstance(value, str) else value
        for name, value in options.items()
    }


def merged(options: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the changes, mapping by mapping."""
    result = dict(options)
    for name, value in changes.items():
        before = result.get(name)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        result[name] = merged(before, value) if both else value  # type: ignore[arg-type]
    return result
