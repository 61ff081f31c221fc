"""How many records the next epoch may have, by what the ones before took. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

FIRST = 100_000
"""With a target, as nothing is known yet."""
LEAST = 1_000
"""An epoch has costs that don't depend on its size: were they above the target, it would shrink to nothing."""


@dataclass(frozen=True)
class EpochSize:
    records: int
    """At most, of the next epoch."""
    max_records: int
    target: timedelta | None = None
    """How long an epoch should take."""

    @classmethod
    def first(cls, max_records: int, target: timedelta | None = None) -> EpochSize:
        return cls(min(FIRST, max_records) if target else max_records, max_records, target)

    def after(self, records: int, took: timedelta) -> EpochSize:
        """After an epoch of so many: smaller at once where it took too long, at most twice as large where it was full
        and didn't. One that wasn't full says nothing of how long a larger one would take."""
        if self.target is None or took <= timedelta(0):
            return self
        fitting = int(records * (self.target / took))
        if took > self.target:
            return replace(self, records=max(min(LEAST, self.max_records), min(fitting, self.records)))
        if records < self.records:
            return self
        return replace(self, records=min(self.max_records, 2 * self.records, fitting))


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
