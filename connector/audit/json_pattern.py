"""The regular expressions of JSON Schema, which are JavaScript's, in the words of Python's, as the auditor reads them.

Python's ``re`` with its flag for ASCII takes ``\\b`` as JavaScript does. A class of characters becomes a choice of its
members, and so do ``\\d`` and ``\\w``: Python forgets the flag for a class that a pattern begins with. What
docs/sources.md doesn't list isn't taken.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache

_SPACES = "\\t-\\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_MEMBERS = {"s": _SPACES, "d": "0-9", "w": "A-Za-z0-9_"}
_CLASSES = {sign: f"[{each}]" for sign, each in _MEMBERS.items()} | {
    sign.upper(): f"[^{each}]" for sign, each in _MEMBERS.items()
}
_TOKEN = re.compile(
    r"""
      (?P<quantifier> (?: [*+?] | \{ \d{1,4} (?: , \d{0,4} )? \} ) )
    | (?P<open> \( (?: \?[:=!] )? (?!\?) ) | (?P<close> \) ) | (?P<choice> \| ) | (?P<place> \^ | \$ | \\[bB] )
    | (?P<any> \. ) | (?P<class> \[ ) | (?P<escape> \\ ) | (?P<bad> \( ) | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)  # fmt: skip
_ESCAPE = re.compile(
    r"""
      (?P<known> [dDsSwW] ) | (?P<no>[pP]) \{ (?: (?:gc|General_Category) = )? (?P<category> [A-Z][a-z]? ) \}
    | (?P<control> [tnvfr] ) | c (?P<letter> [A-Za-z] ) | 0 (?! \d ) (?P<nul> )
    | u (?P<high> [dD][89abAB][0-9a-fA-F]{2} ) \\u (?P<low> [dD][c-fC-F][0-9a-fA-F]{2} )
    | (?: x (?P<two> [0-9a-fA-F]{2} ) | u (?P<four> (?! [dD][89a-fA-F] ) [0-9a-fA-F]{4} )
        | u \{ (?P<any> [0-9a-fA-F]{1,6} ) \} )
    | (?P<sign> [\^$\\.*+?()\[\]{}|/-] )
    """,
    re.VERBOSE,
)


class Unreadable(Exception):
    """A pattern isn't taken."""


def python_pattern(text: str) -> str:
    """The pattern for ``re.search``. Raises Unreadable."""
    out, at, groups, repeatable = ["(?a:"], 0, list[bool](), False
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token is not None
        kind, at = token.lastgroup, token.end()
        if kind == "quantifier":
            if not repeatable or not _rises(token[0]):
                raise Unreadable(text)
            out.append(token[0])
            at += text.startswith("?", at)
            repeatable = False
        elif kind == "open":
            groups.append(token[0] in ("(?=", "(?!"))
            out.append("(?:" if token[0] == "(" else token[0])
            repeatable = False
        elif kind == "close":
            if not groups:
                raise Unreadable(text)
            out.append(")")
            repeatable = not groups.pop()
        elif kind == "bad":
            raise Unreadable(text)
        elif kind in ("choice", "place"):
            # Python takes the empty text for no place between.
            out.append({"^": r"\A", "$": r"\Z", r"\B": r"(?!\b)"}.get(token[0], token[0]))
            repeatable = False
        else:
            repeatable = True
            if kind == "class":
                made, at = _class(text, at)
            elif kind == "escape":
                made, at = _escape(text, at)
            else:
                made = r"[^\n\r\u2028\u2029]" if kind == "any" else re.escape(token[0])
            out.append(made)
    if groups:
        raise Unreadable(text)
    return "".join(out) + ")"


def _rises(quantifier: str) -> bool:
    low, _, high = quantifier.strip("{}").partition(",")
    return not high or int(low) <= int(high)


def _class(text: str, at: int) -> tuple[str, int]:
    """The class of which the bracket has been read, and where it ends."""
    negated = text.startswith("^", at)
    at += negated
    members = []
    while not text.startswith("]", at):
        first, at = _member(text, at)
        if text.startswith("-", at) and not text.startswith("-]", at):
            last, at = _member(text, at + 1)
            low, high = _single(first), _single(last)
            if high < low:
                raise Unreadable(text)
            first = f"[\\U{low:08x}-\\U{high:08x}]"
        members.append(first)
    union = f"(?:{'|'.join(members)})" if members else "(?!)"
    return (f"(?:(?!{union})(?s:.))" if negated else union), at + 1


def _member(text: str, at: int) -> tuple[str, int]:
    if at >= len(text):
        raise Unreadable(text)
    if text.startswith("\\b", at):
        return "\\x08", at + 2
    return _escape(text, at + 1) if text[at] == "\\" else (re.escape(text[at]), at + 1)


def _single(made: str) -> int:
    """The number of the only character that this matches."""
    if made in _CLASSES.values() or made.startswith(("[", "(")):
        raise Unreadable(made)
    if re.fullmatch(r"\\U[0-9a-f]{8}|\\x[0-9a-f]{2}", made):
        return int(made[2:], 16)
    return ord(made[-1])


def _escape(text: str, at: int) -> tuple[str, int]:
    """The escape of which the backslash has been read, and where it ends."""
    found = _ESCAPE.match(text, at)
    if found is None:
        raise Unreadable(text)
    given = {name: value for name, value in found.groupdict().items() if value is not None}
    if "known" in given:
        made = _CLASSES[given["known"]]
    elif "category" in given:
        made = _category(given["category"], given["no"] == "P")
    else:
        made = f"\\U{_number(given):08x}"
    return made, found.end()


def _number(given: dict[str, str]) -> int:
    if "low" in given:
        return 0x10000 + ((int(given["high"], 16) & 0x3FF) << 10) + (int(given["low"], 16) & 0x3FF)
    if "control" in given:
        return {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}[given["control"]]
    if "letter" in given:
        return ord(given["letter"]) % 32
    if "sign" in given:
        return ord(given["sign"])
    digits = given.get("two") or given.get("four") or given.get("any") or "0"
    if int(digits, 16) > sys.maxunicode:
        raise Unreadable(digits)
    return int(digits, 16)


@cache
def _category(name: str, negated: bool) -> str:
    """A class of all characters of a general category, or of all others."""
    every = [n for n in range(sys.maxunicode + 1) if unicodedata.category(chr(n)).startswith(name)]
    if not every:
        raise Unreadable(name)
    edges = [each for each in every if not unicodedata.category(chr(max(each - 1, 0))).startswith(name) or not each]
    ends = [n for n in every if n == sys.maxunicode or not unicodedata.category(chr(n + 1)).startswith(name)]
    ranges = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in zip(edges, ends, strict=True))
    return f"[{'^' if negated else ''}{ranges}]"
