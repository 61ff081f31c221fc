"""Asks a question again while its failure may pass. A plain loop: an error's trace has one frame of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Told = TypeVar("Told")


def asked_again(
    question: Callable[[], Told],
    *,
    may_pass: Callable[[Exception], bool],
    wait: Callable[[int], float],
    attempts: int | None = None,
    seconds: float | None = None,
    before: Callable[[], None] = lambda: None,
) -> Told:
    """The answer to ``question``.

    ``may_pass``: whether a failure is one to ask again after. ``wait`` gives the seconds before the next attempt, after
    so many. ``attempts`` and ``seconds`` are the limits: how often to ask, and how long after the first attempt the
    last one may begin. ``before`` is called before each further attempt. Raises what the last attempt raised.
    """
    began, asked = time.monotonic(), 0
    while True:
        try:
            return question()
        except Exception as error:
            asked += 1
            over = seconds is not None and time.monotonic() - began >= seconds
            if over or asked == attempts or not may_pass(error):
                raise
        before()
        time.sleep(wait(asked))
