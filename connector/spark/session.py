"""The Spark session of a run: the active one as it is, or a new one with safe settings."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from connector.spark import jars, java
from connector.spark.compat import is_connect, needed_by_connect
from connector.spark.jars import archive
from connector.spark.jars.built_for import installed
from connector.spark.properties import start_jvm
from connector.spark.row_settings import OF_ROWS
from connector.spark.tuning import TUNING
from sinks.errors import ConfigurationError
from sinks.s3.at_start import ONLY_AT_START
from sinks.s3.hadoop import LOG_STORES
from sinks.spark.settings import AS_WRITTEN, lossless, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakelock.spark")

_SECRETS = (
    "(?i:secret|passw(or)?d|passphrase|token|access[.]?key|account[.]key|private[._-]?key|encryption[.]key"
    "|keystore[.]key|credential|jaas|azure[.]sas|client-provided)"
)
"""Hides more names than a pipeline file may not contain (sinks.kafka.SECRET): hiding too many does no harm."""
_IN_PLANS = rf'key: "[^"]*{_SECRETS}[^"]*"\s+value: "(?:[^"\\]|\\.)*+"'
"""A Spark Connect server shows every plan in its UI and its event log, including the options of readers."""
_PLANS = "spark.sql.redaction.string.regex"
# An Avro record states the length of its strings, and Avro allocates the memory before it checks whether they are
# there: six bad bytes would end the JVM. These are limits in bytes, and in items of one array or map. A task keeps the
# memory of the longest string of each field, so a limit above the records' need is less safe.
_AVRO_LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{kind}.maxLength={limit}"
    for kind, limit in (("bytes", 16 << 20), ("string", 16 << 20), ("collectionItems", 16 << 20))
)
# Spark makes one method of a query's stage. The JVM interprets a method of more than 8,000 bytes, and a table of few
# columns can have one: decoding of change data took twice as long.
_ALL_COMPILED = "-XX:-DontCompileHugeMethods"
_EVERYWHERE = f"{_ALL_COMPILED} {_AVRO_LIMITS}"
_REDACTED = "(redacted)"
_HIDDEN = "spark.redaction.regex"
_JAVA = "spark.driver.extraJavaOptions"
_CLASS_PATH = "spark.driver.extraClassPath"
_EXECUTOR_JAVA = "spark.executor.extraJavaOptions"
_LOG_STORE = "spark.delta.logStore.s3a.impl"
_LOCAL_LOG_STORE = "spark.delta.logStore.file.impl"
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta's own log store for S3 lets one driver overwrite another's commit.
    _LOG_STORE: jars.LOG_STORE,
}
"""Without these settings Spark can't read or write Delta tables, or not safely on S3."""
SAFE = {
    **DELTA,
    # On a local disk Delta looks whether a commit is there, and then renames over whatever is.
    _LOCAL_LOG_STORE: jars.LOCAL_LOG_STORE,
    # Spark 4's own default: a sum that overflows is an error instead of another number.
    "spark.sql.ansi.enabled": "true",
    # A timestamp without a time zone in a record must not depend on the machine.
    "spark.sql.session.timeZone": "UTC",
    _HIDDEN: _SECRETS,
    "spark.sql.redaction.options.regex": f"{_SECRETS}|(?i:url)",
    _PLANS: _IN_PLANS,
}
"""Settings for wherever Spark runs."""
_CODE = {
    # Spark compiles again what it has forgotten. It keeps 100 classes, and an epoch of two tables needs more.
    "spark.sql.codegen.cache.maxEntries": "1000",
}
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_NEVER_COPIED = ("spark.databricks.delta.write.txn", _METADATA)


@contextmanager
def loading_pyspark() -> Iterator[None]:
    """Load PySpark beside the block, which waits for the network. What fails of it, the next import tells.

    Ends with the block: two threads that load parts of a package at once can make Python report a deadlock.
    """
    if "pyspark.sql" in sys.modules:
        yield
        return

    def load() -> None:
        with suppress(Exception):
            import_module("pyspark.sql")

    beside = threading.Thread(target=load, name="lakelock-import")
    beside.start()
    try:
        yield
    finally:
        beside.join()


