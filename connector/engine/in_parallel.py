"""Calls one function for each of several sinks, at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

Value = TypeVar("Value")


def of_each(calls: Mapping[str, Callable[[], Value]], *, at_once: int | None) -> dict[str, Value]:
    """Call all functions, and return their results by name.

    ``at_once``: how many at the same time; None: all. Waits for all of them before it raises the first error, so that
    no call is still at work when the caller handles it.
    """
    pool = ThreadPoolExecutor(max(1, min(len(calls), at_once or len(calls))), thread_name_prefix="lakelock-sink")
    try:
        futures = {name: pool.submit(call) for name, call in calls.items()}
        wait(futures.values())
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # a run that is being killed waits for no sink
    return {name: future.result() for name, future in futures.items()}
