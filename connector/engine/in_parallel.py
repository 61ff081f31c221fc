"""One function for each of several sinks, all at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    pass


Value = TypeVar("Value")


def of_each(calls: Mapping[str, Callable[[], Value]], *, at_once: bool) -> dict[str, Value]:
    """All of them are waited for: an error in one must not leave another at work behind its back."""
    pool = ThreadPoolExecutor(max(1, len(calls) if at_once else 1), thread_name_prefix="lakelock-sink")
    try:
        futures = {name: pool.submit(call) for name, call in calls.items()}
        wait(futures.values())
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # an abandoned run waits for none
    return {name: future.result() for name, future in futures.items()}
