"""What Spark's JSON parser does to a DECIMAL without a word, found in the text of the number.

It rounds a number to 38 digits, and writes out the digits of one with a large exponent, which may take minutes. The
number is found by the name of its field: ``"amount" : 1e-400``. No JSON string can look like that, because its quotes
are escaped. In an ARRAY or a MAP, or if a name has escapes, every number of the text counts. So a record with such a
number in another field may be refused too, but no number is rounded.

Of a string it leaves out commas: it reads ``"1,50"`` as 150. It takes a plus sign and the digits of every script, too.
Such a string is parsed again as text: see ``json_lossless``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from sinks.spark.sql import literal

Decimals = Iterable[tuple[str | None, int]]
"""The names of fields, and how many digits after the point the parser keeps. See ``json_lossless.Exact``."""

_NUMBER = r"-?[0-9.]+(?:[eE][+-]?[0-9]+)?"
_ENDS = r"(?=[\"',}\] \t\r\n/])"
"""After a number: an ID such as 1234567e-8901-... is none."""
_ESCAPE = r"\\u[0-9a-fA-F]{4}"
_OF_STRING = rf"[\"'](?:[\p{{Nd}}.,+-]|{_ESCAPE})+(?:[eE]|\\u00[46]5)[+-]?(?:[\p{{Nd}},]|{_ESCAPE}){{4,}}"
_HUGE = rf"(?:-?[0-9.]+[eE][+-]?[0-9]{{4,}}|{_OF_STRING}){_ENDS}"
_ANY = r"[:,\[]"
_OF_NUMBERS = "[0-9.eE+-]"
_WHOLE = r"^[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]{1,3})?$"
_COMMENTS = r"|/\*.*?\*/|//[^\n]*+\n"
_BACKSLASH = "\\"
_ESCAPED_NAME = r"\\[u/](?:[^\"\\]|\\.)*+\"[ \t\r\n]*+:"


def huge(text: str, decimals: Decimals, *, permissive: bool = False) -> str:
    """SQL: whether a DECIMAL has an exponent of more than three digits. ``text``: SQL of the JSON text."""
    every: tuple[list[str | None], ...] = ([name for name, _ in decimals], [None])
    named, of_any = (literal(_before(names, permissive=permissive) + _HUGE) for names in every)
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
    patterns = [literal(rf'{before}"?({_NUMBER}){_ENDS}') for before in (_before(names), _before([None]))]
    numbers = [f"regexp_extract_all({text}, {pattern}, 1)" for pattern in patterns]
    chosen = f"IF({_has_escaped_name(text)}, {numbers[1]}, {numbers[0]})"
    return f"exists({chosen}, _n -> {digits_after_point('_n')} > {digits})"


def may_be_no_number(text: str, kept: int, *, permissive: bool) -> str:
    """SQL: whether a JSON text may have a string that Spark takes for a number, and that isn't written as JSON writes
    one. Permissive: or a number with more than ``kept`` digits after the point, whose field has no quotes."""
    quote, other = ("[\"']", "[^\"'\\s]") if permissive else ('"', r'[^"\s]')
    # After a comma at the end of a string there is another string, or a blank.
    found = rf"{quote}(?:[+]|{_OF_NUMBERS}*+(?:\\|[\p{{Nd}}&&[^0-9]]|,{other})|{_OF_NUMBERS}++,)"
    long = rf"|\.[0-9]{{{kept + 1},}}|[0-9][eE]-[0-9]" if permissive else ""
    return f"{text} RLIKE {literal(found + long)}"


def is_number(text: str, kept: int) -> str:
    """SQL: whether this text is a number, with no more digits after the point than the parser keeps."""
    return f"({text} RLIKE {literal(_WHOLE)} AND {digits_after_point(text)} <= {kept})"


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


def _before(names: Iterable[str | None], *, permissive: bool = False) -> str:
    """A pattern for what stands before the numbers of these fields. None: of any."""
    known = list(names)
    blanks = rf"(?s:[ \t\r\n]{_COMMENTS})*+" if permissive else r"[ \t\r\n]*"
    if None in known:
        return rf"{_ANY}{blanks}"
    quoted = (json.dumps(name, ensure_ascii=False) for name in known)
    each = "|".join(re.escape(name[1:-1] if permissive else name) for name in quoted)
    return rf"(?iu:{each})[\"']?{blanks}:{blanks}" if permissive else rf"(?iu:{each}){blanks}:{blanks}"
