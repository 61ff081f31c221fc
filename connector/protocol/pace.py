"""When the next epoch begins: as late as the latency asked for allows, so that there are as few as can be. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

_LONGEST_POLL = timedelta(seconds=1)


@dataclass(frozen=True)
class Pace:
    """Times are seconds of a clock that only grows."""

    target: timedelta
    """From a record's arrival in Kafka to its commit."""
    epoch_takes: float | None = None
    """As measured: grows at once, shrinks slowly. None: not yet."""
    looked: float | None = None
    """When Kafka was last asked what it holds."""
    waiting_since: float | None = None
    """The oldest waiting record came after this; None: none waits."""

    @property
    def poll(self) -> timedelta:
        """Between two looks."""
        return min(self.target / 10, _LONGEST_POLL)

    def after_look(self, now: float, *, waiting: bool) -> Pace:
        """What waits has come since the look before: at the earliest right after it."""
        came = self.waiting_since if self.waiting_since is not None else self.looked
        return replace(self, looked=now, waiting_since=came if waiting else None)

    def after_epoch(self, took: float) -> Pace:
        before = self.epoch_takes if self.epoch_takes is not None else took
        return replace(self, epoch_takes=max(took, (3 * before + took) / 4), waiting_since=None)

    def can_wait(self, now: float) -> bool:
        """Whether an epoch that begins one look later is still in time for the oldest record."""
        if self.waiting_since is None or self.epoch_takes is None:
            return False
        waited = now - self.waiting_since
        return waited + self.poll.total_seconds() + self.epoch_takes < self.target.total_seconds()
