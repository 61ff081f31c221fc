"""A schema registry on this machine, which speaks as Confluent's does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class RegistryServer:
    """``answers``: path -> what is there, as bytes or as a value to be written as JSON. ``trouble`` is asked first: a
    status, or None for the right answer."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = dict(answers)
        self.asked: list[str] = []
        self.authorizations: set[str | None] = set()
        self.statuses: dict[str, int] = {}
        """Path -> the status of its answer, where that isn't 200."""
        self.trouble: Callable[[], int | None] = lambda: None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                outer.authorizations.add(self.headers["Authorization"])
                status = outer.trouble()
                known = outer.answers
                path = self.path if self.path in known else self.path.removesuffix("?deleted=true")
                if status is None and path in known:
                    return self.answer(outer.statuses.get(path, 200), known[path])
                code = 40403 if "/ids/" in self.path else 40401
                self.answer(status or 404, {"error_code": code if status is None else status, "message": "no"})

            def do_POST(self) -> None:
                """As AWS's services are asked."""
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def answer(self, status: int, body: object) -> None:
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def register(
        self, subject: str, schema_id: int, schema: object, kind: str = "AVRO", references: Sequence[object] = ()
    ) -> None:
        """The next version of the subject. ``kind``: of the schema, as AVRO, JSON or PROTOBUF."""
        versions = self.answers.setdefault(f"/subjects/{subject}/versions", [])
        versions.append(len(versions) + 1)
        answer = {"id": schema_id, "schema": schema if kind == "PROTOBUF" else json.dumps(schema)}
        if references:
            answer["references"] = references
        if kind != "AVRO":  # which Confluent's leaves out
            answer["schemaType"] = kind
        for path in (
            f"schemas/ids/{schema_id}",
            *(f"subjects/{subject}/versions/{at}" for at in (versions[-1], "latest")),
        ):
            self.answers[f"/{path}"] = answer


@contextmanager
def registry_server(answers: Mapping[str, Any] | None = None) -> Iterator[RegistryServer]:
    started = RegistryServer(answers or {})
    Thread(target=started.server.serve_forever, args=(0.01,), daemon=True).start()
    yield started
    started.server.shutdown()
    started.server.server_close()
