"""Numbers of things, as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence


def plural(number: int, one: str, many: str = "") -> str:
    """``1 record``, ``2,000 records``. ``many``: the words for any number but 1, by default ``one`` with an s.

    The words may go on: ``plural(rows, "row is missing", "rows are missing")``.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def first_of(words: Sequence[str], most: int) -> str:
    """``a, b, c``, or ``a, b, ...`` where there are more than ``most``."""
    return ", ".join([*words[:most], *(["..."] if len(words) > most else [])])


def some_of(words: Sequence[str], most: int) -> str:
    """``a, b, c``, or ``a, b and 7 others`` where there are more than ``most``."""
    more = f" and {len(words) - most:,} others" if len(words) > most else ""
    return ", ".join(words[:most]) + more
