"""The settings of a session of our own, without starting one."""

from __future__ import annotations

from connector.java import QUICK_START
from connector.spark import _defaults


def test_only_the_jvm_of_a_short_run_is_started_in_haste() -> None:
    java = "spark.driver.extraJavaOptions"
    assert _defaults({}, s3=False, short=lambda: True)[java] == QUICK_START
    assert java not in _defaults({}, s3=False, short=lambda: False)


def test_where_spark_runs_elsewhere_nothing_is_said_of_its_size() -> None:
    for master in ({"spark.master": "spark://there:7077"}, {"spark.remote": "sc://there"}):
        settings = _defaults(master, s3=False, short=lambda: True)
        assert not {"spark.master", "spark.driver.memory", "spark.driver.extraJavaOptions"} & settings.keys()
