"""Which settings of a session lose something, and what is set instead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from connector.spark.session import refuse_lossy
from sinks.errors import ConfigurationError
from sinks.spark.settings import lossless

MISSING, CORRUPT = "spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"
TIMES = "spark.sql.parquet.outputTimestampType"
STALE = "spark.databricks.delta.stalenessLimit"


def session(**settings: str) -> Any:
    names = {"missing": MISSING, "corrupt": CORRUPT, "times": TIMES, "stale": STALE}
    named = {names[name]: value for name, value in settings.items()}
    return SimpleNamespace(conf=SimpleNamespace(get=lambda name, default=None: named.get(name, default)))


def test_what_loses_rows_or_parts_of_values_is_set_otherwise_and_nothing_else() -> None:
    assert lossless(session()) == {}
    assert lossless(session(missing="false", corrupt="FALSE", times="INT96")) == {}
    assert lossless(session(times="timestamp_micros")) == {}
    assert lossless(session(missing="true", corrupt=" True", times="timestamp_millis")) == {
        MISSING: "false",
        CORRUPT: "false",
        TIMES: "TIMESTAMP_MICROS",
    }


def test_a_session_that_is_given_is_refused_with_the_setting_and_the_fix() -> None:
    refuse_lossy(session(missing="false", times="INT96"))
    for given, name, instead in (
        (session(missing="true"), MISSING, "'false'"),
        (session(corrupt="true"), CORRUPT, "'false'"),
        (session(times="TIMESTAMP_MILLIS"), TIMES, "'TIMESTAMP_MICROS'"),
    ):
        with pytest.raises(ConfigurationError, match=f"The session has {name} = ") as caught:
            refuse_lossy(given)
        assert f"spark.conf.set({name!r}, {instead})" in (caught.value.hint or "")


@pytest.mark.parametrize("limit", ["1h", "3600000", "10 ms", "05s"])
def test_a_table_is_not_read_as_it_was_before_the_commits_of_another_process(limit: str) -> None:
    assert lossless(session(stale=limit)) == {STALE: "0"}
    with pytest.raises(ConfigurationError, match=f"The session has {STALE} = {limit}: .* newer commits"):
        refuse_lossy(session(stale=limit))


@pytest.mark.parametrize("limit", ["0", "0s", "00 ms", " 0H "])
def test_a_limit_of_no_time_is_none(limit: str) -> None:
    assert lossless(session(stale=limit)) == {}


def test_a_platform_that_does_not_tell_a_setting_stops_nothing() -> None:
    """Serverless clusters answer for few settings."""

    def get(name: str, default: object = None) -> object:
        raise PySparkException(f"CONFIG_NOT_AVAILABLE: {name}, {default}")

    serverless: Any = SimpleNamespace(conf=SimpleNamespace(get=get))
    assert lossless(serverless) == {}
    refuse_lossy(serverless)
