"""Starts a JVM without its settings on the command line, where every user of the machine could read them.

The settings are in a file that only its owner can read. It is deleted as soon as the JVM has started.

The JVM ignores SIGTERM. Service managers send it to every process of a service, and a run ends after its epoch, for
which it needs the JVM. The JVM ends when its standard input does, so with this process, however that ends.

What the JVM writes to standard error is passed on, but for a warning that Spark's launcher causes at every start: no
option of Java's turns it off, and it tells a user nothing.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from connector.spark import java

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_FILE = "--properties-file"
_REMOTE = "SPARK_REMOTE"
_HOME = "SPARK_HOME"
_LAUNCHER = "SPARK_LAUNCHER_OPTS"
_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_OF_CLIENTS = ("spark.remote", "spark.api.mode")
_STDERR = 2
_NOISE = b"WARNING: Using incubator modules: jdk.incubator.vector"


def start_jvm(settings: Mapping[str, str], *, debug: bool = False) -> None:
    """Start PySpark's JVM with these settings. A JVM that is running already stays as it is.

    ``debug``: leave its standard error as it is.

    They override the properties file that the user names in PYSPARK_SUBMIT_ARGS, or else Spark's own
    ``spark-defaults.conf``.
    """
    from pyspark import SparkContext

    before = {name: os.environ.get(name) for name in (_ARGUMENTS, _REMOTE, _HOME, _LAUNCHER)}
    given, remote = before[_ARGUMENTS], before[_REMOTE]
    arguments = shlex.split(given or "pyspark-shell")
    theirs = _spark_defaults()
    if _FILE in arguments[:-1]:
        at = arguments.index(_FILE)
        theirs = Path(arguments[at + 1])
        del arguments[at : at + 2]
    # The JVM of a Spark Connect server on this machine must not act as a client. It takes the token that its own client
    # presents from its environment: without a token it would serve anybody.
    os.environ.pop(_REMOTE, None)
    if remote is not None or "spark.remote" in settings:
        os.environ.setdefault(_TOKEN, settings.get("spark.connect.authenticate.token", str(uuid.uuid4())))
    own = {name: value for name, value in settings.items() if name not in _OF_CLIENTS}
    with TemporaryDirectory(prefix="lakelock-") as folder:
        file = Path(folder) / "spark.properties"
        file.touch(mode=0o600)
        defaults = theirs.read_text(encoding="utf-8") if theirs.is_file() else ""
        file.write_text(f"{defaults}\n{as_properties(own)}", encoding="utf-8")
        os.environ.update({**_sooner(), _ARGUMENTS: shlex.join([_FILE, str(file), *arguments])})
        try:
            with _children_ignore_sigterm(), nullcontext() if debug else _children_without_noise():
                # Connecting to the JVM starts it.
                SparkContext.setSystemProperty("lakelock.connected", "true")
        finally:
            for name, value in before.items():
                _put_back(name, value)


def _sooner() -> dict[str, str]:
    """What lets Spark's scripts start the JVM sooner, of what the environment doesn't say already."""
    import pyspark

    found = {}
    home = Path(pyspark.__file__).absolute().parent
    # The scripts would start a Python to find this out. A distribution that pip has downloaded comes first for them.
    if _HOME not in os.environ and (home / "jars").is_dir() and not (home / "spark-distribution").exists():
        found[_HOME] = str(home)
    # Of the short-lived JVM that only puts together the command line. Two collectors would be an error.
    if _LAUNCHER not in os.environ and not java.chosen_outside():
        found[_LAUNCHER] = java.QUICK_START
    return found


_forking = threading.local()


def _after_fork() -> None:
    if getattr(_forking, "ignores_sigterm", False):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if (stderr := getattr(_forking, "stderr", None)) is not None:
        os.dup2(stderr, _STDERR)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def _children_ignore_sigterm() -> Iterator[None]:
    """Processes that this thread starts within the block ignore SIGTERM, as those that PySpark starts ignore SIGINT.

    This process itself never ignores it: a signal that comes within the block must not get lost.
    """
    _forking.ignores_sigterm = True
    try:
        yield
    finally:
        _forking.ignores_sigterm = False


@contextmanager
def _children_without_noise() -> Iterator[None]:
    """Processes that this thread starts within the block write their standard error to this process, which passes it on
    line by line, to their end. The standard error of this process itself stays a terminal, if it is one."""
    reading, writing = os.pipe()
    threading.Thread(target=_pass_on, args=(reading,), name="stderr of the JVM", daemon=True).start()
    _forking.stderr = writing
    try:
        yield
    finally:
        _forking.stderr = None
        os.close(writing)


def _pass_on(reading: int) -> None:
    with open(reading, "rb") as lines:
        for line in lines:
            if line.rstrip() != _NOISE:
                with suppress(OSError):  # the JVM must not block because nobody reads this process's output any more
                    os.write(_STDERR, line)


def _put_back(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def as_properties(settings: Mapping[str, str]) -> str:
    """The settings in the format of Java's Properties."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(text: str) -> str:
    special = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    return re.sub(r"[\\=:#! \n\r\t\f]", lambda found: special.get(found[0], f"\\{found[0]}"), text)


def _spark_defaults() -> Path:
    """The properties file that Spark reads if no other is named. It may not exist."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    return Path(os.environ.get("SPARK_CONF_DIR") or f"{home}/conf") / "spark-defaults.conf"
