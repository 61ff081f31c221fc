"""Where Prometheus scrapes metrics: one server per address, for all pipelines of this process that name it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector


class _Together(Collector):
    """The metrics of several registries, each metric once, with the samples of all."""

    def __init__(self) -> None:
        self.registries: list[CollectorRegistry] = []

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for registry in tuple(self.registries):
            for metric in registry.collect():
                if metric.name in found:
                    found[metric.name].samples += metric.samples
                else:
                    found[metric.name] = metric
        yield from found.values()


@dataclass
class _Endpoint:
    server: Any
    thread: threading.Thread
    together: _Together

    @classmethod
    def at(cls, host: str, port: int) -> _Endpoint:
        together, registry = _Together(), CollectorRegistry()
        registry.register(together)
        return cls(*start_http_server(port, host, registry), together)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


_LOCK = threading.Lock()
_OPEN: dict[tuple[str, int], _Endpoint] = {}


@contextmanager
def served(host: str, port: int, registry: CollectorRegistry) -> Iterator[None]:
    """Serve metrics within the block. Raises OSError if another process listens there."""
    with _LOCK:
        endpoint = _OPEN.get((host, port)) or _Endpoint.at(host, port)
        _OPEN[host, port] = endpoint
        endpoint.together.registries.append(registry)
    try:
        yield
    finally:
        with _LOCK:
            endpoint.together.registries.remove(registry)
            if not endpoint.together.registries:
                del _OPEN[host, port]
                endpoint.close()
