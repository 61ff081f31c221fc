"""Questions to Spark that a failure answers too: a table that isn't there, a file that isn't there."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_probing: ContextVar[bool] = ContextVar("lakelock_probing", default=False)


@contextmanager
def probing() -> Iterator[None]:
    """A block whose failures are answers: PySpark doesn't write them to standard error, with the traces of the JVM.

    Since Spark 4 PySpark logs each failed statement when it makes the exception, whoever catches that.
    """
    _listen()
    token = _probing.set(True)
    try:
        yield
    finally:
        _probing.reset(token)


@cache
def _listen() -> None:
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # Spark 3.5 logs nothing
        return
    for name in _LOGGERS:
        # Made by PySpark's own class: it would take another logger of this name, and fail on it.
        PySparkLogger.getLogger(name).addFilter(_is_news)


def _is_news(_: logging.LogRecord) -> bool:
    return not _probing.get()
