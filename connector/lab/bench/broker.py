"""A real Kafka broker in one Java process: no Docker, no mock.

Broker and KRaft controller share the process and listen on 127.0.0.1 only. The broker is for the demo, the tests and
the crash lab. It has one replica of everything and few threads, so that it starts in seconds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
import weakref
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

from kafka import KafkaAdminClient
from kafka.errors import KafkaError, for_code

from connector.lab.bench.broker_properties import choose_listeners, refuse_reserved, server_properties
from connector.lab.bench.proxy import Proxy
from connector.spark import jars, java
from sinks.errors import ConfigurationError, JarsMissing, SourceError

START_SECONDS = 60.0
STOP_SECONDS = 30.0
TOPIC_SECONDS = 30.0

# The keeper runs Java as its child, and kills Java when the Python process that started the broker is gone, however
# that process died. The keeper polls its parent's id, which changes when the parent dies. The usual ways have holes:
# Linux's PR_SET_PDEATHSIG acts when the *thread* that started the child ends, and macOS lacks it. A pipe from the
# parent stays open in every fork of the parent. The keeper ends after Java, so a caller that has waited for the keeper
# can start another broker on the same data.
_KEEPER = """
import os, shutil, signal, subprocess, sys, threading, time
parent, leftover, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
java = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
signal.signal(signal.SIGTERM, lambda *_: java.terminate())
print(java.pid, flush=True)
def watch():
    while os.getppid() == parent:
        time.sleep(0.2)
    java.kill()
threading.Thread(target=watch, daemon=True).start()
java.wait()
if leftover and os.getppid() != parent:
    shutil.rmtree(leftover, ignore_errors=True)
