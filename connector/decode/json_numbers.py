"""What Spark's JSON parser does to a number without a word, found in the number's own text.

Of ``1.50`` it makes ``1.5`` in a STRING, of ``1E400`` ``"Infinity"``, of ``1E-400`` 0.0 in a DOUBLE, and of a number
of 40 digits a DOUBLE in a VARIANT. Where this may have happened, the text is parsed a second time, with its numbers in
quotes and types of STRING. Such records are rare, and a look at the parsed values finds them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from sinks.spark.sql import literal

_MARK = f"number_{secrets.token_hex(8)}:"
"""Stands before a number in quotes. No record can contain it."""
_QUOTED = f'$1"{_MARK}$2"'
_MARKED = f'"?{_MARK}([^"]*)"?'
_BLANKS = r"[ \t\r\n]*+"
_NUMBER = r"-?[0-9][0-9.eE+-]*+"
_STRING = r'"(?:[^"\\]|\\.)*+"'
_BEFORE_NUMBERS = rf'\G((?:{_STRING}|[^"0-9-])*+)({_NUMBER})'
_WORD = r"[\w$@#*+\-\x{80}-\x{10ffff}]"
_BEFORE_NUMBERS_PERMISSIVE = (
    rf"(?s)\G((?:{_STRING}|'(?:[^'\\]|\\.)*+'|/\*.*?\*/|//[^\r\n]*+|[^\"'/\w$@#*+\-\x{{80}}-\x{{10ffff}}]"
    rf"|{_WORD}++(?={_BLANKS}:)|[A-Za-z_$@#*+\x{{80}}-\x{{10ffff}}]{_WORD}*+)*+)({_NUMBER})"
)
"""As ``_BEFORE_NUMBERS``, beside comments, single quotes, and names without quotes, which may look like numbers."""
_VALUE = rf"[:,\[]{_BLANKS}"
_NOT_ZERO = r"-?[0.]*[1-9]"
_DIGITS_OF_A_DOUBLE = 17
_DIGITS_OF_A_DECIMAL = 38

TEXT = "<text>"
"""Stands for the SQL of the JSON text in a ``Doubt``."""
Doubt = tuple[str, Callable[[str], str]]
"""SQL of the JSON text ``TEXT``, and of a parsed value. If both are true, the parser may have changed the value."""


def in_quotes(text: str, *, permissive: bool) -> str:
    """SQL of the JSON text with every number in quotes, and marked. ``text``: SQL of the JSON text."""
    pattern = _BEFORE_NUMBERS_PERMISSIVE if permissive else _BEFORE_NUMBERS
    return f"regexp_replace({text}, {literal(pattern)}, {literal(_QUOTED)})"


def without_marks(found: str) -> str:
    """SQL of what the JSON text had: the number, or an object or array with its numbers. Null if there is no text."""
    return f"regexp_replace({found}, {literal(_MARKED)}, '$1')"


def doubt_of_string(*, binary: bool, permissive: bool) -> Doubt:
    """A STRING may have been a number with a fraction or an exponent, -0, or an object with such a number.

    ``binary``: strings of this type are compared byte by byte.
    """
    if not binary or permissive:
        return f"{TEXT} RLIKE '[0-9]'", lambda parsed: f"{parsed} IS NOT NULL"
    changed = literal(r'^(?:-?[0-9]+[.]|0$|"-?Infinity"$)')

    def asked(parsed: str) -> str:
        # Most strings begin with a letter, or have no point, so that a comparison of bytes says no.
        like_a_number = f"(contains({parsed}, '.') OR {parsed} = '0' OR startswith({parsed}, '\"'))"
        number = f"{parsed} < ':' AND {like_a_number} AND {parsed} RLIKE {changed}"
        return f"({number} OR startswith({parsed}, '{{') OR startswith({parsed}, '['))"

    return f"{TEXT} RLIKE {literal(rf'{_VALUE}(?:-0|-?[0-9]++[.eE])')}", asked


def doubt_of_floating(value: Callable[[str], str]) -> Doubt:
    """A zero may have been a very small number. ``value``: SQL of the number from SQL of what was parsed."""
    small = " OR ".join(f"contains({TEXT}, '{each}')" for each in ("e-", "E-", "0" * 30))
    return f"({small})", lambda parsed: f"{value(parsed)} = 0"


def became_zero(value: str, found: str) -> str:
    """SQL: whether ``value`` is zero, and the number's text isn't. Null, or false, if there is no text."""
    return f"({value} = 0 AND {without_marks(found)} RLIKE {literal(f'^{_NOT_ZERO}')})"


def doubt_of_variant(*, permissive: bool) -> Doubt:
    """A VARIANT holds a number with an exponent, or with more digits than a DECIMAL, as a DOUBLE."""
    before = "" if permissive else f"{_VALUE}-?"
    pattern = literal(rf"{before}(?:[0-9.]++[eE]|[0-9.]{{{_DIGITS_OF_A_DECIMAL}}})")
    return f"{TEXT} RLIKE {pattern}", lambda parsed: f"{parsed} IS NOT NULL"


def fit_variant(found: str) -> str:
    """SQL: whether a VARIANT keeps all numbers of this JSON text. Null if there is no text.

    It keeps 38 digits of a number without an exponent. Of any other it keeps 17, and its size has to be a DOUBLE's.
    """
    numbers = f"regexp_extract_all({found}, {literal(_MARKED)}, 1)"
    digits = f"replace(regexp_extract(_n, {literal('^-?([0-9.]+)')}, 1), '.', '')"
    fraction = f"length(regexp_extract(_n, {literal('[.]([0-9]+)')}, 1))"
    without_zeros = f"trim(BOTH '0' FROM {digits})"
    decimal = (
        f"NOT _n RLIKE '[eE]' AND length(trim(LEADING '0' FROM {digits})) <= {_DIGITS_OF_A_DECIMAL} "
        f"AND {fraction} <= {_DIGITS_OF_A_DECIMAL}"
    )
    double = "try_cast(_n AS DOUBLE)"
    finite = f"abs({double}) < DOUBLE('Infinity') AND ({double} <> 0 OR {without_zeros} = '')"
    return f"forall({numbers}, _n -> {decimal} OR length({without_zeros}) <= {_DIGITS_OF_A_DOUBLE} AND {finite})"
