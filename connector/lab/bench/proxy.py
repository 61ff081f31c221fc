"""A TCP proxy between Kafka clients and a broker. It loses what a network can lose.

It knows Kafka's framing and no more: each message is its length in four bytes, then the message. A request begins with
api key (int16), api version (int16), correlation id (int32), a response with the correlation id of its request. So it
can swallow the answer to a Produce request: the broker has stored the batch, and the producer will never hear of it.
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

# Kafka's socket.request.max.bytes; responses are smaller still, unless a consumer asks for more.
_LARGEST_FRAME = 100 * 1024 * 1024
# Read no more from one side while the other has this much to take.
_BUFFER = 1024 * 1024
_READ = 64 * 1024
_CONNECT_SECONDS = 2.0
_ANSWER_SECONDS = 10.0


class Frames:
    """Cuts a stream of bytes into Kafka's messages, however the network has cut it."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The messages that are complete now, each with its length in front. `ValueError`: this isn't Kafka."""
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
        """Note a request (as `Frames.feed` gives it) that goes to the broker."""
        if len(frame) >= 12:
            api_key, _version, correlation = struct.unpack_from(">hhi", frame, 4)
            self._waiting.append((correlation, api_key))

    def response(self, frame: bytes) -> int | None:
        """The api key of the request that this response answers, None when it isn't known."""
        if len(frame) >= 8:
            (correlation,) = struct.unpack_from(">i", frame, 4)
            # The broker answers in the order of the requests. One that is passed over gets no answer: acks=0.
            while self._waiting:
                asked, api_key = self._waiting.popleft()
                if asked == correlation:
                    return api_key
        return None


class LostResponses:
    """What `Proxy.drop_response` has asked for, and how much of it has happened."""

    def __init__(self, api_key: int, count: int) -> None:
        self.api_key = api_key
        self.count = count
        self.lost = 0
        self._all = threading.Event()

    def wait(self, seconds: float) -> bool:
        """Wait until all have been lost; False when ``seconds`` have passed before."""
        return self._all.wait(seconds)

    def _lose(self, cut: Callable[[], None]) -> None:
        """Count before the connection is cut, so that whoever sees the cut finds it counted; tell after it."""
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
    # One side has said goodbye: hand over what it had sent, and close.
    ending: bool = False

    @property
    def ends(self) -> tuple[_End, _End]:
        return self.client, self.broker

    def other(self, end: _End) -> _End:
        return self.broker if end is self.client else self.client


class Proxy:
    """Passes Kafka's traffic on 127.0.0.1 from ``port`` to ``target_port``, as a context manager or `start`, `close`.

    ``port`` 0 asks the system for one at the first start; it stays the same afterwards. A client whose connection
    can't be passed on, because the broker is down, is turned away with a reset. A client stays on the proxy only when
    the broker advertises the proxy's port (`connector.lab.bench.broker.Broker.proxy`). No TLS.

    One thread owns all sockets: a reset is sent at once only when no other thread is waiting on the socket.
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
        """What clients take as ``bootstrap.servers``."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen; does nothing when it does already. `OSError` when the port is taken."""
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
        """Reset all connections and listen no more; does nothing when it is closed."""
        with self._life:
            if self._thread is None:
                return
            self._in_thread(self._end)
            self._thread.join(_ANSWER_SECONDS)
            self._thread = None
            self._wake.close()

    def cut(self) -> int:
        """Reset all present connections, on both sides: what is on its way is lost. Their number."""
        with self._life:
            return 0 if self._thread is None else self._in_thread(self._cut_all)

    @contextlib.contextmanager
    def refuse(self) -> Iterator[None]:
        """Turn new connections away with a reset within the ``with`` block; present ones stay."""
        with self._lock:
            self._refusals += 1
        try:
            yield
        finally:
            with self._lock:
                self._refusals -= 1

    @contextlib.contextmanager
    def drop_response(self, api_key: int = PRODUCE, count: int = 1) -> Iterator[LostResponses]:
        """Within the ``with`` block, swallow the next ``count`` responses to requests with this api key.

        The connection of each is reset. The broker has done what it was asked when it answers. Responses behind the
        swallowed one on its connection are lost with it. What the response says isn't looked at: it may be an error.
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

    # What a caller wants done with the sockets goes to the thread that owns them.

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
                    # Its other side may have ended it since the selector looked.
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
            # It was gone before we looked.
            return
        with self._lock:
            refusing = self._refusals > 0
        broker = None
        if not refusing:
            # On this host a broker that is down answers at once; the limit is for one that is stopped and full.
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
            for each in connection.ends:
                _flush(each)
            if connection.ending and not any(each.out for each in connection.ends):
                self._close(connection, reset=False)
            else:
                self._watch(connection)
        except BlockingIOError:
            return
        except _Lost as loss:
            # The responses before it were passed on.
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
            # Nobody is there to take it.
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
        """Wait for what each side can do next: a slow reader holds its writer up, as it would without a proxy."""
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
    """A response is to be lost, and the connection with it."""

    def __init__(self, drop: LostResponses) -> None:
        super().__init__()
        self.drop = drop


def _flush(end: _End) -> None:
    with contextlib.suppress(BlockingIOError):
        while end.out:
            del end.out[: end.socket.send(end.out)]


def _close(socket_: socket.socket, *, reset: bool) -> None:
    if reset:
        # A linger time of 0 seconds: close sends RST, and throws away what has not been sent.
        with contextlib.suppress(OSError):
            socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    socket_.close()
