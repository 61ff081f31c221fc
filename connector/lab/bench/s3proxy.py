"""A proxy in front of an S3 endpoint that fails as object stores and networks fail.

The proxy knows only HTTP. Its worst fault is to pass a request on and lose the answer: the store has carried out the
request, but the client doesn't know and asks again. TLS isn't supported, and the store must not check the signature of
the Host header.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Literal
from urllib.parse import urlsplit

Fault = Literal["error", "slow_down", "reset", "lost_answer", "silence"]

_SECONDS = 60.0
_SILENCE = 45.0
"""Seconds: S3A waits for an answer for 15 at least, whatever it is told."""
_ERRORS: dict[str, tuple[int, str]] = {"error": (500, "InternalError"), "slow_down": (503, "SlowDown")}
# Headers of the connection, not of the message. The proxy computes the length again.
_OWN_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect", "server", "date"}


@dataclass(frozen=True)
class Odds:
    """The probability of each fault for a request, from 0 to 1. Their sum is at most 1."""

    error: float = 0.0
    """The proxy answers 500, and the store doesn't get the request."""
    slow_down: float = 0.0
    """The proxy answers 503, as S3 does after too many requests, and the store doesn't get the request."""
    reset: float = 0.0
    """The connection is reset before the store gets the request."""
    lost_answer: float = 0.0
    """The store carries out the request, then the connection is reset."""
    silence: float = 0.0
    """The store carries out the request, and the client's own timeout has to end it."""

    def draw(self, number: float) -> Fault | None:
        """The fault for a random number from ``[0, 1)``. None: no fault."""
        for fault, odds in (
            ("error", self.error),
            ("slow_down", self.slow_down),
            ("reset", self.reset),
            ("lost_answer", self.lost_answer),
            ("silence", self.silence),
        ):
            if number < odds:
                return fault  # type: ignore[return-value]
            number -= odds
        return None


@dataclass
class Request:
    """A client's request. A proxy's ``change`` may alter the headers."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class S3Proxy:
    """Passes requests from ``endpoint`` to the store at ``target``, an http:// URL. A context manager.

    ``odds``: the probabilities of the faults. ``strikes``: which requests may have a fault. ``change``: called with
    every request first, in the request's own thread, and may wait or alter the request. ``happened`` counts the faults.
    """

    def __init__(
        self,
        target: str,
        odds: Odds | None = None,
        *,
        seed: int = 0,
        strikes: Callable[[Request], bool] = lambda _: True,
        change: Callable[[Request], None] = lambda _: None,
    ) -> None:
        at = urlsplit(target)
        self._target = (at.hostname or "", at.port or 80)
        self.odds = odds or Odds()
        self.happened: Counter[Fault] = Counter()
        self._strikes = strikes
        self._change = change
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._server = _Server(self)

    @property
    def endpoint(self) -> str:
        """The store's endpoint for clients, a URL."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> S3Proxy:
        threading.Thread(target=self._server.serve_forever, name="lakelock-s3-proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fate(self, request: Request) -> Fault | None:
        """Call ``change`` with a request, and draw the request's fault. None: no fault."""
        self._change(request)
        if not self._strikes(request):
            return None
        with self._lock:
            fault = self.odds.draw(self._random.random())
            if fault is not None:
                self.happened[fault] += 1
            return fault

    def ask(self, request: Request) -> tuple[int, list[tuple[str, str]], bytes]:
        """The store's answer: status, headers, body."""
        connection = HTTPConnection(*self._target, timeout=_SECONDS)
        try:
            connection.request(request.method, request.path, request.body, request.headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, proxy: S3Proxy) -> None:
        self.proxy = proxy
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing if a client disconnects in the middle of a request."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    # Without this, an answer's second part would wait until the client has acknowledged the first.
    disable_nagle_algorithm = True

    def _pass(self) -> None:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            self.send_error(411)
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN_HEADERS}
        request = Request(self.command, self.path, headers, body)
        fault = self.server.proxy.fate(request)
        if fault in _ERRORS:
            status, code = _ERRORS[fault]
            text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>by the proxy</Message></Error>"
            self._answer(status, [("Content-Type", "application/xml")], text.encode())
        elif fault == "reset":
            self._reset()
        else:
            try:
                status, answered, content = self.server.proxy.ask(request)
            except (OSError, HTTPException):
                self._reset()
                return
            if fault == "silence":
                time.sleep(_SILENCE)
            if fault in ("lost_answer", "silence"):
                self._reset()
            else:
                self._answer(status, answered, content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() not in _OWN_HEADERS:
                self.send_header(name, value)
            elif name.lower() == "content-length" and self.command == "HEAD":
                length = value
        if status not in (204, 304):
            self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _reset(self) -> None:
        # With a linger time of 0 seconds, close sends RST. The reader holds the socket open too, so both are closed.
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.rfile.close()
        self.connection.close()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def slow_commits(seconds: float) -> Callable[[Request], None]:
    """For ``change``: delay every write of a Delta commit, so that other writers look for it before it exists."""

    def change(request: Request) -> None:
        if request.method == "PUT" and "/_delta_log/" in request.path and request.path.endswith(".json"):
            time.sleep(seconds)

    return change


def unconditional(request: Request) -> None:
    """For ``change``: drop ``If-None-Match``, as if the store didn't support conditional writes."""
    for name in [name for name in request.headers if name.lower() == "if-none-match"]:
        del request.headers[name]
