"""How many records the next epoch may have, and when it may begin, from how long earlier epochs took. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

FIRST = 100_000
"""The first epoch's bound if there is a target: nothing is measured yet."""
LEAST = 1_000
"""The smallest bound. An epoch has fixed costs; if they exceeded the target, the bound would shrink to nothing."""


@dataclass(frozen=True)
class EpochSize:
    """The bound on the next epoch's records, adjusted after each epoch to a target duration."""

    records: int
    """The most records that the next epoch may have."""
    max_records: int
    target: timedelta | None = None
    """How long an epoch should take."""

    @classmethod
    def first(cls, max_records: int, target: timedelta | None = None) -> EpochSize:
        """The bound on the first epoch: ``max_records``, or a cautious 100,000 if there is a target."""
        return cls(min(FIRST, max_records) if target else max_records, max_records, target)

    def after(self, records: int, took: timedelta) -> EpochSize:
        """The bound after an epoch of ``records`` records that took so long.

        An epoch that took too long makes the bound smaller at once. A full epoch within the target makes it larger,
        twice as large at most. An epoch that wasn't full says nothing of how long a larger one would take.
        """
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
    """Whether a run may wait with the next epoch and still commit every record within the target latency.

    Times are seconds of a monotonic clock.
    """

    target: timedelta
    """The time from a record's arrival in Kafka to its commit."""
    epoch_takes: float | None = None
    """Seconds that an epoch takes. Grows at once, shrinks slowly. None: not measured yet."""
    looked: float | None = None
    """When Kafka was last asked what it holds."""
    waiting_since: float | None = None
    """The oldest waiting record arrived after this time. None: no record waits."""

    @property
    def poll(self) -> timedelta:
        """The time between two looks at Kafka: a tenth of the target, one second at most."""
        return min(self.target / 10, _LONGEST_POLL)

    def after_look(self, now: float, *, waiting: bool) -> Pace:
        """The pace after a look at Kafka at time ``now``.

        What waits now has come since the previous look, so right after that look at the earliest.
        """
        came = self.waiting_since if self.waiting_since is not None else self.looked
        return replace(self, looked=now, waiting_since=came if waiting else None)

    def after_epoch(self, took: float) -> Pace:
        """The pace after an epoch that took ``took`` seconds. Nothing is waiting then."""
        before = self.epoch_takes if self.epoch_takes is not None else took
        return replace(self, epoch_takes=max(took, (3 * before + took) / 4), waiting_since=None)

    def can_wait(self, now: float) -> bool:
        """Whether an epoch that begins one look later would still commit the oldest record in time."""
        if self.waiting_since is None or self.epoch_takes is None:
            return False
        waited = now - self.waiting_since
        return waited + self.poll.total_seconds() + self.epoch_takes < self.target.total_seconds()
