"""Failures of Spark that are answers aren't written to standard error."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from sinks.spark.probes import probing

PySparkLogger = pytest.importorskip("pyspark.logger", reason="Spark 3.5 logs no failed statement").PySparkLogger


@pytest.fixture(params=["SQLQueryContextLogger", "DataFrameQueryContextLogger"])
def written(request: pytest.FixtureRequest) -> Iterator[tuple[logging.Logger, list[str]]]:
    """PySpark's logger of failed statements, and what it writes."""
    messages: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger, handler = PySparkLogger.getLogger(request.param), Kept()
    logger.addHandler(handler)
    yield logger, messages
    logger.removeHandler(handler)


def test_within_a_probe_nothing_is_written(written: tuple[logging.Logger, list[str]]) -> None:
    logger, messages = written
    with probing():
        logger.exception("not there", errorClass="PATH_NOT_FOUND")  # type: ignore[call-arg]
        with probing():
            pass
        logger.exception("not there", errorClass="PATH_NOT_FOUND")  # type: ignore[call-arg]
    assert messages == []
    logger.exception("a user's own", errorClass="PARSE_SYNTAX_ERROR")  # type: ignore[call-arg]
    assert messages == ["a user's own"]


def test_a_probe_that_fails_ends(written: tuple[logging.Logger, list[str]]) -> None:
    logger, messages = written
    with pytest.raises(RuntimeError), probing():
        raise RuntimeError("not there")
    logger.exception("later")
    assert messages == ["later"]


def test_what_fails_in_another_thread_meanwhile_is_written(written: tuple[logging.Logger, list[str]]) -> None:
    logger, messages = written
    with probing():
        other = threading.Thread(target=lambda: logger.exception("of another thread"))
        other.start()
        other.join()
    assert messages == ["of another thread"]
