"""The settings of a session of our own, without starting one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from connector.spark import jars
from connector.spark.compat import needs
from connector.spark.java import QUICK_START, THROUGHPUT
from connector.spark.session import _added, _defaults, _for_server, _own
from sinks.errors import ConfigurationError


def test_only_the_jvm_of_a_short_run_is_started_in_haste() -> None:
    java = "spark.driver.extraJavaOptions"
    assert _defaults({}, s3=False, short=lambda: True)[java] == QUICK_START
    assert _defaults({}, s3=False, short=lambda: False)[java] == THROUGHPUT


def test_the_environments_own_collector_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xlog:disable -XX:+UseG1GC")
    for short in (True, False):
        assert "spark.driver.extraJavaOptions" not in _defaults({}, s3=False, short=lambda short=short: short)


def test_a_start_that_could_be_faster_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "a.jar").touch()
    monkeypatch.setenv("LAKELOCK_JARS", str(tmp_path))
    java = "spark.driver.extraJavaOptions"
    for options, told in ({}, 1), ({java: "-XX:ArchiveClassesAtExit=a.jsa"}, 0), ({"spark.master": "yarn"}, 0):
        caplog.clear()
        settings = _own(options, "p", s3=False, debug=False, short=lambda: True)
        assert "SharedArchiveFile" not in settings[java]
        assert [record.getMessage().count("`lakelock jars`") for record in caplog.records] == [1] * told


def test_where_spark_runs_elsewhere_nothing_is_said_of_its_size() -> None:
    for master in ({"spark.master": "spark://there:7077"}, {"spark.remote": "sc://there"}):
        settings = _defaults(master, s3=False, short=lambda: True)
        assert not {"spark.master", "spark.driver.memory", "spark.driver.extraJavaOptions"} & settings.keys()


def test_spark_keeps_the_code_of_all_tables_of_an_epoch_wherever_it_starts() -> None:
    setting = "spark.sql.codegen.cache.maxEntries"
    master = {"spark.master": "spark://there:7077"}
    for options, kept in ({}, "1000"), (master, "1000"), ({setting: "50"}, "50"):
        assert _own(options, "p", s3=False, debug=False, short=lambda: False)[setting] == kept
        assert _added(options, {"spark.master": "yarn"})[setting] == kept
    assert setting not in _added({}, {setting: "70"})


def test_what_was_submitted_stays_and_only_what_correctness_needs_is_added() -> None:
    executor = "spark.executor.extraJavaOptions"
    submitted = {
        "spark.master": "spark://there:7077",
        "spark.jars": "/theirs.jar",
        "spark.sql.session.timeZone": "CET",
        executor: "-Dtheirs=1",
    }
    settings = _added({"spark.master": "local[2]", "spark.sql.ansi.enabled": "true", executor: "-Dfile=1"}, submitted)
    assert re.fullmatch("-XX:-DontCompileHugeMethods -D.*16777216 -Dtheirs=1", settings.pop(executor))
    assert not settings.keys() & submitted.keys()
    assert "spark.sql.extensions" in settings
    assert settings["spark.sql.ansi.enabled"] == "true"
    assert (
        not {"spark.driver.memory", "spark.app.name", "spark.sql.shuffle.partitions", "spark.lakelock.tuning"}
        & settings.keys()
    )


@pytest.mark.parametrize(("scheme", "store"), [("s3a", "ConditionalLogStore"), ("file", "LocalLogStore")])
def test_the_log_store_is_chosen_where_its_jar_was_submitted(scheme: str, store: str) -> None:
    setting = f"spark.delta.logStore.{scheme}.impl"
    assert setting not in _added({}, {"spark.jars": "/theirs.jar"})
    assert _added({}, {"spark.jars": "/theirs.jar,/there/lakelock-s3.jar"})[setting] == f"lakelock.{store}"
    for own in ({}, {"spark.jars": "/my/udf.jar", "spark.master": "spark://there:7077"}):
        settings = _own(own, "p", s3=False, debug=False, short=lambda: False)
        assert settings[setting] == f"lakelock.{store}"
        assert any(
            "lakelock-s3.jar" in settings.get(name, "") for name in ("spark.jars", "spark.driver.extraClassPath")
        )


def test_a_disk_without_hard_links_is_told_of_whatever_else_is_silent() -> None:
    text = (Path(jars.__file__).parents[1] / "log4j2.properties").read_text(encoding="utf-8")
    assert "logger.local.name = lakelock.LocalLogStore\nlogger.local.level = warn\n" in text


def test_a_server_is_sent_nothing_that_only_its_start_can_take(caplog: pytest.LogCaptureFixture) -> None:
    own = {"spark.remote": "sc://there", "spark.sql.shuffle.partitions": "3", "fs.s3a.endpoint": "http://here"}
    late = {"spark.hadoop.fs.s3a.endpoint": "http://there", "spark.delta.logStore.class": "theirs"}
    for options, told in (own, 0), ({**own, **late}, 1):
        settings = _own(options, "p", s3=False, debug=False, short=lambda: False)
        stores = {"spark.delta.logStore.s3a.impl", "spark.delta.logStore.file.impl"}
        assert settings.keys() > stores
        sent = _for_server(settings, options)
        assert own.items() <= sent.items()
        assert settings.keys() - sent.keys() == {*stores, *(late if told else ())}
        assert [all(name in record.getMessage() for name in late) for record in caplog.records] == [True] * told


@pytest.mark.parametrize("version", ["3.5.7", "3.5.4-amzn-0", "4.0.1"])
def test_an_option_that_an_older_spark_lacks_is_named(version: str) -> None:
    class Older:
        pass

    spark: Any = Older()
    spark.version = version
    with pytest.raises(ConfigurationError, match=f"^sinks needs Spark 4.1, and this is {version}"):
        needs(spark, "4.1", "sinks", "Leave it out.")
    for newer in ("4.1.1", "4.2.0-preview1", "10.0.0"):
        spark.version = newer
        needs(spark, "4.1", "sinks", "Leave it out.")


def test_arithmetic_is_the_same_with_every_spark() -> None:
    assert _defaults({}, s3=False, short=lambda: False)["spark.sql.ansi.enabled"] == "true"


LOADED = """
import sys, threading
from connector.spark.session import loading_pyspark
assert "pyspark" not in sys.modules
with loading_pyspark():
    assert "lakelock-import" in [each.name for each in threading.enumerate()]
assert "pyspark.sql" in sys.modules and threading.active_count() == 1
with loading_pyspark():
    assert threading.active_count() == 1
"""


def test_pyspark_is_loaded_beside_what_waits_and_no_longer() -> None:
    subprocess.run([sys.executable, "-c", LOADED], check=True)
