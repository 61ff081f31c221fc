"""Tracks a run from the steps that it announces: which epoch, where time is spent, how fast, how far behind.

``progress`` shows it to a person, ``json_lines`` to a program.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

from connector.protocol.steps import Event, Step
from sinks.contract import Epoch

_PHASES = {
    Step.READ: "analyse",
    Step.PREPARED: "prepare",
    Step.DECIDED: "decide",
    Step.COMMITTED: "commit",
    Step.FOLDED: "fold",
}
"""Step -> what ended with it. With one sink all of Spark's work is in the commit, because Spark is lazy."""
_NOW = {
    Step.IN_DOUBT: "rolling forward",
    Step.RESUMED: "starting",
    Step.PLANNED: "reading",
    Step.READ: "reading",
    Step.WRITING: "writing",
    Step.BEGUN: "writing",
    Step.PREPARED: "deciding",
    Step.DECIDED: "committing",
    Step.SINK_COMMITTED: "committing",
    Step.FOLDING: "folding",
    Step.RETRYING: "waiting to try again",
}
_RECENT = 5


@dataclass(frozen=True)
class Done:
    """A committed epoch, a batch of a weaker delivery, or a fold."""

    what: str
    """``epoch``, ``batch`` or ``fold``."""
    epoch: Epoch
    offsets: int
    """The number of offsets that it read, at least the number of records."""
    rows: int | None
    """The number of rows that the commit added or changed. None if the sink can't tell."""
    seconds: float
    """Seconds from its plan, or from the poll of a batch, to its commit."""
    behind: int
    """The number of offsets in Kafka that aren't committed, as the run last saw it."""
    version: int | None
    """The version of the only table."""
    letters: int = 0
    """The number of its records that are dead letters."""
    changed: int | None = None
    """Of ``rows`` those that were in the table before, and were updated or deleted. None if the sink can't tell."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds per phase: ``analyse`` and ``commit``, and with several sinks also ``prepare`` and ``decide``."""

    @property
    def offsets_per_second(self) -> float:
        """The number of offsets read per second."""
        return self.offsets / max(self.seconds, 1e-9)


class Observed:
    """An observer that calls ``done`` for every epoch. In between, ``doing`` and other properties describe the run."""

    def __init__(self, done: Callable[[Done], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._done = done
        self._clock = clock
        self._began = self._reached = clock()
        self._phases: dict[str, float] = {}
        self._letters = 0
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RECENT)
        self.epoch: Epoch | None = None
        self.doing = "starting"
        self.behind: int | None = None
        """Offsets that aren't committed, including those of the running epoch. None if unknown."""
        self.complete_to: datetime | None = None
        """When all records in Kafka were last committed. None if that never happened."""

    def __call__(self, event: Event) -> None:
        """Take a step of the run."""
        if event.step is Step.STARTING:
            self.doing = event.stage
            return
        if event.step in (Step.LOOKED, Step.WAITING):
            self.behind = event.behind
            if event.step is Step.WAITING:
                self.doing = "waiting"
            return
        now = self._clock()
        self.epoch = event.epoch
        beside = event.step is Step.FOLDED and event.took is not None
        if beside or event.step in (Step.PLANNED, Step.FOLDING):
            self._began = self._reached = now - (event.took or 0)
            self._phases, self._letters = {}, 0
        if event.step is Step.READ:
            self._letters = event.letters
        if event.step is Step.PLANNED:
            self.behind = event.behind + event.epoch.span
            self.complete_to = event.epoch.expected.read_to if event.epoch.expected else None
            if not self._recent:
                self._recent.append((now, 0))
        phase = _PHASES.get(event.step)
        if phase is not None:
            self._phases[phase] = now - self._reached
            self._reached = now
        if event.step is not Step.OFFSETS_COMMITTED:
            self.doing = _NOW.get(event.step, "waiting")
        if event.committed is None or event.step not in (Step.COMMITTED, Step.FOLDED):
            return
        folded = event.step is Step.FOLDED
        if not folded:
            self.behind, self.complete_to = event.behind, event.epoch.read_to
            self._recent.append((now, event.epoch.span))
        what = "fold" if folded else "epoch" if event.epoch.delivery == "transactional" else "batch"
        position = event.committed.position
        self._done(
            Done(
                what,
                event.epoch,
                0 if folded else event.epoch.span,
                event.committed.rows,
                now - self._began,
                event.behind,
                position.version,
                self._letters,
                event.committed.changed,
                dict(self._phases),
            )
        )

    @property
    def seconds(self) -> float:
        """Seconds since the epoch, or the fold, began."""
        return self._clock() - self._began

    @property
    def offsets_per_second(self) -> float | None:
        """The rate over the last few epochs, including the time between them. None before the first."""
        if len(self._recent) < 2:
            return None
        (first, _), *others = self._recent
        return sum(offsets for _, offsets in others) / max(others[-1][0] - first, 1e-9)

    @property
    def seconds_behind(self) -> float | None:
        """Seconds since all records in Kafka were committed. None if no record waits, or if it is unknown."""
        if not self.behind or self.complete_to is None:
            return None
        return (datetime.now(timezone.utc) - self.complete_to).total_seconds()

    @property
    def seconds_to_catch_up(self) -> float | None:
        """Seconds until all records are committed at the current rate, without new records. None if unknown."""
        rate = self.offsets_per_second
        return self.behind / rate if rate and self.behind is not None else None
