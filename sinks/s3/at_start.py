"""What Spark's driver was started with. A session's own settings say nothing of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONLY_AT_START = ("spark.delta.logStore.", "spark.hadoop.")
"""Settings that count only if Spark's driver was started with them: by them Delta chooses a log store, and Spark tells
Hadoop's settings. Every session takes them later, too, without effect and without a word."""

_found: WeakKeyDictionary[SparkSession, Mapping[str, str]] = WeakKeyDictionary()


def at_start(spark: SparkSession) -> Mapping[str, str]:
    """Those of the settings ``ONLY_AT_START`` that Spark's driver was started with. Empty if a server doesn't tell."""
    from pyspark.errors import PySparkException

    if spark not in _found:
        try:
            told = _of_server(spark) if _is_connect(spark) else _of_process()
        except PySparkException:
            return {}
        _found[spark] = {key: value for key, value in told if key.startswith(ONLY_AT_START)}
    return _found[spark]


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _of_process() -> Iterable[tuple[str, str]]:
    """Of the driver that is in this process: it has one context. A new session isn't asked, as it takes over what the
    builder of the first session was told, and that may have come later than the context."""
    from pyspark import SparkContext

    return SparkContext.getOrCreate().getConf().getAll()


def _of_server(spark: SparkSession) -> Iterable[tuple[str, str]]:
    """Of the driver of a Spark Connect server, which a client sees only through a session. A clone that is reset has
    nothing but these settings."""
    if not hasattr(spark, "cloneSession"):  # before 4.1
        return ()
    clone = spark.cloneSession()
    try:
        clone.sql("RESET")
        return list(clone.conf.getAll.items())
    finally:
        clone.client.release_session()
        clone.client.close()