"""


class Broker:
    """A Kafka broker on 127.0.0.1. Use it as a context manager, or call `start` and `stop`.

    ``data``: the folder of topics, configuration and log. None: a temporary folder, which is removed at the end of the
    ``with`` block or with the object. ``port``: None for a free port, which stays the same over restarts.
    ``properties``: Kafka's broker settings, which override the lab's defaults. Reserved ones raise
    `ConfigurationError`. ``proxied``: adds a second listener for clients whose connections are to fail, see `proxy`.
    ``secured``: adds listeners, name -> security protocol. ``listener.name...`` properties set their keys and
    mechanisms, and `address` gives their addresses.

    After `stop` or `kill`, `start` continues with the same data on the same port. The broker has its own process
    session, so Ctrl-C in a terminal reaches only Python, which stops the broker in order. The broker never outlives
    the Python process, even if that ends by SIGKILL.
    """

    def __init__(
        self,
        data: Path | None = None,
        port: int | None = None,
        properties: Mapping[str, str] = {},
        *,
        proxied: bool = False,
        secured: Mapping[str, str] = {},
    ) -> None:
        refuse_reserved(properties)
        self._temporary = data is None
        if data is None:
            self.data = Path(tempfile.mkdtemp(prefix="lakelock-broker-"))
            weakref.finalize(self, _remove, self.data, os.getpid())
        else:
            self.data = data.absolute()
        self._listeners = choose_listeners(port, proxied=proxied, secured=secured)
        self.port = self._listeners.plain
        self._properties = dict(properties)
        self._keeper: subprocess.Popen[bytes] | None = None
        self._pid = 0

    @property
    def bootstrap(self) -> str:
        """The ``bootstrap.servers`` for clients."""
        return f"127.0.0.1:{self.port}"

    def address(self, listener: str) -> str:
        """The ``bootstrap.servers`` for clients of a ``secured`` listener."""
        return f"127.0.0.1:{self._listeners.secured[listener]}"

    @property
    def log(self) -> Path:
        """The file with the broker's warnings and errors, of all its starts."""
        return self.data / "broker.log"

    @property
    def running(self) -> bool:
        """Whether the process is alive. Also False if another process has killed it."""
        return self._keeper is not None and self._keeper.poll() is None

    @property
    def pid(self) -> int | None:
        """The id of the Java process. None if it isn't running."""
        return self._pid if self.running else None

    def proxy(self) -> Proxy:
        """A proxy in front of the second listener, which isn't started yet: ``with broker.proxy() as proxy``.

        Clients with ``proxy.bootstrap`` stay on the proxy, because the second listener advertises the proxy's address.
        So there can be one proxy at a time. The proxy survives restarts of the broker. Raises `ConfigurationError`
        for a broker that isn't ``proxied``.
        """
        if self._listeners.proxied is None:
            raise ConfigurationError("this broker has no second listener", hint="Create it with `proxied=True`.")
        return Proxy(*self._listeners.proxied)

    def start(self) -> None:
        """Start the broker and wait until it answers a client. Does nothing if the broker is running.

        Raises `SourceError` with the end of the broker's log if the broker dies or doesn't answer within a minute,
        `JarsMissing` without Kafka's jars, `ConfigurationError` without Java.
        """
        if self.running:
            return
        if not jars.find("kafka"):
            raise JarsMissing(
                f"no Kafka jars in {jars.folder('kafka')}", hint="`lakelock jars` fetches them with Maven."
            )
        self.data.mkdir(parents=True, exist_ok=True)
        text = server_properties(self._listeners, self._properties)
        (self.data / "server.properties").write_text(text, encoding="ascii")
        begin = self.log.stat().st_size if self.log.exists() else 0
        try:
            self._format()
            self._launch()
            self._wait_until_up()
        except BaseException as error:
            self.kill()
            if isinstance(error, _NotUp):
                said = _tail(self.log, begin)
                raise SourceError(f"the Kafka broker at {self.bootstrap} {error}; its log ends with:\n{said}") from None
            raise

    def stop(self) -> None:
        """Stop the broker with SIGTERM, and with SIGKILL if it takes over 30 seconds. The data stay."""
        self._end(signal.SIGTERM, STOP_SECONDS)

    def kill(self) -> None:
        """End the broker with SIGKILL, as in a crash, and wait until the process is gone. The data stay."""
        self._end(signal.SIGKILL, None)

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until each partition is writable. Raises `SourceError` if the topic exists."""
        topic = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(config or {})}
        with self._admin(f"create the topic {name!r}") as admin:
            for answer in admin.create_topics({name: topic}, raise_errors=False)["topics"]:
                _check(answer["error_code"], answer["error_message"])
            wait(lambda: _ready(admin, name) == partitions, f"topic {name!r} to be ready")

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until it is gone. Raises `SourceError` if there is none."""
        with self._admin(f"delete the topic {name!r}") as admin:
            for answer in admin.delete_topics([name], raise_errors=False)["topics"]:
                _check(answer["error_code"], answer["error_message"])
            wait(lambda: name not in admin.list_topics(), f"topic {name!r} to be gone")

    def add_partitions(self, name: str, total: int) -> None:
        """Raise a topic's number of partitions to ``total``, and wait until each partition is writable.

        Clients that know the topic see the new partitions when they refresh their metadata (``metadata.max.age.ms``).
        Keys move, because Kafka's partitioner takes the key's hash modulo the number of partitions.
        """
        with self._admin(f"add partitions to the topic {name!r}") as admin:
            for answer in admin.create_partitions({name: total}, raise_errors=False).results:
                _check(answer.error_code, answer.error_message)
            wait(lambda: _ready(admin, name) == total, f"topic {name!r} to have {total} partitions")

    def __enter__(self) -> Broker:
        try:
            self.start()
        except BaseException:
            self._remove_temporary()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._temporary:
            # Nobody will read these data again, so SIGKILL is enough.
            self.kill()
            self._remove_temporary()
        else:
            self.stop()

    def __repr__(self) -> str:
        return f"Broker({self.bootstrap}, data={str(self.data)!r}, running={self.running})"

    def _format(self) -> None:
        """Give new data a cluster id. Kafka refuses to format data twice."""
        if (self.data / "kafka" / "meta.properties").exists():
            return
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        command = _java("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", "server.properties")
        with self.log.open("ab") as log:
            done = subprocess.run(command, cwd=self.data, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
        if done.returncode != 0:
            raise _NotUp(f"could not format its data folder (exit code {done.returncode})")

    def _launch(self) -> None:
        self._pid = 0
        command = _java("kafka.Kafka", "server.properties")
        leftover = str(self.data) if self._temporary else ""
        read, write = os.pipe()
        with os.fdopen(read) as said, self.log.open("ab") as log:
            try:
                self._keeper = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _KEEPER, str(os.getpid()), leftover, *command],
                    cwd=self.data,
                    stdin=subprocess.DEVNULL,
                    stdout=write,
                    stderr=log,
                    start_new_session=True,
                )
            finally:
                os.close(write)
            self._pid = int(said.readline() or 0)

    def _wait_until_up(self) -> None:
        """Wait until a client finds a broker with this cluster's id in the metadata.

        The id matters, because another broker may have taken the port and answer while this one is dying.
        """
        text = (self.data / "kafka" / "meta.properties").read_text(encoding="ascii")
        cluster = dict(line.partition("=")[::2] for line in text.splitlines())["cluster.id"]
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if not self.running:
                raise _NotUp("has ended")
            with contextlib.suppress(OSError, KafkaError):
                # A client logs errors while nobody listens, so try the port first.
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                with KafkaAdminClient(bootstrap_servers=self.bootstrap, bootstrap_timeout_ms=2_000) as admin:
                    described = admin.describe_cluster()
                if described["cluster_id"] == cluster and described["brokers"]:
                    return
            time.sleep(0.05)
        raise _NotUp(f"did not answer within {START_SECONDS:.0f} seconds")

    def _end(self, how: signal.Signals, patience: float | None) -> None:
        keeper = self._keeper
        if keeper is None:
            return
        if keeper.poll() is None:
            # The signal goes to Java, and the keeper ends after Java. Without Java's id, because `_launch` was
            # interrupted, it goes to the group of both.
            kill, target = (os.kill, self._pid) if self._pid else (os.killpg, keeper.pid)
            with contextlib.suppress(ProcessLookupError):
                kill(target, how)
            try:
                keeper.wait(patience)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    kill(target, signal.SIGKILL)
        keeper.wait()
        self._keeper = None

    def _remove_temporary(self) -> None:
        if self._temporary:
            _remove(self.data, os.getpid())

    @contextlib.contextmanager
    def _admin(self, purpose: str) -> Iterator[KafkaAdminClient]:
        """An admin client for one task. A lasting client would have to survive every restart of the broker."""
        if not self.running:
            raise SourceError(f"could not {purpose}: the broker at {self.bootstrap} isn't running")
        try:
            with KafkaAdminClient(bootstrap_servers=self.bootstrap, bootstrap_timeout_ms=10_000) as admin:
                yield admin
        except (KafkaError, TimeoutError) as error:
            raise SourceError(f"could not {purpose} at {self.bootstrap}: {error}") from error


