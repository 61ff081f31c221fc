"""What Spark's JSON parser does to a DECIMAL without a word, found in the text of the number.

It rounds a number to 38 digits. Where a number of the text may have more, the text is parsed again with its numbers as
text, and each DECIMAL is judged by its own: see ``json_lossless``. So are strings. Of one it leaves out commas, and
reads ``"1,50"`` as 150. It takes a plus sign and the digits of every script, too.

It writes out the digits of a number with a large exponent, which may take minutes. So such a number is found before the
text is parsed, by the name of its field: ``"amount" : 1e9999``. No JSON string can look like that, because its quotes
are escaped. In an ARRAY it is one after a bracket or a comma. In a MAP, or if a name has escapes, every number of the
text counts. So a record with such a number in another field may be refused too.

Permissive JSON may have comments, and names without quotes that look like numbers. There a number that would be rounded
is found by the name of its field, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from enum import Enum

from sinks.spark.sql import literal


class Inside(Enum):
    """A DECIMAL without a name: a pattern for what stands before it."""

    ARRAY = r"[,\[]"
    MAP = ":"


Name = str | Inside
Decimals = Iterable[tuple[Name, int]]
"""The names of fields, and how many digits after the point the parser keeps. See ``json_lossless.Exact``."""

_NUMBER = r"-?[0-9.]+(?:[eE][+-]?[0-9]+)?"
_ENDS = r"(?=[\"',}\] \t\r\n/])"
"""After a number: an ID such as 1234567e-8901-... is none."""
_ESCAPE = r"\\u[0-9a-fA-F]{4}"
_OF_STRING = rf"[\"'](?:[\p{{Nd}}.,+-]|{_ESCAPE})+(?:[eE]|\\u00[46]5)[+-]?(?:[\p{{Nd}},]|{_ESCAPE}){{4,}}"
_HUGE = rf"(?:-?[0-9.]+[eE][+-]?[0-9]{{4,}}|{_OF_STRING}){_ENDS}"
_OF_NUMBERS = "[0-9.eE+-]"
_WHOLE = r"^[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]{1,3})?$"
_COMMENTS = r"|/\*.*?\*/|//[^\n]*+\n"
_BACKSLASH = "\\"
_ESCAPED_NAME = r"\\[u/](?:[^\"\\]|\\.)*+\"[ \t\r\n]*+:"


def huge(text: str, decimals: Decimals, *, permissive: bool = False) -> str:
    """SQL: whether a DECIMAL has an exponent of more than three digits. ``text``: SQL of the JSON text."""
    every: tuple[list[Name], ...] = ([name for name, _ in decimals], [*Inside])
    named, of_any = (literal(_before(names, permissive=permissive) + _HUGE) for names in every)
    return f"{text} RLIKE {named} OR {_has_escaped_name(text)} AND {text} RLIKE {of_any}"


def rounded(text: str, decimals: Decimals) -> str:
    """SQL: whether a DECIMAL has more digits after the point than the parser keeps. ``text``: SQL of the JSON text."""
    kept: dict[int, list[Name]] = {}
    for name, digits in decimals:
        kept.setdefault(digits, []).append(name)
    # Nearly always there is nothing to look at: long fractions and negative exponents are rare.
    suspicious = _long(min(kept))
    found = " OR ".join(_rounded(text, names, digits) for digits, names in sorted(kept.items()))
    return f"{text} RLIKE {literal(suspicious)} AND ({found})"


def _long(kept: int) -> str:
    """A pattern for a number that may have more than ``kept`` digits after the point."""
    return rf"\.[0-9]{{{kept + 1},}}|[0-9.][eE]-[0-9]"


def _rounded(text: str, names: Iterable[Name], digits: int) -> str:
    patterns = [literal(rf'{before}"?({_NUMBER}){_ENDS}') for before in (_before(names), _before(Inside))]
    numbers = [f"regexp_extract_all({text}, {pattern}, 1)" for pattern in patterns]
    chosen = f"IF({_has_escaped_name(text)}, {numbers[1]}, {numbers[0]})"
    return f"exists({chosen}, _n -> {digits_after_point('_n')} > {digits})"


def may_be_no_number(text: str, kept: int, *, permissive: bool) -> str:
    """SQL: whether a JSON text may have a number with more than ``kept`` digits after the point, or a string that Spark
    takes for a number and that isn't written as JSON writes one."""
    quote, other = ("[\"']", "[^\"'\\s]") if permissive else ('"', r'[^"\s]')
    # After a comma at the end of a string there is another string, or a blank.
    found = rf"{quote}(?:[+]|{_OF_NUMBERS}*+(?:\\|[\p{{Nd}}&&[^0-9]]|,{other})|{_OF_NUMBERS}++,)"
    return f"{text} RLIKE {literal(f'{found}|{_long(kept)}')}"


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


def _before(names: Iterable[Name], *, permissive: bool = False) -> str:
    """A pattern for what stands before the numbers of these fields."""
    known = list(names)
    blanks = rf"(?s:[ \t\r\n]{_COMMENTS})*+" if permissive else r"[ \t\r\n]*"
    either = [place.value for place in Inside if place in known]
    quoted = [json.dumps(name, ensure_ascii=False) for name in known if isinstance(name, str)]
    if quoted:
        each = "|".join(re.escape(name[1:-1] if permissive else name) for name in quoted)
        end = "[\"']?" if permissive else ""
        either.append(rf"(?iu:{each}){end}{blanks}:")
    return rf"(?:{'|'.join(either)}){blanks}"
