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
