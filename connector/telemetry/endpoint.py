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
        self.running: list[CollectorRegistry] = []
        self.over: dict[str, CollectorRegistry] = {}
        """How the last run of a pipeline ended, until its next one. Otherwise nobody would see that it has failed."""

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for registry in (*self.running, *self.over.copy().values()):
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
_keeping = 0
"""Blocks of ``kept_open`` that go on."""


@contextmanager
def served(host: str, port: int, pipeline: str, registry: CollectorRegistry) -> Iterator[None]:
    """Serve a run's metrics within the block, and afterwards as long as the endpoint is there for others.

    Raises OSError if another process listens there.
    """
    with _LOCK:
        endpoint = _OPEN.get((host, port)) or _Endpoint.at(host, port)
        _OPEN[host, port] = endpoint
        endpoint.together.over.pop(pipeline, None)
        endpoint.together.running.append(registry)
    try:
        yield
    finally:
        with _LOCK:
            endpoint.together.over[pipeline] = registry
            endpoint.together.running.remove(registry)
            _close_unused()


def forget(pipeline: str) -> None:
    """Show no longer how the last run of a pipeline ended: others have taken its place."""
    with _LOCK:
        for endpoint in _OPEN.values():
            endpoint.together.over.pop(pipeline, None)


@contextmanager
def kept_open() -> Iterator[None]:
    """No endpoint closes within the block: between the runs of several pipelines, of which each ends by itself."""
    global _keeping
    with _LOCK:
        _keeping += 1
    try:
        yield
    finally:
        with _LOCK:
            _keeping -= 1
            _close_unused()


def _close_unused() -> None:
    for address, endpoint in () if _keeping else tuple(_OPEN.items()):
        if not endpoint.together.running:
            del _OPEN[address]
            endpoint.close()
