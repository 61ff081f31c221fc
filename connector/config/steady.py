"""SQL expressions that give the same for a record whenever it is read."""

from __future__ import annotations

import re

from connector.config.transform_sql import QUOTED

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
    unsteady = _unsteady(expression) or (query and query[1])
    if unsteady:
        raise ValueError(_refusal(unsteady))
    return expression


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