class _NotUp(Exception):
    """The broker didn't start. The message says why."""


def _remove(folder: Path, owner: int) -> None:
    """Remove a temporary folder. Does nothing in a fork of the owner, because the owner may still use the folder."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _java(main: str, *arguments: str) -> list[str]:
    program = java.find()
    if program is None:
        home = os.environ.get("JAVA_HOME")
        raise ConfigurationError(
            f"no `java` in JAVA_HOME ({home})" if home else "no `java` on the PATH",
            hint="Install Java 17 or newer, or set JAVA_HOME to where it is.",
        )
    # The broker lives for minutes, and these options make it start a quarter faster.
    tuning = ["-Xms64m", "-Xmx512m", *java.QUICK_START.split(), "-Djava.awt.headless=true"]
    # At level INFO, errors would drown in the messages of an orderly shutdown.
    logger = "-Dorg.slf4j.simpleLogger"
    log = [
        f"{logger}.defaultLogLevel=warn",
        f"{logger}.showDateTime=true",
        f"{logger}.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
    ]
    return [str(program), *tuning, *log, "-cp", str(jars.folder("kafka") / "*"), main, *arguments]


def _check(code: int, message: str | None) -> None:
    """Raise the broker's error with its own message. The client's exceptions quote the whole request instead."""
    if code:
        error = for_code(code)
        raise error(message or error.description)


def _ready(admin: KafkaAdminClient, topic: str) -> int:
    """The number of the topic's partitions that have a leader."""
    topics = [answer for answer in admin.describe_topics([topic]) if answer["error_code"] == 0]
    return sum(p["error_code"] == 0 and p["leader_id"] >= 0 for answer in topics for p in answer["partitions"])


def wait(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds. Raises TimeoutError after half a minute. ``what``: the condition in words."""
    deadline = time.monotonic() + TOPIC_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {TOPIC_SECONDS:.0f} seconds for {what}")
        time.sleep(0.02)


def _tail(log: Path, begin: int, lines: int = 25) -> str:
    """The last lines of a log after the position ``begin``, so that errors of earlier starts are left out."""
    if not log.exists():
        return "(nothing)"
    with log.open("rb") as file:
        file.seek(max(begin, log.stat().st_size - 16_384))
        text = file.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:]) or "(nothing)"