@contextmanager
def session(
    options: Mapping[str, str],
    *,
    name: str,
    s3: bool = False,
    debug: bool = False,
    short: Callable[[], bool] = lambda: False,
    given: SparkSession | None = None,
) -> Iterator[SparkSession]:
    """A session for one run, separated from the statements of others.

    If a session is active (Databricks, EMR, a notebook), its cluster is used as it is: ``options`` don't apply, and it
    stays open. Otherwise a session is created from ``options`` and stopped at the end. Under spark-submit, submitted
    settings win over ``options``. ``s3`` says whether it needs s3a:// paths. ``short`` says whether there is little to
    do, and is called only where that matters. ``given``: a session that the caller has, instead of the active one.
    """
    from pyspark.sql import SparkSession

    active = given if given is not None else active_session()
    if active is not None:
        with isolated(active) as own:
            yield own
        return
    submitted = _submitted()
    settings = _added(options, submitted) if submitted else _own(options, name, s3=s3, debug=debug, short=short)
    there = not submitted and _server(options).startswith("sc://")
    builder = SparkSession.builder
    for key, value in (_for_server(settings, options) if there else settings).items():
        builder = builder.config(key, value)
    with warnings.catch_warnings(), _sigint_kept():
        if not submitted and not there:
            start_jvm(settings, debug=debug)
        # Spark Connect warns about every setting that only the start of the server can take. The server has them.
        warnings.filterwarnings("ignore", message="Failed to set")
        spark = builder.getOrCreate()
    try:
        if is_connect(spark):
            needed_by_connect(spark)
        _take_as_written(spark)
        yield spark
    finally:
        spark.stop()


def active_session() -> SparkSession | None:
    """The active session. None: there is none."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def wanted(setting: str, options: Mapping[str, str]) -> str | None:
    """The value that these options want a setting to have. None: any, as it isn't given, and changes no row."""
    return options.get(setting, SAFE.get(setting, "none") if setting.startswith(OF_ROWS) else None)


@contextmanager
def isolated(active: SparkSession) -> Iterator[SparkSession]:
    """A second session on the same cluster, with the same settings.

    MERGE takes its epoch and offsets from the session's settings. In a shared session another thread's statement would
    commit them too.
    """
    from pyspark.errors import PySparkException

    if is_connect(active):
        needed_by_connect(active)
        clone = active.cloneSession()  # type: ignore[attr-defined]
        with suppress(PySparkException):  # a serverless cluster refuses the setting
            theirs = clone.conf.get(_PLANS, "")
            clone.conf.set(_PLANS, f"{theirs}|{_IN_PLANS}" if theirs else _IN_PLANS)
        with suppress(PySparkException):  # as above
            clone.conf.unset(_METADATA)
        _take_as_written(clone)
        try:
            yield clone
        finally:
            # Not stop(): that would end a local server, which is the user's.
            clone.client.release_session()
            clone.client.close()
        return
    own = active.newSession()
    theirs, ours = ({row["key"]: row["value"] for row in each.sql("SET").collect()} for each in (active, own))
    for name, shown in theirs.items():
        if name.startswith(_NEVER_COPIED) or (shown == ours.get(name) and not shown.endswith(_REDACTED)):
            continue
        # Settings of catalogs and Hadoop, including keys to a bucket, aren't Spark's own, but matter as much.
        copied = own.conf.isModifiable(name) or name.startswith(("fs.", "spark.sql.catalog."))
        value = active.conf.get(name, None) if copied else None
        if value is not None and own.conf.get(name, None) != value:
            own.conf.set(name, value)
    own.catalog.setCurrentCatalog(active.catalog.currentCatalog())
    own.catalog.setCurrentDatabase(active.catalog.currentDatabase())
    _take_as_written(own)
    yield own


