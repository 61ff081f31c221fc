"""A real Kafka broker in one Java process: no Docker, no mock.

Broker and KRaft controller share the process and listen on 127.0.0.1 only. It is made for the demo, the tests and
the crash lab: one replica of everything and few threads, so that it starts in seconds.
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

# Runs Java as its child and kills it when the Python process that wanted the broker is gone, however that died. It
# polls its parent's id, which changes when the parent dies. The usual ways have holes: Linux's PR_SET_PDEATHSIG acts
# when the *thread* that started the child ends, and macOS has nothing like it; a pipe from the parent stays open in
# every fork of it. The keeper ends after Java: who has waited for it may start another broker on the same data.
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

    ``data``: folder of topics, configuration and log; None is a temporary folder, removed at the end of the ``with``
    block (or of the object). ``port``: None is a free one, which stays the same over restarts. ``properties``: Kafka's
    own broker settings, which override the lab's defaults; the reserved ones raise `ConfigurationError`. ``proxied``:
    adds a second listener, for clients whose connections are to fail, see `proxy`. ``secured``: adds listeners, name ->
    security protocol; ``listener.name...`` properties set their keys and mechanisms, `address` gives their addresses.

    After `stop` or `kill`, `start` goes on with the same data on the same port. The broker has a session of its own:
    Ctrl-C in a terminal reaches only Python, which stops it in order. And it never outlives the Python process, even
    one that ends by SIGKILL.
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
        """The clients' ``bootstrap.servers``."""
        return f"127.0.0.1:{self.port}"

    def address(self, listener: str) -> str:
        """The ``bootstrap.servers`` for clients of a ``secured`` listener."""
        return f"127.0.0.1:{self._listeners.secured[listener]}"

    @property
    def log(self) -> Path:
        """The broker's own log (warnings and errors), of all its starts."""
        return self.data / "broker.log"

    @property
    def running(self) -> bool:
        """Whether the process is alive; false, too, if somebody else has killed it."""
        return self._keeper is not None and self._keeper.poll() is None

    @property
    def pid(self) -> int | None:
        """Id of the Java process, None when it isn't running."""
        return self._pid if self.running else None

    def proxy(self) -> Proxy:
        """A proxy in front of the second listener, not started: ``with broker.proxy() as proxy``.

        Clients that take ``proxy.bootstrap`` stay on it, because the second listener gives them the proxy's address
        for the broker's. So there can be one proxy at a time. It lives on while the broker is killed and started.
        Raises `ConfigurationError` for a broker that isn't ``proxied``.
        """
        if self._listeners.proxied is None:
            raise ConfigurationError("this broker has no second listener", hint="Make it by `Broker(proxied=True)`.")
        return Proxy(*self._listeners.proxied)

    def start(self) -> None:
        """Start the broker and wait until it answers a client; does nothing when it runs already.

        Raises `SourceError` with the end of its log when it dies or doesn't answer within a minute, `JarsMissing`
        when Kafka's jars aren't there, `ConfigurationError` when Java isn't.
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
        """End the broker in order: SIGTERM, and SIGKILL when that takes too long. The data stay."""
        self._end(signal.SIGTERM, STOP_SECONDS)

    def kill(self) -> None:
        """End the broker by SIGKILL, as a crash would; returns when the process is gone. The data stay."""
        self._end(signal.SIGKILL, None)

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until each partition can be written to. `SourceError` when it exists."""
        topic = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(config or {})}
        with self._admin(f"create the topic {name!r}") as admin:
            for each in admin.create_topics({name: topic}, raise_errors=False)["topics"]:
                _check(each["error_code"], each["error_message"])
            wait(lambda: _ready(admin, name) == partitions, f"topic {name!r} to be ready")

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until it is gone. `SourceError` when there is none."""
        with self._admin(f"delete the topic {name!r}") as admin:
            for each in admin.delete_topics([name], raise_errors=False)["topics"]:
                _check(each["error_code"], each["error_message"])
            wait(lambda: name not in admin.list_topics(), f"topic {name!r} to be gone")

    def add_partitions(self, name: str, total: int) -> None:
        """Raise a topic's number of partitions to ``total`` and wait until each can be written to.

        Clients that know the topic see the new ones when they refresh their metadata (``metadata.max.age.ms``).
        Keys move: Kafka's partitioner takes the key's hash modulo the number of partitions.
        """
        with self._admin(f"add partitions to the topic {name!r}") as admin:
            for each in admin.create_partitions({name: total}, raise_errors=False).results:
                _check(each.error_code, each.error_message)
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
            # Nobody will read these data again, so there is nothing to end in order.
            self.kill()
            self._remove_temporary()
        else:
            self.stop()

    def __repr__(self) -> str:
        return f"Broker({self.bootstrap}, data={str(self.data)!r}, running={self.running})"

    def _format(self) -> None:
        """Give the data a cluster id, once: formatting them again would be refused."""
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
        """Up is what a client takes for it: a broker in the metadata, and of our cluster.

        Of ours, because somebody else's broker may have the port, and answer while this one is dying.
        """
        text = (self.data / "kafka" / "meta.properties").read_text(encoding="ascii")
        cluster = dict(line.partition("=")[::2] for line in text.splitlines())["cluster.id"]
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if not self.running:
                raise _NotUp("has ended")
            with contextlib.suppress(OSError, KafkaError):
                # Clients log errors while nobody listens, so knock first.
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                with KafkaAdminClient(bootstrap_servers=self.bootstrap, bootstrap_timeout_ms=2_000) as admin:
                    found = admin.describe_cluster()
                if found["cluster_id"] == cluster and found["brokers"]:
                    return
            time.sleep(0.05)
        raise _NotUp(f"did not answer within {START_SECONDS:.0f} seconds")

    def _end(self, how: signal.Signals, patience: float | None) -> None:
        keeper = self._keeper
        if keeper is None:
            return
        if keeper.poll() is None:
            # Java itself, not its keeper, which ends when Java has. No id: we were interrupted before we knew it.
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
        """A client for one task: one that is kept would have to survive every restart of the broker."""
        if not self.running:
            raise SourceError(f"could not {purpose}: the broker at {self.bootstrap} isn't running")
        try:
            with KafkaAdminClient(bootstrap_servers=self.bootstrap, bootstrap_timeout_ms=10_000) as admin:
                yield admin
        except (KafkaError, TimeoutError) as error:
            raise SourceError(f"could not {purpose} at {self.bootstrap}: {error}") from error


class _NotUp(Exception):
    """The broker didn't come up, and why."""


