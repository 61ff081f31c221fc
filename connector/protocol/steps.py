"""The life of an epoch, announced at one seam. Progress, metrics and the crash lab listen; nothing else hooks in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from sinks.contract import Committed, Epoch


class Step(Enum):
    """What a crash right after each one leaves. ``OFFSETS_COMMITTED`` comes where the delivery puts it: that is the
    whole difference between the deliveries."""

    RESUMED = "resumed"
    """The run knows where it goes on; nothing is planned yet."""
    PLANNED = "planned"
    """The epoch's offset ranges are known: planned, or polled by a member of a consumer group. Nothing is kept: the
    next run starts from the same offsets."""
    READ = "read"
    """The epoch's query stands; nothing was written, so the next run starts over from the stored position."""
    WRITING = "writing"
    """Files without a commit, which no reader sees (VACUUM removes them), or the whole commit: Delta decides."""
    BEGUN = "begun"
    """Two-phase commit: the coordinator's log has the epoch's ranges. Nothing is decided: the next run aborts it."""
    PREPARED = "prepared"
    """Two-phase commit: every sink holds the rows, and shows none. As before."""
    DECIDED = "decided"
    """Two-phase commit: the epoch counts. The next run commits it where it isn't yet, without reading Kafka."""
    SINK_COMMITTED = "sink_committed"
    """Two-phase commit: the epoch is in one of the sinks. As before."""
    COMMITTED = "committed"
    """The rows are in the table. Transactional: with their offsets, the next run goes on behind them. Else the next
    run starts from the offsets of the consumer group, wherever those stand."""
    FOLDING = "folding"
    """Merged on read: the log of changes has epochs that the table has not. They stay there, and are current to all
    who read both."""
    FOLDED = "folded"
    """Merged on read: the table has them too, and says up to which offsets. The log goes on."""
    OFFSETS_COMMITTED = "offsets_committed"
    """The consumer group has the epoch's offsets. Before the write (auto-commit), a crash loses the epoch; after it
    (manual commit), the next run goes on behind it. Transactional only publishes them, for lag tools."""


@dataclass(frozen=True)
class Event:
    step: Step
    epoch: Epoch
    committed: Committed | None = None
    """With ``Step.COMMITTED`` and ``Step.FOLDED`` only."""
    behind: int = 0
    """Offsets that were there when the run looked and still lie behind this epoch."""
    note: str = ""
    """Something that a person should read."""
    sink: str = ""
    """With ``Step.SINK_COMMITTED`` only."""


Observer = Callable[[Event], None]
