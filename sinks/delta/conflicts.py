"""Commits of others that got in between: what Delta then says, and how the pipeline's own is tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from sinks.delta.merge import NOT_NEW
from sinks.errors import LakelockError
from sinks.spark.row_errors import raised

_CONFLICTS = (
    "CONCURRENT_APPEND",
    "CONCURRENT_DELETE",
    "METADATA_CHANGED",
    "PROTOCOL_CHANGED",
    "CONCURRENT_WRITE",
)

Result = TypeVar("Result")


def past_conflicts(write: Callable[[], Result]) -> Result:
    """Again where another commit got in between: OPTIMIZE, another pipeline, a person's UPDATE. It left nothing."""
    attempts = Retrying(
        retry=retry_if_exception(is_conflict),
        stop=stop_after_attempt(6),
        wait=wait_random_exponential(multiplier=0.2, max=5),
        reraise=True,
    )
    return attempts(write)


def is_conflict(error: BaseException) -> bool:
    """Another commit got in between, which has nothing to do with the pipeline's position."""
    if isinstance(error, LakelockError):
        return False
    found = raised(error)
    if found is not None:
        return bool(found["kind"] == NOT_NEW)
    text = first_line(error).upper().replace("EXCEPTION", "")
    return any(conflict in text or conflict.replace("_", "") in text for conflict in _CONFLICTS)


def first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return " ".join([type(error).__name__, *lines[:2]])[:500]
