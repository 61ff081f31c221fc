"""Failures that pass: tried again after a while, and again, for so long as that can help."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from tenacity import RetryCallState, Retrying, retry_if_exception, sleep_using_event, wait_exponential_jitter

from sinks.errors import LakelockError

log = logging.getLogger("lakelock.patience")

_PASSES = re.compile(
    r"ExecutorLostFailure|FetchFailedException|SlowDown|ServiceUnavailable|Status Code: 50[03]"
    r"|java\.net\.(?:ConnectException|SocketException|SocketTimeoutException|UnknownHostException)"
)
"""In what Spark says of a job that failed: after its own attempts at a task, an executor or a store was still away."""


@dataclass(frozen=True)
class Patience:
    """How often, and how long, a run retries transient failures."""

    attempts: int = 5
    """One after the other, without an epoch in between; 1: a failure stops the run."""
    longest_wait: timedelta = timedelta(minutes=1)
    """It begins with a second, and doubles."""


NONE = Patience(attempts=1)


def passes(error: BaseException) -> bool:
    """Whether trying again, unchanged, can help."""
    if isinstance(error, LakelockError):
        return error.transient
    return isinstance(error, Exception) and _PASSES.search(str(error)) is not None


def patiently(
    attempt: Callable[[], None],
    progress: Callable[[], int],
    patience: Patience,
    stop: threading.Event,
    failed: Callable[[BaseException], None] = lambda _: None,
) -> None:
    """Until ``attempt`` ends well. ``progress``: epochs so far; what comes after one more is a new failure.
    ``failed``: is told of a failure after which another attempt comes.

    Raises what the last of ``patience.attempts`` raised; at once what doesn't pass, or where ``stop`` is set.
    """
    failures, known = 0, progress()
    wait = wait_exponential_jitter(max=patience.longest_wait.total_seconds())

    def enough(_: RetryCallState) -> bool:
        nonlocal failures, known
        now = progress()
        failures, known = (failures + 1, known) if now == known else (1, now)
        return failures >= patience.attempts or stop.is_set()

    def pause(state: RetryCallState) -> float:
        state.attempt_number = failures
        return wait(state)

    def say(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        seconds = state.next_action.sleep if state.next_action else 0.0
        said = getattr(error, "message", None) or f"{type(error).__name__}: {str(error).splitlines()[0]}"
        log.warning("attempt %d of %d failed, the next is in %.0f s: %s", failures, patience.attempts, seconds, said)
        if error is not None:
            failed(error)

    Retrying(
        retry=retry_if_exception(passes),
        stop=enough,
        wait=pause,
        before_sleep=say,
        sleep=sleep_using_event(stop),
        reraise=True,
    )(attempt)
