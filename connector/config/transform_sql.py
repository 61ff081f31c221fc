"""The user's SQL, as far as it can be checked without Spark."""

from __future__ import annotations

import re

_NOT_ROW_BY_ROW = (
    "DISTINCT", "GROUP", "HAVING", "OVER", "LIMIT", "OFFSET", "TABLESAMPLE", "UNION", "INTERSECT", "EXCEPT", "MINUS",
)  # fmt: skip
_FROM = re.compile(r"\bFROM\b(.*?)(?=\b(?:SELECT|FROM|WHERE)\b|$)", re.DOTALL)
"""What a SELECT reads: up to its condition, or up to a SELECT within."""
_READ = re.compile(r"(?:^|,|\(|\bJOIN\b)\s*RECORDS\b(?!\s*[.(])")
QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)


def column_words(expression: str) -> set[str]:
    """The words of a SQL expression that may be columns."""
    plain = re.sub(r"'(?:[^'\\]|\\.)*'", " ", expression)
    return {*re.findall(r"\w+", QUOTED.sub(" ", plain)), *re.findall(r"`([^`]+)`", plain)}


def condition_names(sql: str, column: str, value: str | None = None) -> bool:
    """Whether a SELECT has a condition, WHERE, that names a column, and a text beside it."""
    plain = QUOTED.sub(lambda found: " " if found[0].startswith(("--", "/*")) else found[0], sql)
    where = re.search(r"\bWHERE\b", QUOTED.sub(lambda found: " " * len(found[0]), plain), re.IGNORECASE)
    condition = plain[where.end() :] if where is not None else ""
    texts = [found[1:-1] for found in QUOTED.findall(condition) if found[0] in "'\""]
    return column in {word.lower() for word in column_words(condition)} and (value is None or value in texts)


def row_by_row(sql: str | None) -> str | None:
    """Allow one row-by-row SELECT only: other queries would depend on where epochs begin and end, or lose records."""
    if sql is None:
        return None
    plain = QUOTED.sub(lambda found: "records" if found[0].lower() == "`records`" else " ", sql).upper()
    words = re.findall(r"\w+", plain)
    if not words or words[0] != "SELECT" or "RECORDS" not in words:
        raise ValueError("write one SELECT ... FROM records, as in `SELECT upper(name) AS name, id FROM records`")
    for word in _NOT_ROW_BY_ROW:
        if word in words:
            raise ValueError(
                f"{word} can't be used: a transform must work row by row, or its result would depend on where epochs "
                "begin and end. To group records, use a delta_aggregate sink"
            )
    if sum(len(_READ.findall(read)) for read in _FROM.findall(plain)) > 1:
        raise ValueError(
            "records may be read once: a transform must work row by row, and a query or a join that looks at other "
            "records sees only those of one epoch"
        )
    return sql
