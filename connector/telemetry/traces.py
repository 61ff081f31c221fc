"""Each epoch as an OpenTelemetry trace: ``traces: true``. OpenTelemetry's environment variables give the address."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from connector.protocol.steps import Event, Step, told_its_end
from sinks.contract import Epoch
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

log = logging.getLogger("lakelock.traces")

_SPANS = {
    Step.READ: "analyse",
    Step.PREPARED: "prepare",
    Step.DECIDED: "decide",
    Step.SINK_COMMITTED: "commit",
    Step.COMMITTED: "commit",
    Step.FOLDED: "fold",
}
"""Step -> the span that ends with it, named as ``phases`` in docs/logs.md."""


@contextmanager
def traced() -> Iterator[Traces]:
    """An observer within the block. OpenTelemetry's own thread sends the spans.

    Raises ConfigurationError if OpenTelemetry isn't installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as missing:
        raise not_installed("traces", missing) from None
    resource = Resource.create({SERVICE_NAME: os.environ.get("OTEL_SERVICE_NAME", "lakelock")})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    traces = Traces(provider.get_tracer("lakelock"))
    with _said_once(logging.getLogger("opentelemetry")):
        try:
            with told_its_end(traces):
                yield traces
        finally:
            provider.shutdown()


class _Once(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        self.setLevel(logging.CRITICAL + 1)
        log.warning("traces can't be told: %s The run goes on.", record.getMessage())


@contextmanager
def _said_once(of: logging.Logger) -> Iterator[None]:
    """Log the first failure only. OpenTelemetry logs every batch that it can't send, in its own format."""
    once, propagates = _Once(logging.WARNING), of.propagate
    of.addHandler(once)
    of.propagate = False
    try:
        yield
    finally:
        of.removeHandler(once)
        of.propagate = propagates


def not_installed(option: str, missing: ImportError) -> ConfigurationError:
    """The error for an option whose library isn't installed."""
    return ConfigurationError(
        f"{option}: true needs a library that isn't installed ({missing.name}).",
        hint='pip install "lakelock[telemetry]"',
    )


class Traces:
    """An observer that makes a span per epoch, and below it a span for each phase and each sink's commit."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._root: Span | None = None
        self._reached = time.time_ns()
        self._committed_by_sink = False

    def __call__(self, event: Event) -> None:
        """Take a step of the run."""
        now, step = time.time_ns(), event.step
        if step in (Step.PLANNED, Step.FOLDING) or event.took is not None:
            self._reached = now - int((event.took or 0) * 1e9)
            self._root = self._begun("epoch" if step is Step.PLANNED else "folding", event.epoch)
        elif step is Step.RETRYING:
            self.ended(event.error)
        if self._root is None or step not in _SPANS:
            return
        in_one_of_several = step is Step.SINK_COMMITTED
        if not (step is Step.COMMITTED and self._committed_by_sink):
            self._part(_SPANS[step], event, now)
        self._committed_by_sink = in_one_of_several
        if not in_one_of_several:
            self._reached = now
        if step in (Step.COMMITTED, Step.FOLDED):
            self._done(event)

    def ended(self, error: BaseException | None) -> None:
        """End the open spans. ``error`` is why they weren't finished, None if the run succeeded."""
        from opentelemetry.trace import Status, StatusCode

        if self._root is not None:
            if error is not None:
                self._root.record_exception(error)
                self._root.set_status(Status(StatusCode.ERROR, type(error).__name__))
            self._root.end()
            self._root = None

    def _begun(self, name: str, epoch: Epoch) -> Span:
        self.ended(None)
        self._committed_by_sink = False
        ranges: dict[str, dict[str, list[int]]] = {}
        for each in epoch.ranges:
            ranges.setdefault(each.topic, {})[str(each.partition)] = [each.start, each.end]
        attributes: dict[str, str | int] = {
            "lakelock.pipeline": epoch.pipeline,
            "lakelock.run": epoch.owner,
            "lakelock.epoch": epoch.number,
            "lakelock.offsets": json.dumps(ranges),
        }
        return self._tracer.start_span(name, attributes=attributes, start_time=self._reached)

    def _part(self, name: str, event: Event, now: int) -> None:
        from opentelemetry.trace import set_span_in_context

        assert self._root is not None
        attributes = {"lakelock.sink": event.sink} if event.sink else {}
        part = self._tracer.start_span(
            name, context=set_span_in_context(self._root), attributes=attributes, start_time=self._reached
        )
        part.end(now)

    def _done(self, event: Event) -> None:
        assert self._root is not None
        self._root.set_attribute("lakelock.behind", event.behind)
        if event.committed is not None and event.committed.rows is not None:
            self._root.set_attribute("lakelock.rows", event.committed.rows)
        if event.committed is not None and event.committed.position.version is not None:
            self._root.set_attribute("lakelock.version", event.committed.position.version)
        self._root.end()
        self._root = None
