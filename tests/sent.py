"""A little HTTP server that keeps what programs send to it."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Sent:
    url: str = ""
    status: int = 200
    """What it answers."""
    first: list[int] = field(default_factory=list)
    """What it answers before that, one request after the other."""
    headers: dict[str, str] = field(default_factory=dict)
    held: threading.Event | None = None
    """It doesn't answer before this is set."""
    requests: list[Request] = field(default_factory=list)
    came: threading.Event = field(default_factory=threading.Event)


@contextmanager
def receiver() -> Iterator[Sent]:
    sent = Sent()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sent.requests.append(Request(self.command, self.path, dict(self.headers), body))
            sent.came.set()
            if sent.held is not None:
                sent.held.wait(30)
            try:
                self.send_response(sent.first.pop(0) if sent.first else sent.status)
                for name, value in sent.headers.items():
                    self.send_header(name, value)
                self.end_headers()
            except ConnectionError:  # who has asked is gone
                pass

        do_PUT = do_POST

        def do_GET(self) -> None:
            sent.requests.append(Request(self.command, self.path, dict(self.headers), b""))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        sent.url = f"http://127.0.0.1:{server.server_port}"
        yield sent
        server.shutdown()
