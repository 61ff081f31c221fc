"""SQL that gives the same for a record whenever it is read."""

from __future__ import annotations

import re

from connector.config.relations import relations
from connector.config.transform_sql import QUOTED

_NOT_ROW_BY_ROW = (
    "DISTINCT", "GROUP", "HAVING", "OVER", "LIMIT", "OFFSET", "TABLESAMPLE", "UNION", "INTERSECT", "EXCEPT", "MINUS",
)  # fmt: skip

_UNSTEADY = re.compile(
    r"(?<!\.)\b(current_date|current_timestamp|current_time|localtimestamp|current_user|session_user)\b"
    r"|\b(rand|random|randn|uniform|randstr|uuid|shuffle|curdate|now|monotonically_increasing_id|spark_partition_id"
    r"|input_file_name|input_file_block_start|input_file_block_length|user|version|current_timezone|current_catalog"
    r"|current_database|current_schema|reflect|try_reflect|java_method)\s*\("
    r"|\b(unix_timestamp)\s*\(\s*\)",
    re.IGNORECASE,
)
"""What doesn't depend on the record alone. Behind a point a word is a column: `records.current_date`."""
_QUERY = re.compile(r"\b(select)\b", re.IGNORECASE)
"""A query of tables."""

_DAY = re.compile(r"\s*(now|today|tomorrow|yesterday)(?![a-z])[^'\"]*", re.IGNORECASE)
"""Texts that a cast takes for a time, maybe with a zone. 'epoch' is the same at any time."""
_TIME = r"(?:date|timestamp(?:_ntz|_ltz)?)\b"
_OF_TIMES = (
    rf"{_TIME}|(?:try_)?to_{_TIME}|date_?add|date_?sub|date_?diff|date_trunc|trunc|add_months|months_between|last_day"
    r"|next_day|year|quarter|month|weekofyear|weekday|day|dayofmonth|dayofweek|dayofyear|hour|minute|second"
)
_OF_TODAY = tuple(
    re.compile(pattern.replace("DAY", r"'(?P<day>\w+)'"), re.IGNORECASE | re.DOTALL)
    for pattern in (
        rf"\b{_TIME}\s*DAY",
        rf"\bcast\s*\(\s*DAY\s*as\s+{_TIME}",
        rf"\btry_cast\s*\(\s*DAY\s*as\s+{_TIME}",
        rf"DAY\s*::\s*{_TIME}",
        rf"\b(?:{_OF_TIMES})\s*\([^()]*DAY",
        r"(?:<=?|(?<![-<=])>=?)\s*DAY",  # neither <> and <=>, nor the arrow of a function
        r"DAY\s*(?:<(?!=?>)|>)",
        r"DAY\s+(?:not\s+)?between\b",
        r"\bbetween\s*DAY",
        r"\bbetween\b(?:(?!\band\b).)*\band\s*DAY",
    )
)
"""Where such a text becomes a time. A comparison with = isn't here: a text may be equal to 'now'."""


def steady(expression: str) -> str:
    """Refuse an expression with an unsteady part: an epoch in doubt is read again, a table is replayed, and `verify`
    computes it once more, maybe tomorrow."""
    query = _QUERY.search(QUOTED.sub(" ", expression))
    unsteady = _unsteady(expression) or (query and query[1]) or next(iter(relations(expression)), None)
    if unsteady:
        raise ValueError(_refusal(unsteady))
    return expression


def row_by_row(sql: str) -> str:
    """Allow one row-by-row SELECT over the records only: other queries would depend on where epochs begin and end, or
    on what other tables hold at the time, or lose records."""
    words, read = re.findall(r"\w+", QUOTED.sub(" ", sql).upper()), [name.lower() for name in relations(sql)]
    if not words or words[0] != "SELECT" or "records" not in read:
        raise ValueError("write one SELECT ... FROM records, as in `SELECT upper(name) AS name, id FROM records`")
    for word in _NOT_ROW_BY_ROW:
        if word in words:
            raise ValueError(
                f"{word} can't be used: a transform must work row by row, or its result would depend on where epochs "
                "begin and end. To group records, use a delta_aggregate sink"
            )
    if read.count("records") > 1:
        raise ValueError(
            "records may be read once: a transform must work row by row, and a query or a join that looks at other "
            "records sees only those of one epoch"
        )
    others = [name for name in relations(sql) if name.lower() != "records"]
    if others:
        raise ValueError(
            f"reads {', '.join(others)} beside records. What is in there may be another thing each time, and a record "
            "has to count alike whenever it is read. Join in a view or a query over the table that the pipeline "
            "writes, or have the producer put what is needed into the record. Subqueries over records, VALUES, and "
            "functions such as explode may be used; in place of a WITH, write a subquery"
        )
    return sql


def steady_rows(sql: str) -> str:
    """As ``steady``, of a transform: it is a query."""
    unsteady = _unsteady(sql)
    if unsteady:
        raise ValueError(
            f"{_refusal(unsteady)}, Kafka's time of the record. DESCRIBE HISTORY of the table tells when a row was "
            "written"
        )
    return sql


def _refusal(unsteady: str) -> str:
    return (
        f"{unsteady} may give another value each time, and a record has to count alike whenever it is read. Use the "
        "record's own columns, such as _timestamp"
    )


def _unsteady(sql: str) -> str | None:
    """The part of SQL that depends on more than the record."""
    called = _UNSTEADY.search(QUOTED.sub(" ", sql))
    if called is not None:
        return str(next(filter(None, called.groups())))
    days = QUOTED.sub(_day, sql)
    found = next(filter(None, (pattern.search(days) for pattern in _OF_TODAY)), None)
    if found is None:
        return None
    return found[0] if re.match(rf"{_TIME}\s*'", found[0], re.IGNORECASE) else f"'{found['day']}'"


def _day(quoted: re.Match[str]) -> str:
    """A text that may stand for a day, without its zone. Other texts and names say nothing, and comments are gone."""
    if quoted[0].startswith(("--", "/*")):
        return " "
    found = _DAY.fullmatch(quoted[0][1:-1]) if quoted[0][0] != "`" else None
    return f"'{found[1]}'" if found is not None else " _ "
