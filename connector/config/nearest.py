"""Finds the name that was meant, of an option or of one of its values."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_ALIASES = {
    "exactly_once": "transactional",
    "at_least_once": "manual_commit",
    "at_most_once": "auto_commit",
    "effectively_once": "idempotent",
}
"""What other systems call the deliveries."""


def nearest(word: object, known: Iterable[object]) -> str | None:
    """The known name that is most like this one, in any case. None: none is like it."""
    names = {str(name).lower(): str(name) for name in known}
    given = str(word).strip().lower().replace("-", "_").replace(" ", "_")
    if _ALIASES.get(given) in names:
        return _ALIASES[given]
    found = difflib.get_close_matches(given, names, n=1, cutoff=0.6 if len(given) > 3 else 0.5)
    # `upsert` is part of delta_upsert, and of no other name.
    parts = [name for name in names if len(given) > 2 and (given in name or name in given)]
    if not found and len(parts) == 1:
        found = parts
    return names[found[0]] if found else None


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """``; did you mean latest?``, or nothing."""
    found = nearest(word, known) if isinstance(word, str) else None
    return f"; did you mean {found}?" if found else ""
