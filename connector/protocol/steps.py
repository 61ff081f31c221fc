"""The life of an epoch, announced at one seam. Progress, metrics and the crash lab listen; nothing else hooks in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from sinks.contract import Committed, Epoch


class Step(Enum):
    """In the order in which they happen. What a crash right after each one leaves:"""

    PLANNED = "planned"
    """Nothing was read: the next run plans the same offsets again."""
    READ = "read"
    """The epoch's query stands; nothing was written, so the next run starts over from the stored position."""
    WRITING = "writing"
    """Files without a commit, which no reader sees (VACUUM removes them), or the whole commit: Delta decides."""
    COMMITTED = "committed"
    """Rows and offsets stand together: the next run goes on behind them."""


@dataclass(frozen=True)
class Event:
    step: Step
    epoch: Epoch
    committed: Committed | None = None
    """With ``Step.COMMITTED`` only."""
    behind: int = 0
    """Offsets that were there when the run looked and still lie behind this epoch."""


Observer = Callable[[Event], None]
