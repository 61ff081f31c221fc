"""SQL expressions that give the same for a record whenever it is read."""

from __future__ import annotations

import re

from connector.config.transform_sql import QUOTED

_UNSTEADY = re.compile(
    r"\b(current_date|current_timestamp|current_time|localtimestamp|current_user|session_user|select)\b"
    r"|\b(rand|random|randn|uniform|randstr|uuid|shuffle|curdate|now|monotonically_increasing_id|spark_partition_id"
    r"|input_file_name|user|version|current_timezone|current_catalog|current_database|current_schema"
    r"|reflect|try_reflect|java_method)\s*\("
    r"|\b(unix_timestamp)\s*\(\s*\)",
    re.IGNORECASE,
)
"""What doesn't depend on the record alone: functions, and queries of tables."""
_OF_TODAY = re.compile(
    r"\b((?:date|timestamp(?:_ntz|_ltz)?)\s*'\s*(?:now|today|tomorrow|yesterday)\s*')", re.IGNORECASE
)


def steady(expression: str) -> str:
    """Refuse an expression with an unsteady part: an epoch in doubt is read again, a table is replayed, and `verify`
    computes it once more, maybe tomorrow."""
    unsteady = _UNSTEADY.search(QUOTED.sub(" ", expression)) or _OF_TODAY.search(expression)
    if unsteady is not None:
        raise ValueError(
            f"{next(filter(None, unsteady.groups()))} may give another value each time, and a record has to count "
            "alike whenever it is read. Use the record's own columns, such as _timestamp"
        )
    return expression
