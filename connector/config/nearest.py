"""Finds the name that was meant, of an option or of one of its values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from itertools import takewhile

_ALIASES = {
    "exactly_once": "transactional",
    "at_least_once": "manual_commit",
    "at_most_once": "auto_commit",
    "effectively_once": "idempotent",
}
"""What other systems call the deliveries."""
_LONG = 4
"""Of shorter names, such as DE and DK, many differ in one letter."""


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


def by_a_slip(name: str, known: Iterable[str]) -> str | None:
    """The first of the known names that differs from this one by a slip: in one letter, in two that have changed
    places, or only in case and signs. None: none does. Names with other numbers are no slips, nor are short ones.
    """
    return next((other for other in known if _is_slip(name, other)), None)


def _is_slip(name: str, other: str) -> bool:
    one, two = (re.sub(r"[\W_]+", "_", each.casefold()) for each in (name, other))
    if name == other or min(len(one), len(two)) < _LONG:
        return False
    start = _in_common(one, two)
    one, two = one[start:], two[start:]
    end = _in_common(one[::-1], two[::-1])
    one, two = one[: len(one) - end], two[: len(two) - end]
    swapped = len(one) == 2 and one == two[::-1]
    return (max(len(one), len(two)) <= 1 or swapped) and not re.search(r"\d", one + two)


def _in_common(one: str, two: str) -> int:
    """The number of letters that both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))
