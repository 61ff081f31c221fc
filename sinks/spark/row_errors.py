"""Errors that a query raises on the executors, with their data, and how they are read back on the driver.

Checking rows inside the query that writes them costs no extra job, and the failed query commits nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sinks.spark.sql import literal

_MARK = "LAKELOCK>"


def problem(error: BaseException) -> str:
    """What Spark says first: the rest is its plan, or a stack trace."""
    return next(line for line in str(error).splitlines() if line.strip()).strip()


def raise_sql(kind: str, **fields: str) -> str:
    """SQL of an expression that fails the query with ``kind`` and the values of these SQL expressions."""
    pairs = ", ".join(f"{literal(name)}, {sql}" for name, sql in {"kind": literal(kind), **fields}.items())
    return f"raise_error(concat({literal(_MARK)}, to_json(named_struct({pairs}))))"


def raise_text(kind: str, **fields: str) -> str:
    """The message of an exception of Python's on an executor: the same, where the failure isn't Spark's own."""
    return _MARK + json.dumps({"kind": kind, **fields})


def raised(error: BaseException) -> Mapping[str, Any] | None:
    """What one of these two put into this failure of a query; None where the failure is another one."""
    text = str(error)
    start = text.find(_MARK)
    if start < 0:
        return None
    try:
        fields = json.JSONDecoder().raw_decode(text, start + len(_MARK))[0]
    except json.JSONDecodeError:
        return None
    return fields if isinstance(fields, dict) else None
