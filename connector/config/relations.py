"""What SQL reads beside the columns of a record: tables, views and table-valued functions, found without Spark.

In doubt a word counts as a table: a transform that is refused can be written otherwise, and one that reads a table in
silence gives other rows when an epoch is read again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from connector.config.transform_sql import QUOTED

_TOKEN = re.compile(rf"{QUOTED.pattern}|\w+|\S", re.DOTALL)
_GENERATORS = frozenset(
    (
        "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple",
        "range", "variant_explode", "variant_explode_outer",
    )
)  # fmt: skip
"""Functions that make rows of their arguments alone."""
_TAKE_FROM = frozenset(("EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY"))
"""Functions with a FROM among their arguments."""
_NO_NAMES = frozenset(
    (
        "AND", "AS", "ASC", "BETWEEN", "DESC", "ELSE", "END", "FROM", "ILIKE", "IN", "IS", "LIKE", "NOT", "ON", "OR",
        "RLIKE", "SELECT", "TABLE", "THEN", "USING", "WHEN", "WHERE", "WITH",
    )
)  # fmt: skip
"""Words that follow a column, such as one that is called ``from``. Nobody calls a table so."""
_CONSTANTS = frozenset(("NULL", "TRUE", "FALSE"))


@dataclass
class _Level:
    """What is between two parentheses."""

    call: str = ""
    """The word before the parenthesis."""
    reads: bool = False
    """Whether a relation comes next."""
    lists: bool = False
    """Whether one comes behind each comma."""
    inline: bool = False
    """Whether these are the rows of an inline table, VALUES."""


def relations(sql: str) -> list[str]:
    """The relations that SQL reads, as it names them, but without backquotes. A function has ``()`` behind its name;
    one that makes rows of its arguments alone is left out, and so are inline tables."""
    tokens = [token for token in _TOKEN.findall(sql) if not token.startswith(("--", "/*"))]
    return list(_found(tokens))


def _found(tokens: Sequence[str]) -> Iterator[str]:
    levels, at = [_Level()], 0
    while at < len(tokens):
        level, token, before = levels[-1], tokens[at], tokens[at - 1] if at else ""
        word, after = token.upper(), [*tokens[at + 1 : at + 3], "", ""]
        reads, level.reads = level.reads, False
        at += 1
        level.lists |= reads and (token == "(" or _is_name(token))
        if token == "(":
            levels.append(_Level(before.upper(), reads=reads))
        elif token == ")":
            del levels[max(1, len(levels) - 1) :]
        elif token == ",":
            level.reads = level.lists and not level.inline
        elif reads and word == "LATERAL":
            level.reads = True
        elif reads and word == "VALUES" and _begins_rows(after):
            level.inline = True
        elif reads and _is_name(token):
            name, at = _name(tokens, at - 1)
            if tokens[at : at + 1] != ["("]:
                yield name
            elif name.lower() not in _GENERATORS:
                yield f"{name}()"
        elif before != ".":
            _keyword(level, word, before.upper(), after[0])


def _keyword(level: _Level, word: str, before: str, after: str) -> None:
    """Note what a word says of what follows."""
    if level.inline and before not in (",", "VALUES") and re.match(r"[^\W\d]", word):
        level.inline = False  # the alias behind its rows
    if word == "SELECT":
        level.call, level.lists = "", False
    elif word == "JOIN" or (word == "FROM" and level.call not in _TAKE_FROM):
        level.reads = True
    elif word == "TABLE":
        level.reads = after == "(" or _is_name(after)
    elif (
        word == "WHERE"
        or (word == "VIEW" and before == "LATERAL")
        or (word == "BY" and before in ("ORDER", "SORT", "CLUSTER", "DISTRIBUTE"))
    ):
        level.lists = False


def _begins_rows(after: Sequence[str]) -> bool:
    """Whether what follows the word VALUES is a row, rather than the alias of a table of this name."""
    first, second = after[:2]
    word = re.match(r"[^\W\d]|`", first) is not None
    return bool(first) and (not word or first.upper() in _CONSTANTS or second[:1] in ("(", "'", '"'))


def _is_name(token: str) -> bool:
    """Whether a token may begin the name of a table. A text in double quotes is one with a setting of Spark's."""
    return token[:1] in ("`", '"') or (
        re.fullmatch(r"\w*[^\W\d]\w*", token) is not None and token.upper() not in _NO_NAMES
    )


def _name(tokens: Sequence[str], at: int) -> tuple[str, int]:
    """A name of one or several parts, and what comes behind it."""
    parts = [tokens[at]]
    while tokens[at + 1 : at + 2] == ["."] and at + 2 < len(tokens):
        at += 2
        parts.append(tokens[at])
    return ".".join(part[1:-1] if part[0] in '`"' else part for part in parts), at + 1
