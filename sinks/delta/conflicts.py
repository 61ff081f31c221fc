"""Conflicts with commits of other writers: how they are recognised, and how a write is retried."""

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
    """Run ``write``, and return its result. If it conflicts with another commit, run it again: up to six times in all,
    with exponential backoff of at most 5 seconds.

    Other commits are an OPTIMIZE, another pipeline's, or a person's UPDATE. A conflicting write commits nothing.
    """
    attempts = Retrying(
        retry=retry_if_exception(is_conflict),
        stop=stop_after_attempt(6),
        wait=wait_random_exponential(multiplier=0.2, max=5),
        reraise=True,
    )
    return attempts(write)


def is_conflict(error: BaseException) -> bool:
    """Whether an error means that another commit came first, one that doesn't change the pipeline's position."""
    if isinstance(error, LakelockError):
        return False
    own = raised(error)
    if own is not None:
        return bool(own["kind"] == NOT_NEW)
    text = first_line(error).upper().replace("EXCEPTION", "")
    return any(conflict in text or conflict.replace("_", "") in text for conflict in _CONFLICTS)


def first_line(error: BaseException) -> str:
    """The error's type and the first two lines of its message, in at most 500 characters."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return " ".join([type(error).__name__, *lines[:2]])[:500]
