"""The user's SQL, as far as it can be checked without Spark."""

from __future__ import annotations

import re

QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)

_NO_COLUMN = re.compile(
    r"\bINTERVAL\b(?:\s*[-+]?(?:''|\d+)\s*\w+)+"  # with its units
    r"|(?:\bAS\s|::|\bEXTRACT\s*\()\s*\w+"  # a type, a new name, a part of a time
    r"|\b\w+(?=\s*(?:\(|''))",  # a function, or the type of a text: DATE '2026-11-01'
    re.IGNORECASE,
)


def column_words(sql: str) -> set[str]:
    """The words of SQL that may be columns."""
    return {*re.findall(r"\w+", _plain(sql)), *_in_backquotes(sql)}


def columns_in(expression: str) -> set[str]:
    """The words of an expression that may be columns. A word isn't, where only SQL's own can stand."""
    plain = _NO_COLUMN.sub(" ", _plain(expression))
    words = re.findall(r"\w+", plain)
    small = [word.lower() for word in words]
    if small.count("end") == small.count("case"):  # each END is that of a CASE
        words = [word for word in words if word.lower() != "end"]
    return {*words, *_in_backquotes(expression)}


def _plain(sql: str) -> str:
    """Without what is quoted, and without comments: '' is a text."""
    return QUOTED.sub(lambda found: " '' " if found[0][0] in "'\"" else " ` " if found[0][0] == "`" else " ", sql)


def _in_backquotes(sql: str) -> list[str]:
    return [found[1:-1].replace("``", "`") for found in QUOTED.findall(sql) if found[0] == "`"]


def condition_names(sql: str, column: str, value: str | None = None) -> bool:
    """Whether a SELECT has a condition, WHERE, that names a column, and a text beside it."""
    plain = QUOTED.sub(lambda found: " " if found[0].startswith(("--", "/*")) else found[0], sql)
    where = re.search(r"\bWHERE\b", QUOTED.sub(lambda found: " " * len(found[0]), plain), re.IGNORECASE)
    condition = plain[where.end() :] if where is not None else ""
    texts = [found[1:-1] for found in QUOTED.findall(condition) if found[0] in "'\""]
    return column in {word.lower() for word in column_words(condition)} and (value is None or value in texts)
