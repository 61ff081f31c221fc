"""SQL text over several lines, for people who read a statement in a golden file, in a log or in Spark's UI.

Line breaks mean nothing to Spark. What is short stays on one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_WIDTH = 100
"""Characters of a line that isn't broken."""
_INDENT = "  "
_LINE_END = re.compile(r"`(?:[^`]|``)*`|'[^']*'|\"[^\"]*\"|(\n)")
"""A quoted name or text as a whole, or the end of a line outside of both."""


def indented(sql: str) -> str:
    """The SQL with each line moved two spaces to the right. Line ends within quotes stay as they are."""
    return _INDENT + _LINE_END.sub(lambda match: match[0] + (_INDENT if match[1] else ""), sql)


def listed(parts: Iterable[str]) -> str:
    """The parts with commas between them: on one line if that is short, else a line for each."""
    return _joined(list(parts), ", ", ",\n")


def any_of(conditions: Iterable[str]) -> str:
    """SQL that is true if one of the conditions is. The caller puts a condition in parentheses where it needs them."""
    return _joined(list(conditions), " OR ", "\nOR ")


def all_of(conditions: Iterable[str]) -> str:
    """SQL that is true if all conditions are. The caller puts a condition in parentheses where it needs them."""
    return _joined(list(conditions), " AND ", "\nAND ")


def parentheses(sql: str) -> str:
    """The SQL in parentheses."""
    return f"({sql})" if _is_short(sql) else f"(\n{indented(sql)}\n)"


def compared(left: str, operator: str, right: str) -> str:
    """SQL of a comparison, such as ``left > right``: over two lines if it is long."""
    line = f"{left} {operator} {right}"
    return line if _is_short(line) else f"{left}\n{indented(f'{operator} {right}')}"


def call(function: str, arguments: Iterable[str]) -> str:
    """SQL of a function call."""
    return function + parentheses(listed(arguments))


def case(branches: Sequence[tuple[str, str]], otherwise: str | None = None, *, of: str = "") -> str:
    """SQL of a CASE: (condition, value) of each branch, and the value if no branch applies (None: NULL).

    ``of``: SQL of the value that the branches' first parts are compared with; empty: they are conditions.
    """
    head = f"CASE {of}" if of else "CASE"
    tail = [] if otherwise is None else [f"ELSE {otherwise}"]
    line = " ".join([head, *(f"WHEN {condition} THEN {value}" for condition, value in branches), *tail, "END"])
    if _is_short(line):
        return line
    whens = [_when(condition, value) for condition, value in branches]
    return "\n".join([head, *map(indented, [*whens, *tail]), "END"])


def _when(condition: str, value: str) -> str:
    line = f"WHEN {condition} THEN {value}"
    return line if _is_short(line) else f"WHEN {condition}\n{indented(f'THEN {value}')}"


def _joined(parts: Sequence[str], on_one_line: str, over_lines: str) -> str:
    line = on_one_line.join(parts)
    return line if _is_short(line) else over_lines.join(parts)


def _is_short(sql: str) -> bool:
    return "\n" not in sql and len(sql) <= _WIDTH
