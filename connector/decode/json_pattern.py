"""The regular expressions of JSON Schema, which are those of JavaScript, in the words of Java's. Pure: without Spark.

Every class of characters is written out as its ranges, so that nothing depends on what a library takes for a digit, a
space or the end of a line. What the libraries may read differently is refused.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

Ranges: TypeAlias = Sequence[tuple[int, int]]

_LAST = sys.maxunicode
_DIGIT: Ranges = [(48, 57)]
_WORD: Ranges = [(48, 57), (65, 90), (95, 95), (97, 122)]
_SPACE: Ranges = [
    (0x9, 0xD), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
    (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
]  # fmt: skip
_LINE_ENDS: Ranges = [(0xA, 0xA), (0xD, 0xD), (0x2028, 0x2029)]
_CLASSES = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_SYNTAX = "^$\\.*+?()[]{}|/-"
_COUNT = re.compile(r"\{(\d{1,4})(,(\d{0,4}))?\}", re.ASCII)
_CATEGORY = re.compile(r"\{(?:(?:gc|General_Category)=)?([A-Z][a-z]?)\}")


class Unreadable(Exception):
    """What a pattern has that isn't taken, as in "it has a back reference"."""


def java_pattern(text: str) -> str:
    """The pattern as Java writes it. Raises Unreadable."""
    return _Reader(text, "\\x{{{:x}}}").read()


