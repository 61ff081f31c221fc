"""What Spark's JSON parser does to a DECIMAL without a word, found in the text of the number.

It rounds a number to 38 digits, and writes out the digits of one with a large exponent, which may take minutes. The
number is found by the name of its field: ``"amount" : 1e-400``. No JSON string can look like that, because its quotes
are escaped. In an ARRAY or a MAP, or if a name has escapes, every number of the text counts. So a record with such a
number in another field may be refused too, but no number is rounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from sinks.spark.sql import literal

Decimals = Iterable[tuple[str | None, int]]
"""The names of fields, and how many digits after the point the parser keeps. See ``json_lossless.Exact``."""

_NUMBER = r"-?[0-9.]+(?:[eE][+-]?[0-9]+)?"
_ANY = r"[:,\[]"
_BACKSLASH = "\\"
_ESCAPED_NAME = r"\\[u/](?:[^\"\\]|\\.)*+\"[ \t\r\n]*+:"


def huge(text: str, decimals: Decimals) -> str:
    """SQL: whether a DECIMAL has an exponent of more than three digits. ``text``: SQL of the JSON text."""
    number = r"-?[0-9.]+[eE][+-]?[0-9]{4,}"
    named, of_any = (literal(_before(names) + number) for names in ([name for name, _ in decimals], [None]))
    return f"{text} RLIKE {named} OR {_has_escaped_name(text)} AND {text} RLIKE {of_any}"


def rounded(text: str, decimals: Decimals) -> str:
    """SQL: whether a DECIMAL has more digits after the point than the parser keeps. ``text``: SQL of the JSON text."""
    kept: dict[int, list[str | None]] = {}
    for name, digits in decimals:
        kept.setdefault(digits, []).append(name)
    # Nearly always there is nothing to look at: long fractions and negative exponents are rare.
    suspicious = rf"\.[0-9]{{{min(kept) + 1},}}|[0-9][eE]-[0-9]"
    found = " OR ".join(_rounded(text, names, digits) for digits, names in sorted(kept.items()))
    return f"{text} RLIKE {literal(suspicious)} AND ({found})"


def _rounded(text: str, names: Iterable[str | None], digits: int) -> str:
    wanted = [_before(names), _before([None])]
    numbers = [f"regexp_extract_all({text}, {literal(before + f'({_NUMBER})')}, 1)" for before in wanted]
    chosen = f"IF({_has_escaped_name(text)}, {numbers[1]}, {numbers[0]})"
    return f"exists({chosen}, _n -> {digits_after_point('_n')} > {digits})"


def digits_after_point(number: str) -> str:
    """SQL: how many digits a number needs after the point, if it is written out. Zero needs none."""
    digits = f"replace(regexp_extract({number}, {literal('^[+-]?([0-9.]+)')}, 1), '.', '')"
    without_zeros = f"trim(TRAILING '0' FROM {digits})"
    fraction = f"length(regexp_extract({number}, {literal('[.]([0-9]+)')}, 1))"
    exponent = f"coalesce(try_cast(regexp_extract({number}, {literal('[eE]([+-]?[0-9]+)')}, 1) AS INT), 0)"
    needed = f"{fraction} - {exponent} - length({digits}) + length({without_zeros})"
    return f"IF({without_zeros} = '', 0, {needed})"


def _has_escaped_name(text: str) -> str:
    # A name can be spelled with these escapes and without. They are rare, and looking for a backslash is cheap.
    return f"(contains({text}, {literal(_BACKSLASH)}) AND {text} RLIKE {literal(_ESCAPED_NAME)})"


def _before(names: Iterable[str | None]) -> str:
    """A pattern for what stands before the numbers of these fields. None: of any."""
    known = list(names)
    if None in known:
        return rf"{_ANY}[ \t\r\n]*\"?"
    quoted = "|".join(re.escape(json.dumps(name, ensure_ascii=False)) for name in known)
    return rf"(?iu:{quoted})[ \t\r\n]*:[ \t\r\n]*\"?"
