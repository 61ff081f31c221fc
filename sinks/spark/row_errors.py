"""Errors that a query raises on the executors, with data of the row, and how the driver reads them.

Checking rows in the query that writes them needs no extra job, and a failed query commits nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sinks.spark.sql import literal

_MARK = "LAKELOCK>"


def problem(error: BaseException) -> str:
    """The first line of Spark's message. The rest is a plan or a stack trace."""
    return next(line for line in str(error).splitlines() if line.strip()).strip()


def raise_sql(kind: str, **fields: str) -> str:
    """SQL that fails the query with an error of this kind, and with the values of these SQL expressions."""
    pairs = ", ".join(f"{literal(name)}, {sql}" for name, sql in {"kind": literal(kind), **fields}.items())
    return f"raise_error(concat({literal(_MARK)}, to_json(named_struct({pairs}))))"


def raise_text(kind: str, **fields: str) -> str:
    """The message of a Python exception on an executor that ``raised`` can read."""
    return _MARK + json.dumps({"kind": kind, **fields})


def raised(error: BaseException) -> Mapping[str, Any] | None:
    """The kind and the fields that ``raise_sql`` or ``raise_text`` put into this failure. None for any other one."""
    text = str(error)
    start = text.find(_MARK)
    if start < 0:
        return None
    try:
        fields = json.JSONDecoder().raw_decode(text, start + len(_MARK))[0]
    except json.JSONDecodeError:
        return None
    return fields if isinstance(fields, dict) else None
