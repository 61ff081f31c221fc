"""A TCP proxy between Kafka clients and a broker that can lose connections and responses, as a network can.

The proxy knows only Kafka's framing. A message is preceded by its length in four bytes. A request begins with its api
key (int16), api version (int16) and correlation id (int32). A response begins with the correlation id of its request.
So the proxy can drop the response to a Produce request: the broker has stored the batch, but the producer never knows.
"""

from __future__ import annotations

import contextlib
import queue
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType

PRODUCE = 0
"""Kafka's api key of a Produce request."""

# Kafka's socket.request.max.bytes. Responses are smaller, unless a consumer asks for more.
_LARGEST_FRAME = 100 * 1024 * 1024
# The proxy stops reading from one side while this many bytes wait for the other side.
_BUFFER = 1024 * 1024
_READ = 64 * 1024
_CONNECT_SECONDS = 2.0
_ANSWER_SECONDS = 10.0


class Frames:
    """Splits a stream of bytes into Kafka's messages, however the network has split the stream."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The messages that are now complete, each preceded by its length. Raises ValueError if this isn't Kafka."""
        self._held += chunk
        complete = []
        while len(self._held) >= 4:
            (size,) = struct.unpack_from(">i", self._held)
            if not 0 <= size <= _LARGEST_FRAME:
                raise ValueError(f"a message of {size} bytes: this isn't Kafka's protocol")
            if len(self._held) < 4 + size:
                break
            complete.append(bytes(self._held[: 4 + size]))
            del self._held[: 4 + size]
        return complete


