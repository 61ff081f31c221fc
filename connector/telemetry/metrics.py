"""A run's Prometheus metrics, as an observer. docs/metrics.md explains each metric.

Lag is the distance of the committed offsets from the ends that the run has last seen, so an unfinished epoch counts.
"""

from __future__ import annotations

import time
from datetime import datetime, timezone

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from connector.protocol.steps import Event, Step
from sinks.contract import Epoch
from sinks.errors import Fenced

STATES = ("starting", "running", "retrying", "done", "failed", "fenced")
PHASES = ("begun", "prepared", "decided", "committed")
"""The phases of an epoch in two-phase commit, in their order."""
_PHASE = {
    Step.BEGUN: "begun",
    Step.PREPARED: "prepared",
    Step.DECIDED: "decided",
    Step.IN_DOUBT: "decided",
    Step.COMMITTED: "committed",
    # These tell the position that the run knows. It is an older one while the run tries again to settle an epoch.
    Step.LOOKED: "committed",
    Step.WAITING: "committed",
}
_SECONDS = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800)


class Metrics:
    """The metrics of one run, in ``registry``, each with the label ``pipeline``. An unknown value has no sample.

    ``sink`` is the place of the only sink. It is empty with several sinks, which report their commits one by one.
    """

    def __init__(self, pipeline: str, sink: str = "") -> None:
        self.registry = CollectorRegistry()
        self._pipeline, self._sink = pipeline, sink
        self._planned = self._folding = self._decided = time.monotonic()
        self._letters = 0
        self._reached: int | None = None
        """The phase in ``PHASES`` of the newest epoch. None before the first epoch."""
        self._settling = 0
        """The number of the newest epoch of which a phase is known."""

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"lakelock_{name}", text, ["pipeline", *labels], registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"lakelock_{name}", text, ["pipeline", *labels], registry=self.registry)

        def seconds(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(
                f"lakelock_{name}_seconds", text, ["pipeline", *labels], buckets=_SECONDS, registry=self.registry
            )

        self._state = gauge("run_state", "1 for the state that the run is in, 0 for the others.", "state")
        self._failures = gauge(
            "consecutive_failures", "Attempts that failed since the last epoch, or since the run last succeeded."
        ).labels(pipeline)
        self._error = gauge("last_error", "1 for the error that isn't resolved yet.", "error")
        self._retries = counter("retries", "Failed attempts that were followed by another one.", "error")
        self._behind = gauge("behind_offsets", "Offsets in Kafka that aren't committed yet, as the run last saw it.")
        self._looked = gauge("last_look_timestamp_seconds", "When the run last looked at Kafka, or took a step.")
        self._epoch = gauge("epoch", "Number of the last epoch.")
        self._committed = gauge("last_commit_timestamp_seconds", "When the last epoch was committed.")
        self._phase = gauge(
            "two_phase_state", "1 for the phase of two-phase commit of the last epoch, 0 for the others.", "state"
        )
        self._event_time = gauge("event_time_timestamp_seconds", "The newest committed event time.")
        self._watermark = gauge("watermark_timestamp_seconds", "The watermark: windows that end before it are closed.")
        self._delay = gauge(
            "event_time_delay_seconds", "From the newest event time of the last epoch with records to its commit."
        )
        self._epochs = counter("epochs", "Committed epochs.").labels(pipeline)
        self._read = counter("offsets_read", "Committed offsets.").labels(pipeline)
        self._rows = counter("rows_written", "Rows that commits added or changed.").labels(pipeline)
        self._skipped = counter("rows_skipped", "Rows that a MERGE skipped: they change nothing.").labels(pipeline)
        self._bytes = counter("bytes_written", "Bytes of files that commits added to Delta tables.").labels(pipeline)
        self._dead = counter("dead_letters", "Dead letters of committed epochs.").labels(pipeline)
        self._late = counter("late_records", "Records that arrived after their window was closed.").labels(pipeline)
        self._lost = counter(
            "offsets_lost", "Offsets that Kafka no longer had, and that the run skipped."
        ).labels(pipeline)  # fmt: skip
        self._folds = counter("folds", "Folds of change logs into their tables.").labels(pipeline)
        self._seconds = seconds("epoch", "Seconds from planning an epoch to its commit.").labels(pipeline)
        self._sink_seconds = seconds("sink_commit", "Seconds from the decision, or write, to a sink's commit.", "sink")
        self._fold_seconds = seconds("fold", "Seconds of a fold.").labels(pipeline)
        self._is("starting")

    def __call__(self, event: Event) -> None:
        """Take a step of the run."""
        now, step = time.monotonic(), event.step
        self._looked.labels(self._pipeline).set(time.time())
        if step is Step.PLANNED:
            self._planned, self._reached = now, None
            self._resumed_from(event.epoch)
        elif step is Step.READ:
            self._letters = event.letters
        elif step in (Step.WRITING, Step.DECIDED):
            self._decided = now
        elif step is Step.FOLDING:
            self._folding = now
        elif step is Step.SINK_COMMITTED:
            self._sink_seconds.labels(self._pipeline, event.sink).observe(now - self._decided)
        elif step is Step.FOLDED:
            self._folds.inc()
            self._fold_seconds.observe(now - self._folding if event.took is None else event.took)
        elif step is Step.COMMITTED:
            self._count(event, now)
        elif step is Step.RETRYING and event.error is not None:
            self._retries.labels(self._pipeline, type(event.error).__name__).inc()
            self._failed(event.error)
        self._two_phase(event)
        if step in (Step.LOOKED, Step.PLANNED, Step.COMMITTED, Step.WAITING):
            planned = event.epoch.span if step is Step.PLANNED else 0
            self._behind.labels(self._pipeline).set(event.behind + planned)
        if step in (Step.COMMITTED, Step.WAITING):
            self._failures.set(0)
            self._error.clear()
        self._is("retrying" if step is Step.RETRYING else "running")

    def ended(self, error: BaseException | None) -> None:
        """Set the final state. ``error`` is None if the run succeeded."""
        if error is not None:
            self._failed(error)
        self._is("done" if error is None else "fenced" if isinstance(error, Fenced) else "failed")

    def _is(self, state: str) -> None:
        for each in STATES:
            self._state.labels(self._pipeline, each).set(each == state)

    def _failed(self, error: BaseException) -> None:
        self._failures.inc()
        self._error.clear()
        self._error.labels(self._pipeline, type(error).__name__).set(1)

    def _resumed_from(self, epoch: Epoch) -> None:
        """Until this run's first commit, report the last commit of the run before."""
        at = epoch.expected.committed_at if epoch.expected is not None else None
        if at is not None:
            self._committed.labels(self._pipeline).set(at.timestamp())

    def _count(self, event: Event, now: float) -> None:
        epoch, committed = event.epoch, event.committed
        self._epochs.inc()
        self._seconds.observe(now - self._planned)
        if self._sink:
            self._sink_seconds.labels(self._pipeline, self._sink).observe(now - self._decided)
        self._read.inc(epoch.span)
        if committed is not None:
            self._rows.inc(committed.rows or 0)
            self._bytes.inc(committed.bytes or 0)
            self._skipped.inc(committed.unchanged or 0)
        self._dead.inc(self._letters)
        self._letters = 0
        self._late.inc(epoch.late_now)
        self._lost.inc(sum(gap.span for gap in epoch.lost_now))
        self._epoch.labels(self._pipeline).set(epoch.number)
        self._committed.labels(self._pipeline).set(time.time())
        self._tell_event_time(epoch)

    def _tell_event_time(self, epoch: Epoch) -> None:
        clock = epoch.clock
        if clock.so_far:
            newest = max(seen.high for seen in clock.so_far.values())
            self._event_time.labels(self._pipeline).set(newest.timestamp())
        if clock.of_epoch:
            newest = max(seen.high for seen in clock.of_epoch.values())
            delay = datetime.now(timezone.utc) - newest
            self._delay.labels(self._pipeline).set(delay.total_seconds())
        if clock.watermark is not None:
            self._watermark.labels(self._pipeline).set(clock.watermark.timestamp())

    def _two_phase(self, event: Event) -> None:
        phase, number = _PHASE.get(event.step), event.epoch.number
        if phase is None:
            return
        if phase != "committed" and number != self._settling:
            self._settling, self._reached = number, None
        elif phase == "committed" and (self._reached is None or number < self._settling):
            return  # a single sink has only the commit, and an older position says nothing about this epoch
        # An epoch begins while it is being prepared, so the two steps may come in either order.
        self._reached = max(self._reached or 0, PHASES.index(phase))
        for index, each in enumerate(PHASES):
            self._phase.labels(self._pipeline, each).set(index == self._reached)