def _remove(folder: Path, owner: int) -> None:
    """Remove a temporary folder, unless this is a fork of its owner, which may be using it still."""
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
    # This broker lives for minutes, and is up a quarter sooner so.
    tuning = ["-Xms64m", "-Xmx512m", *java.QUICK_START.split(), "-Djava.awt.headless=true"]
    # At INFO, what went wrong would drown in the messages of an orderly shutdown.
    logger = "-Dorg.slf4j.simpleLogger"
    log = [
        f"{logger}.defaultLogLevel=warn",
        f"{logger}.showDateTime=true",
        f"{logger}.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
    ]
    return [str(program), *tuning, *log, "-cp", str(jars.folder("kafka") / "*"), main, *arguments]


def _check(code: int, message: str | None) -> None:
    """Raise what the broker answered, in its own words: the client's exceptions quote the whole request instead."""
    if code:
        error = for_code(code)
        raise error(message or error.description)


def _ready(admin: KafkaAdminClient, topic: str) -> int:
    """How many of the topic's partitions have a leader."""
    found = [each for each in admin.describe_topics([topic]) if each["error_code"] == 0]
    return sum(p["error_code"] == 0 and p["leader_id"] >= 0 for each in found for p in each["partitions"])


def wait(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds. Raises TimeoutError, which says ``what`` was awaited, after half a minute."""
    deadline = time.monotonic() + TOPIC_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {TOPIC_SECONDS:.0f} seconds for {what}")
        time.sleep(0.02)


def _tail(log: Path, begin: int, lines: int = 25) -> str:
    """The end of what was logged since ``begin``: an earlier start's errors must not pass for this one's."""
    if not log.exists():
        return "(nothing)"
    with log.open("rb") as file:
        file.seek(max(begin, log.stat().st_size - 16_384))
        text = file.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:]) or "(nothing)"
