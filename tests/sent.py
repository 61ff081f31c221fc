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
    requests: list[Request] = field(default_factory=list)
    came: threading.Event = field(default_factory=threading.Event)


@contextmanager
def receiver() -> Iterator[Sent]:
    sent = Sent()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sent.requests.append(Request(self.command, self.path, dict(self.headers), body))
            self.send_response(sent.status)
            self.end_headers()
            sent.came.set()

        do_PUT = do_POST

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        sent.url = f"http://127.0.0.1:{server.server_port}"
        yield sent
        server.shutdown()