class Unanswered:
    """The requests of one connection that wait for their responses, in order."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int]] = deque()

    def request(self, frame: bytes) -> None:
        """Note a request that goes to the broker. ``frame``: a message from `Frames.feed`."""
        if len(frame) >= 12:
            api_key, _version, correlation = struct.unpack_from(">hhi", frame, 4)
            self._waiting.append((correlation, api_key))

    def response(self, frame: bytes) -> int | None:
        """The api key of the request that this response answers. None if the request is unknown."""
        if len(frame) >= 8:
            (correlation,) = struct.unpack_from(">i", frame, 4)
            # The broker answers in the order of the requests. Requests with acks=0 get no answer and are skipped.
            while self._waiting:
                asked, api_key = self._waiting.popleft()
                if asked == correlation:
                    return api_key
        return None


class LostResponses:
    """The responses that `Proxy.drop_response` is to drop, and the number of those that it has dropped."""

    def __init__(self, api_key: int, count: int) -> None:
        self.api_key = api_key
        self.count = count
        self.lost = 0
        self._all = threading.Event()

    def wait(self, seconds: float) -> bool:
        """Wait until all have been lost. Returns False if that takes longer than ``seconds``."""
        return self._all.wait(seconds)

    def _lose(self, cut: Callable[[], None]) -> None:
        """Count a loss, then cut the connection, so that a client that notices the cut finds it counted."""
        self.lost += 1
        cut()
        if self.lost == self.count:
            self._all.set()


@dataclass(eq=False)
class _End:
    """One of the two sockets of a connection."""

    socket: socket.socket
    frames: Frames = field(default_factory=Frames)
    out: bytearray = field(default_factory=bytearray)


@dataclass(eq=False)
class _Connection:
    client: _End
    broker: _End
    unanswered: Unanswered = field(default_factory=Unanswered)
    # One side has closed. What it had sent is passed on, then the connection is closed.
    ending: bool = False

    @property
    def ends(self) -> tuple[_End, _End]:
        return self.client, self.broker

    def other(self, end: _End) -> _End:
        return self.broker if end is self.client else self.client


class Proxy:
    """Passes Kafka's traffic on 127.0.0.1 from ``port`` to ``target_port``. A context manager, or `start` and `close`.

    ``port`` 0 takes a free port at the first start, which stays the same afterwards. While the broker is down, clients
    are rejected with a reset. A client stays on the proxy only if the broker advertises the proxy's port
    (`connector.lab.bench.broker.Broker.proxy`). TLS isn't supported.

    One thread owns all sockets, because a reset is sent at once only if no other thread is waiting on the socket.
    """

    def __init__(self, target_port: int, port: int = 0) -> None:
        self.target_port = target_port
        self.port = port
        self._refusals = 0
        self._drops: list[LostResponses] = []
        self._lock = threading.Lock()
        self._life = threading.Lock()
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._connections: set[_Connection] = set()
        self._thread: threading.Thread | None = None

    @property
    def bootstrap(self) -> str:
        """The ``bootstrap.servers`` for clients."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start listening. Does nothing if the proxy is listening. Raises OSError if the port is taken."""
        with self._life:
            if self._thread is not None:
                return
            self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
            self._listener.setblocking(False)
            self.port = self._listener.getsockname()[1]
            self._wake, self._woken = socket.socketpair()
            self._selector = selectors.DefaultSelector()
            self._selector.register(self._listener, selectors.EVENT_READ)
            self._selector.register(self._woken, selectors.EVENT_READ)
            self._going_on = True
            self._thread = threading.Thread(target=self._run, name=f"lakelock-proxy-{self.port}", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Reset all connections and stop listening. Does nothing if the proxy is closed."""
        with self._life:
            if self._thread is None:
                return
            self._in_thread(self._end)
            self._thread.join(_ANSWER_SECONDS)
            self._thread = None
            self._wake.close()

    def cut(self) -> int:
        """Reset all connections on both sides, so that messages on their way are lost. Returns their number."""
        with self._life:
            return 0 if self._thread is None else self._in_thread(self._cut_all)

    @contextlib.contextmanager
    def refuse(self) -> Iterator[None]:
        """Reject new connections with a reset within the ``with`` block. Existing connections stay."""
        with self._lock:
            self._refusals += 1
        try:
            yield
        finally:
            with self._lock:
                self._refusals -= 1

    @contextlib.contextmanager
    def drop_response(self, api_key: int = PRODUCE, count: int = 1) -> Iterator[LostResponses]:
        """Within the ``with`` block, drop the next ``count`` responses to requests with this api key.

        The broker has carried out the request when it answers. The proxy doesn't read the response, which may be an
        error. It resets the response's connection, so later responses on that connection are lost too.
        """
        drop = LostResponses(api_key, count)
        with self._lock:
            self._drops.append(drop)
        try:
            yield drop
        finally:
            with self._lock:
                self._drops.remove(drop)

    def __enter__(self) -> Proxy:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Proxy({self.bootstrap} -> {self.target_port}, running={self._thread is not None})"

    # Callers pass their orders to the thread that owns the sockets.

    def _in_thread(self, order: Callable[[], int]) -> int:
        done: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._orders.put(lambda: done.put(order()))
        self._wake.send(b"!")
        return done.get(timeout=_ANSWER_SECONDS)

    # From here on, everything runs in that thread.

    def _run(self) -> None:
        while self._going_on:
            for key, mask in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._woken:
                    self._woken.recv(1)
                    self._orders.get()()
                else:
                    connection, end = key.data
                    # The other side may have closed the connection since the selector returned.
                    if connection in self._connections:
                        self._move(connection, end, mask)
        self._selector.close()
        self._woken.close()

    def _end(self) -> int:
        self._going_on = False
        self._listener.close()
        return self._cut_all()

    def _cut_all(self) -> int:
        present = list(self._connections)
        for connection in present:
            self._close(connection, reset=True)
        return len(present)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            # The client has gone already.
            return
        with self._lock:
            refusing = self._refusals > 0
        broker = None
        if not refusing:
            # A dead local broker refuses at once. The timeout is for a paused broker with a full queue.
            with contextlib.suppress(OSError):
                broker = socket.create_connection(("127.0.0.1", self.target_port), timeout=_CONNECT_SECONDS)
        if broker is None:
            _close(client, reset=True)
            return
        connection = _Connection(_End(client), _End(broker))
        self._connections.add(connection)
        for end in connection.ends:
            end.socket.setblocking(False)
            end.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(end.socket, selectors.EVENT_READ, (connection, end))

    def _move(self, connection: _Connection, end: _End, mask: int) -> None:
        try:
            if mask & selectors.EVENT_READ:
                self._read(connection, end)
            for side in connection.ends:
                _flush(side)
            if connection.ending and not any(side.out for side in connection.ends):
                self._close(connection, reset=False)
            else:
                self._watch(connection)
        except BlockingIOError:
            return
        except _Lost as loss:
            # Earlier responses still go to the client.
            with contextlib.suppress(OSError):
                _flush(connection.client)
            loss.drop._lose(lambda: self._close(connection, reset=True))
        except (OSError, ValueError):
            self._close(connection, reset=True)

    def _read(self, connection: _Connection, end: _End) -> None:
        other = connection.other(end)
        chunk = end.socket.recv(_READ)
        if not chunk:
            connection.ending = True
            # This side can't receive anything any more.
            end.out.clear()
        for frame in end.frames.feed(chunk):
            if end is connection.client:
                connection.unanswered.request(frame)
            else:
                self._lose_if_wanted(connection.unanswered.response(frame))
            other.out += frame

    def _lose_if_wanted(self, api_key: int | None) -> None:
        with self._lock:
            for drop in self._drops:
                if drop.api_key == api_key and drop.lost < drop.count:
                    raise _Lost(drop)

    def _watch(self, connection: _Connection) -> None:
        """Register what each side waits for. A slow reader holds up its writer, as without a proxy."""
        for end in connection.ends:
            wanted = selectors.EVENT_WRITE if end.out else 0
            if not connection.ending and len(connection.other(end).out) < _BUFFER:
                wanted |= selectors.EVENT_READ
            registered = end.socket in self._selector.get_map()
            if wanted and registered:
                self._selector.modify(end.socket, wanted, (connection, end))
            elif wanted:
                self._selector.register(end.socket, wanted, (connection, end))
            elif registered:
                self._selector.unregister(end.socket)

    def _close(self, connection: _Connection, *, reset: bool) -> None:
        self._connections.discard(connection)
        for end in connection.ends:
            if end.socket in self._selector.get_map():
                self._selector.unregister(end.socket)
            _close(end.socket, reset=reset)


class _Lost(Exception):
    """A response and its connection are to be lost."""

    def __init__(self, drop: LostResponses) -> None:
        super().__init__()
        self.drop = drop


def _flush(end: _End) -> None:
    with contextlib.suppress(BlockingIOError):
        while end.out:
            del end.out[: end.socket.send(end.out)]


def _close(socket_: socket.socket, *, reset: bool) -> None:
    if reset:
        # With a linger time of 0 seconds, close sends RST and discards unsent data.
        with contextlib.suppress(OSError):
            socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    socket_.close()
