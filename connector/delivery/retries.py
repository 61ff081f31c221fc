"""Failures that pass: tried again after a while, and again, for so long as that can help."""

from __future__ import annotations

import logging
import random
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from sinks.errors import LakelockError

log = logging.getLogger("lakelock.patience")

_PASSES = re.compile(
    r"ExecutorLostFailure|FetchFailedException|SlowDown|ServiceUnavailable|Status Code: 50[03]"
    r"|java\.net\.(?:ConnectException|SocketException|SocketTimeoutException|UnknownHostException)"
    r"|ConnectTimeoutException|AWSApiCallTimeoutException"
    r"|Concurrent(?:Append|DeleteRead|DeleteDelete|Write)Exception|DELTA_CONCURRENT_(?:APPEND|DELETE|WRITE)"
)
"""In what Spark says of a job that failed: after its own attempts at a task, an executor or a store was still away. Or
after a sink's own attempts at a commit, those of other writers still came first."""


@dataclass(frozen=True)
class Patience:
    """How often, and how long, a run retries transient failures."""

    attempts: int = 5
    """One after the other, without an epoch in between; 1: a failure stops the run."""
    longest_wait: timedelta = timedelta(minutes=1)
    """It begins with a second, and doubles."""

    def wait(self, failures: int) -> float:
        """Seconds before the next attempt, after so many failures in a row. Chance keeps several runs apart."""
        return min(2.0 ** min(failures - 1, 30) + random.random(), self.longest_wait.total_seconds())


NONE = Patience(attempts=1)


def passes(error: BaseException) -> bool:
    """Whether trying again, unchanged, can help."""
    if isinstance(error, LakelockError):
        return error.transient
    return isinstance(error, Exception) and _PASSES.search(str(error)) is not None


class Retries:
    """Attempts at something, until one ends well::

        retries = Retries(patience, progress, stop, failed)
        while retries.wanted():
            with retries:
                ...

    The block raises what the last of ``patience.attempts`` failures in a row raised, and at once what isn't transient.
    """

    def __init__(
        self,
        patience: Patience,
        progress: Callable[[], int],
        stop: threading.Event,
        failed: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        """``progress``: the number of epochs so far. A failure after another epoch is the first of a new row of
        failures. ``stop``: once it is set, no failure is followed by another attempt. ``failed`` is told of each
        failure that another attempt follows."""
        self._patience, self._progress, self._stop, self._failed = patience, progress, stop, failed
        self._failures, self._known = 0, progress()
        self._done = False

    def wanted(self) -> bool:
        """Whether no attempt has ended well yet."""
        return not self._done

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if error is None:
            self._done = True
            return False
        before, self._known = self._known, self._progress()
        self._failures = self._failures + 1 if self._known == before else 1
        if not passes(error) or self._failures >= self._patience.attempts or self._stop.is_set():
            return False
        seconds = self._patience.wait(self._failures)
        first_line = str(error).partition("\n")[0]
        said = getattr(error, "message", None) or f"{type(error).__name__}: {first_line}"
        log.warning(
            "attempt %d of %d failed, the next is in %.0f s: %s", self._failures, self._patience.attempts, seconds, said
        )
        self._failed(error)
        self._stop.wait(seconds)
        return True
