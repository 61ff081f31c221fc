"""Conflicts with commits of other writers: how they are recognised, and how a write is retried."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from sinks.delta.merge import NOT_NEW
from sinks.errors import LakelockError
from sinks.spark.row_errors import raised

logger = logging.getLogger("lakelock.delta")

_CONFLICTS = (
    "CONCURRENT_APPEND",
    "CONCURRENT_DELETE",
    "METADATA_CHANGED",
    "PROTOCOL_CHANGED",
    "CONCURRENT_WRITE",
)

_ATTEMPTS = 6

Result = TypeVar("Result")


class Conflicts:
    """How often to repeat a write that conflicts with another commit: up to six attempts in all by default, with
    exponential backoff of at most 5 seconds.

    Other commits are an OPTIMIZE, another pipeline's, or a person's UPDATE. A conflicting write commits nothing.
    """

    def __init__(self, attempts: int = _ATTEMPTS) -> None:
        self._attempts = 0
        self._most = attempts

    def passed(self, error: BaseException) -> bool:
        """Whether to write again after this error. If so, waits first."""
        self._attempts += 1
        if self._attempts >= self._most or not is_conflict(error):
            return False
        time.sleep(random.uniform(0, min(0.2 * 2 ** min(self._attempts - 1, 10), 5)))
        return True


def past_conflicts(write: Callable[[], Result], attempts: int = _ATTEMPTS) -> Result:
    """Run ``write``, and return its result. Repeat it after conflicts: see :class:`Conflicts`."""
    conflicts = Conflicts(attempts)
    while True:
        try:
            return write()
        except Exception as error:
            if not conflicts.passed(error):
                raise


def done_or_left(clean_up: Callable[[], object], what: str) -> bool:
    """Run ``clean_up``, which removes what nobody needs any more. Repeat it after conflicts: see :class:`Conflicts`.

    If it still conflicts, this is logged, and what it would have removed stays until the next time: no run stops for
    it. ``what`` names it in the log. Returns whether it was done.
    """
    try:
        past_conflicts(clean_up)
    except Exception as error:
        if not is_conflict(error):
            raise
        logger.warning(
            "%s: not removed yet, because other commits came first %d times. The next upkeep removes them.",
            what, _ATTEMPTS,
        )  # fmt: skip
        return False
    return True


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
