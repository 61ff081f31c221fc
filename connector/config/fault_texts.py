"""What to write instead of a wrong value, and the value that was found."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import date, timedelta
from typing import Any

from connector.config.marks import Path
from connector.config.nearest import did_you_mean
from connector.config.secret_places import may_hold_secret
from sinks.plurals import plural

_LONGEST = 60
_LIMITS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
    "list": "a list",
    "dict": "options, as in {name: value}",
    "mapping": "options, as in {name: value}",
    "model": "options, as in {name: value}",
    "is": "text",
    "datetime": "a time with its zone, as in 2026-11-01T00:00:00Z",
    "timezone": "a time with its zone, as in 2026-11-01T00:00:00Z",
}
"""What to write, by the first word of pydantic's type of a fault."""
_DAYS = re.compile(r"datetime\.timedelta\(days=(\d+)\)")
_PATTERNS = {
    "states": "module:Class, as in my_package.states:Median",
    "sink": "module:Class, as in my_package.sinks:Elsewhere",
    "name": "letters, digits and _ . : / - only",
}
"""What to write, by the option that has to match a pattern."""


def wish(fault: Mapping[str, Any], path: Path) -> str:
    """What is wrong with the value of the option at ``path``, and what to write, from pydantic's account of it."""
    kind, value, context = str(fault["type"]), fault.get("input"), fault.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if kind in ("too_short", "string_too_short"):
        return "is empty"
    if kind == "string_pattern_mismatch" and (len(path) == 1 or path[-1] == "part"):
        return f"may only have lower-case letters, digits, _ and -{found(path, value)}"
    if kind == "string_pattern_mismatch":
        option = next(part for part in reversed(path) if part in _PATTERNS)
        return f"write {_PATTERNS[str(option)]}{found(path, value)}"
    if kind == "literal_error":
        words = [word.strip("'") for word in str(context["expected"]).replace(" or ", ", ").split(", ")]
        return f"is {one_of(words)}{found(path, value, words)}"
    if kind == "string_too_long":
        return f"has {plural(len(str(value)), 'letter')}, and at most {context['max_length']} fit"
    if kind in _LIMITS:
        limit, says = _LIMITS[kind]
        return f"write {says} {_limit(context[limit])}{found(path, value)}"
    message = str(fault["msg"]).removeprefix("Value error, ")
    if kind == "value_error":
        scalar = isinstance(value, str | int | float)
        asks = message.startswith(("write a number and a unit", "a topic's name", "write a bucket"))
        return message + (found(path, value) if asks and scalar else "")
    wanted = _KINDS.get(kind.split("_")[0])
    if fault.get("example"):
        wanted = f"options, as in {{{', '.join(f'{name}: ...' for name in fault['example'])}}}"
    return f"write {wanted}{found(path, value)}" if wanted else f"{message}{found(path, value)}"


def one_of(words: list[str]) -> str:
    """``one of hard or soft``; a single word alone."""
    return words[0] if len(words) == 1 else f"one of {', '.join(words[:-1])} or {words[-1]}"


def found(path: Path, value: object, known: Iterable[object] = ()) -> str:
    """``, not 'xml'; did you mean ...?`` for a value that may be shown."""
    if may_hold_secret(path):
        return ""
    return f", not {shown(value)}{did_you_mean(value, known)}"


def shown(value: object) -> str:
    """A value as the file has it, if it is short."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "options"
    if isinstance(value, Collection) and not isinstance(value, str | bytes):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | date):
        return str(value)
    text = str(value)
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


def _limit(value: object) -> str:
    """A limit as pydantic gives it: a length of time as the text of a timedelta."""
    days = _DAYS.fullmatch(str(value))
    if days is not None:
        return plural(int(days[1]), "day")
    return "0 seconds" if str(value) == repr(timedelta(0)) else str(value).removesuffix(".0")
