"""What a run tells Prometheus: ``metrics: {port: 9464}``. An observer, as the line per epoch is.

Lag is what is committed against the ends that the run has seen: an epoch that is under way counts as behind.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from connector.config import MetricsOptions
from connector.protocol.steps import Event, Observer, Step

log = logging.getLogger("lakelock.metrics")

_SECONDS = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800)


class Metrics:
    """``registry`` holds them, each with the label ``pipeline``."""

    def __init__(self, pipeline: str) -> None:
        self.registry = CollectorRegistry()
        self._planned = self._folding = time.monotonic()
        self._decided = self._planned

        def counter(name: str, text: str) -> Counter:
            return Counter(f"lakelock_{name}", text, ["pipeline"], registry=self.registry).labels(pipeline)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"lakelock_{name}", text, ["pipeline"], registry=self.registry).labels(pipeline)

        def seconds(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(
                f"lakelock_{name}_seconds", text, ["pipeline", *labels], buckets=_SECONDS, registry=self.registry
            )

        self._epochs = counter("epochs", "Epochs that were committed.")
        self._read = counter("offsets_read", "Offsets that were committed.")
        self._rows = counter("rows_written", "Rows that commits added or changed.")
        self._lost = counter("offsets_lost", "Offsets that Kafka no longer held, and that the run left out.")
        self._behind = gauge("behind_offsets", "Offsets in Kafka that aren't committed yet, as the run last saw it.")
        self._epoch = gauge("epoch", "Number of the last epoch.")
        self._committed = gauge("last_commit_timestamp_seconds", "When the last epoch was committed.")
        self._folds = counter("folds", "Folds of what is merged on read.")
        self._seconds = seconds("epoch", "From the plan of an epoch to its commit.").labels(pipeline)
        self._fold_seconds = seconds("fold", "Of a fold.").labels(pipeline)
        self._sink_seconds = seconds("sink_commit", "From the decision to a sink's commit.", "sink")
        self._pipeline = pipeline

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if event.step is Step.PLANNED:
            self._planned = now
        elif event.step is Step.DECIDED:
            self._decided = now
        elif event.step is Step.FOLDING:
            self._folding = now
        elif event.step is Step.SINK_COMMITTED:
            self._sink_seconds.labels(self._pipeline, event.sink).observe(now - self._decided)
        elif event.step is Step.FOLDED:
            self._folds.inc()
            self._fold_seconds.observe(now - self._folding)
        if event.step is Step.COMMITTED:
            self._count(event, now - self._planned)
        if event.step in (Step.PLANNED, Step.COMMITTED):
            self._behind.set(event.behind + (event.epoch.span if event.step is Step.PLANNED else 0))

    def _count(self, event: Event, seconds: float) -> None:
        self._epochs.inc()
        self._seconds.observe(seconds)
        self._read.inc(event.epoch.span)
        self._rows.inc((event.committed and event.committed.rows) or 0)
        self._lost.inc(sum(gap.span for gap in event.epoch.lost_now))
        self._epoch.set(event.epoch.number)
        self._committed.set(time.time())


@contextmanager
def served(options: MetricsOptions | None, pipeline: str) -> Iterator[list[Observer]]:
    """The observers that the options ask for: one, or none.

    A port that is taken stops no run: it may be that of the run which this one is to replace.
    """
    if options is None:
        yield []
        return
    metrics = Metrics(pipeline)
    try:
        server, thread = start_http_server(options.port, options.host, metrics.registry)
    except OSError as error:
        log.warning(
            "no metrics of this run: %s:%s can't be listened on: %s. Each pipeline on a machine has its own.",
            options.host, options.port, error.strerror or error,
        )  # fmt: skip
        yield []
        return
    try:
        yield [metrics]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