def another(started: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A second session beside a classic one, with the ``settings`` that this was started with, whatever it has now."""
    own = started.newSession()
    for name, value in settings.items():
        if own.conf.isModifiable(name) and own.conf.get(name, None) != value:
            own.conf.set(name, value)
    _take_as_written(own)
    return own


def _take_as_written(spark: SparkSession) -> None:
    """Turn off what takes values or statements otherwise than they are written, and what loses rows or parts of values,
    whatever the pipeline file says under ``spark:``."""
    from pyspark.errors import PySparkException

    for name, value in {**AS_WRITTEN, **lossless(spark)}.items():
        # A serverless cluster refuses some, which nobody can turn on there either. Literals don't need the former.
        with suppress(PySparkException):
            put(spark, name, value)


def refuse_lossy(given: SparkSession) -> None:
    """Raises ConfigurationError if a session loses rows, parts of values, newer commits or statements. Lakelock's own
    don't; these settings of one that the caller has given are the caller's, so nobody else changes them."""
    for name, instead in lossless(given).items():
        # Of the numbers of a transaction, the session is to have none.
        lost = "skip statements" if instead is None else "lose rows, parts of values, or newer commits"
        raise ConfigurationError(
            f"The session has {name} = {given.conf.get(name)}: Spark would {lost}, and say nothing.",
            hint=f"{_as_call(name, instead)}. Or give the pipeline no session: Lakelock "
            "then works in one of its own beside yours.",
        )


def _as_call(name: str, instead: str | None) -> str:
    if instead is None:
        return f"Unset it before: spark.conf.unset({name!r})"
    return f"Set it before: spark.conf.set({name!r}, {instead!r})"


@contextmanager
def _sigint_kept() -> Iterator[None]:
    """Keep Python's handler of Ctrl-C: PySpark's would cancel all jobs, while a run should end after its epoch."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def _own(options: Mapping[str, str], name: str, *, s3: bool, debug: bool, short: Callable[[], bool]) -> dict[str, str]:
    """All settings of a session whose JVM this process starts."""
    defaults = _defaults(options, s3, short)
    settings = {"spark.app.name": f"lakelock {name}", **defaults, **options}
    if _CLASS_PATH in defaults and _CLASS_PATH in options:
        settings[_CLASS_PATH] = f"{defaults[_CLASS_PATH]}:{options[_CLASS_PATH]}"
    if _log_stores_without_jar(settings) and "*" not in options.get("spark.jars", "*"):
        settings["spark.jars"] = f"{jars.LOG_STORE_JAR},{options['spark.jars']}"
    if _HIDDEN in options:
        settings[_HIDDEN] = f"{_SECRETS}|{options[_HIDDEN]}"
    for of_process in (_JAVA, _EXECUTOR_JAVA):
        # The last option counts, which is the user's own.
        settings[of_process] = f"{_EVERYWHERE} {settings.get(of_process, '')}".strip()
    at = settings.get("spark.master") or _server(options)
    if at.startswith("local"):
        # Local Python workers must find the same packages as this process, also outside an activated environment.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not debug:
        # Otherwise a failed task prints its stack trace before our one paragraph says what happened.
        quiet = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
        settings[_JAVA] = f"{settings[_JAVA]} {quiet}"
    if _CLASS_PATH in defaults:
        classes = archive.find()
        if classes is not None:
            settings[_JAVA] = f"-XX:SharedArchiveFile={classes} {settings[_JAVA]}"
        elif "ArchiveClassesAtExit" not in settings[_JAVA]:
            log.warning(
                "Spark starts some seconds more slowly than it has to: its classes were archived for another Java or "
                "other jars, or not at all. `lakelock jars` archives them."
            )
    return settings


def _submitted() -> dict[str, str]:
    """The settings given to spark-submit, as options and defaults. Empty if it hasn't started this process."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    # They are properties of the JVM, which a SparkConf knows only once it is connected to the JVM. Reading a property
    # would connect too, but Spark 3.5 can't.
    SparkContext.setSystemProperty("lakelock.connected", "true")
    return dict(SparkConf().getAll())


def _added(options: Mapping[str, str], submitted: Mapping[str, str]) -> dict[str, str]:
    """The settings that weren't submitted. They come too late for the driver's JVM, its jars and its memory."""
    missing = _log_stores_without_jar(submitted)
    safe = {name: value for name, value in SAFE.items() if name not in missing}
    settings = {name: value for name, value in {**safe, **_CODE, **options}.items() if name not in submitted}
    java = submitted.get(_EXECUTOR_JAVA, options.get(_EXECUTOR_JAVA, ""))
    return {**settings, _EXECUTOR_JAVA: f"{_EVERYWHERE} {java}".strip()}


def _log_stores_without_jar(settings: Mapping[str, str]) -> Sequence[str]:
    """The settings of our log stores, if nothing adds their jar. Without them a table on s3a:// is refused with a
    reason, and one on a local disk is written by Delta's own, instead of failing on a missing class."""
    there = any(jars.LOG_STORE_JAR.name in settings.get(name, "") for name in ("spark.jars", _CLASS_PATH))
    return () if there else (_LOG_STORE, _LOCAL_LOG_STORE)


def _defaults(options: Mapping[str, str], s3: bool, short: Callable[[], bool]) -> dict[str, str]:
    defaults = {
        **SAFE,
        **_CODE,
        # Otherwise Delta rebuilds a snapshot with 50 tasks.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.ui.showConsoleProgress": "false",
        **_jars(options, s3),
    }
    if "spark.master" not in options and not _elsewhere(options):
        defaults |= {
            "spark.master": "local[*]",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
            # Otherwise VACUUM lists a table's folder with 10,000 tasks.
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(4 * (os.cpu_count() or 2)),
            "spark.ui.enabled": "false",
            # A fold beside the epochs shares the cores with them. With FIFO it would come first.
            "spark.scheduler.mode": "FAIR",
            TUNING: "true",
        }
        if _JAVA not in options and not java.chosen_outside():
            # A short run spends most of its time on starting its JVM.
            defaults[_JAVA] = java.QUICK_START if short() else java.THROUGHPUT
    return defaults


def _for_server(settings: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """Without those that only the start of a Spark Connect server can take. Its session would show them all the same,
    and nobody could tell."""
    late = sorted(name for name in options if name.startswith(ONLY_AT_START))
    if late:
        log.warning("Set when the Spark Connect server starts, as they have no effect later: %s.", ", ".join(late))
    return {name: value for name, value in settings.items() if not name.startswith(ONLY_AT_START)}


def _server(options: Mapping[str, str]) -> str:
    """The Spark Connect server's address, or the master of one that PySpark starts. Empty: no Spark Connect."""
    return options.get("spark.remote") or os.environ.get("SPARK_REMOTE", "")


def _elsewhere(options: Mapping[str, str]) -> bool:
    """Whether the session will be a Spark Connect client."""
    return bool(_server(options))


def _jars(options: Mapping[str, str], s3: bool) -> dict[str, str]:
    """The jars in this environment, or their names for Spark to download. Raises ConfigurationError."""
    pair, local = installed(), jars.find("spark")
    if s3 and not pair.conditional_writes and options.get(_LOG_STORE, jars.LOG_STORE) == jars.LOG_STORE:
        raise ConfigurationError(
            f"Tables on S3 need Spark 4: Spark {pair.spark} has a Hadoop before 3.4.2, which doesn't support "
            "conditional writes.",
            hint=f"Install Spark 4, or set, under `spark:`, {_LOG_STORE}={LOG_STORES[1]} with its jars, which "
            "coordinates commits with DynamoDB.",
        )
    if local:
        found = [str(jar) for jar in (*local, *jars.find("s3"), *jars.own())]
        master = options.get("spark.master", "local" if not _elsewhere(options) else "")
        # In a single JVM, use its own class path: it starts faster, and the archive of classes covers these jars.
        one_jvm = master == "local" or master.startswith("local[")
        return {_CLASS_PATH: ":".join(found)} if one_jvm else {"spark.jars": ",".join(found)}
    packages = pair.packages(version("pyspark"), version("delta-spark"))
    if s3:
        packages += [f"org.apache.hadoop:hadoop-aws:{hadoop}" for hadoop in _hadoop_versions()]
    return {"spark.jars.packages": ",".join(packages), "spark.jars": ",".join(map(str, jars.own()))}


def _hadoop_versions() -> list[str]:
    """The versions of Hadoop in this pyspark. S3A works with one version only. Empty if pyspark is a client."""
    import pyspark

    name = "hadoop-client-api-"
    found = Path(pyspark.__file__).with_name("jars").glob(f"{name}*.jar")
    return [jar.stem.removeprefix(name) for jar in found]