class _Reader:
    def __init__(self, text: str, escape: str) -> None:
        """``escape``: how a character is written by its number."""
        self._text, self._at = text, 0
        self._escape = escape

    def read(self) -> str:
        found = self._choices()
        if self._at < len(self._text):
            raise Unreadable("it closes a group that it hasn't opened")
        return found

    def _next(self, most: int = 1) -> str:
        found = self._text[self._at : self._at + most]
        self._at += len(found)
        return found

    def _takes(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _choices(self) -> str:
        out = []
        while self._at < len(self._text) and self._text[self._at] != ")":
            out.append("|" if self._takes("|") else self._term())
        return "".join(out)

    def _term(self) -> str:
        for taken, written in (("^", r"\A"), ("$", self._end), (r"\b", self._edge("?=", "?!")),
                               (r"\B", self._edge("?!", "?="))):  # fmt: skip
            if self._takes(taken):
                return self._once(written)
        if self._takes("("):
            return self._group()
        if self._takes("["):
            atom = self._set(self._members())
        elif self._takes("."):
            atom = self._set(_others(_LINE_ENDS))
        elif self._takes("\\"):
            atom = self._set(self._escaped(within=False))
        elif self._text[self._at] in "*+?" or self._count() is not None:
            raise Unreadable("it repeats nothing")
        else:
            atom = self._set([(ord(self._text[self._at]),) * 2])
            self._at += 1
        return self._repeated(atom)

    @property
    def _end(self) -> str:
        return r"\z" if self._escape.startswith("\\x") else r"\Z"

    def _edge(self, word: str, other: str) -> str:
        """The edge of a word, or with the arguments swapped where there is none."""
        one = self._set(_WORD)
        return f"(?:(?<={one})({other}{one})|(?<!{one})({word}{one}))"

    def _group(self) -> str:
        is_look = self._takes("?=") or self._takes("?!")
        look = self._text[self._at - 2 : self._at] if is_look else "?:"
        if not is_look and self._takes("?") and not self._takes(":"):
            raise Unreadable("it has a group that isn't (...), (?:...), (?=...) or (?!...)")
        inner = self._choices()
        if not self._takes(")"):
            raise Unreadable("it doesn't close a group")
        found = f"({look}{inner})"
        return self._once(found) if is_look else self._repeated(found)

    def _once(self, atom: str) -> str:
        if self._at < len(self._text) and (self._text[self._at] in "*+?" or self._count() is not None):
            raise Unreadable("it repeats a place, not a character")
        return atom

    def _count(self) -> re.Match[str] | None:
        return _COUNT.match(self._text, self._at)

    def _repeated(self, atom: str) -> str:
        count = self._count()
        if count is not None:
            self._at = count.end()
            low, high = int(count[1]), int(count[3]) if count[3] else None
            if high is not None and high < low:
                raise Unreadable("a count ends before it begins")
            atom += count[0]
        elif self._at < len(self._text) and self._text[self._at] in "*+?":
            atom += self._next()
        else:
            return atom
        self._takes("?")  # takes as little as it can: whether anything matches is the same
        return self._once(atom)

    def _members(self) -> Ranges:
        negated, found = self._takes("^"), list[tuple[int, int]]()
        while not self._takes("]"):
            first = self._member()
            last = None
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                last = self._member()
            if last is None:
                found += first
                continue
            if any(len(each) != 1 or each[0][0] != each[0][1] for each in (first, last)) or last[0] < first[0]:
                raise Unreadable("a range doesn't go from one character up to another")
            found.append((first[0][0], last[0][0]))
        return _others(found) if negated else found

    def _member(self) -> Ranges:
        if self._at >= len(self._text):
            raise Unreadable("it doesn't close a class of characters")
        if self._takes("\\"):
            return self._escaped(within=True)
        return [(ord(self._next()),) * 2]

    def _escaped(self, *, within: bool) -> Ranges:
        """The characters of an escape, of which the backslash has been read."""
        sign = self._next()
        if sign.lower() in _CLASSES and sign:
            known = _CLASSES[sign.lower()]
            return known if sign.islower() else _others(known)
        if sign in ("p", "P"):
            category = _CATEGORY.match(self._text, self._at)
            if category is None:
                raise Unreadable("of \\p{...} only the general categories are taken, as in \\p{L}")
            self._at = category.end()
            known = _category(category[1])
            if not known:
                raise Unreadable(f"there is no category {category[1]}")
            return known if sign == "p" else _others(known)
        return [(self._character(sign, within=within),) * 2]

    def _character(self, sign: str, *, within: bool) -> int:
        if sign in _CONTROLS:
            return _CONTROLS[sign]
        if sign == "0" and not self._text[self._at : self._at + 1].isdigit():
            return 0
        if sign == "b" and within:
            return 8
        if sign == "c" and re.match("[A-Za-z]", self._text[self._at : self._at + 1]):
            return ord(self._next()) % 32
        if sign == "x":
            return self._number(2)
        if sign == "u" and self._takes("{"):
            end = self._text.find("}", self._at)
            number = self._number(end - self._at) if end > self._at else _LAST + 1
            self._at += 1
            if number > _LAST:
                raise Unreadable("\\u{...} isn't the number of a character")
            return number
        if sign == "u":
            high = self._number(4)
            if 0xD800 <= high < 0xDC00 and self._takes("\\u"):
                low = self._number(4)
                if 0xDC00 <= low < 0xE000:
                    return 0x10000 + ((high - 0xD800) << 10) + low - 0xDC00
            if 0xD800 <= high < 0xE000:
                raise Unreadable("it has half of a character")
            return high
        if sign and sign in _SYNTAX:
            return ord(sign)
        raise Unreadable(f"it has \\{sign}, which isn't an escape that is taken")

    def _number(self, digits: int) -> int:
        found = self._next(digits)
        if len(found) < digits or not re.fullmatch("[0-9A-Fa-f]{1,6}", found):
            raise Unreadable("an escape lacks its hexadecimal digits")
        return int(found, 16)

    def _set(self, ranges: Ranges) -> str:
        if not ranges:
            return "(?!)"
        write: Callable[[int], str] = self._escape.format
        return f"[{''.join(f'{write(low)}-{write(high)}' for low, high in ranges)}]"


def _others(ranges: Ranges) -> Ranges:
    """All other characters."""
    found, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            found.append((start, low - 1))
        start = max(start, high + 1)
    return [*found, (start, _LAST)] if start <= _LAST else found


@cache
def _category(name: str) -> Ranges:
    """The characters of a general category, as this Python's Unicode has them."""
    found: list[tuple[int, int]] = []
    for number in range(_LAST + 1):
        if unicodedata.category(chr(number)).startswith(name):
            if found and found[-1][1] == number - 1:
                found[-1] = (found[-1][0], number)
            else:
                found.append((number, number))
    return found
