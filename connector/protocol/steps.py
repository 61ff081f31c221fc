"""The life of an epoch, announced at one seam. Progress, metrics and the crash lab listen; nothing else hooks in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from sinks.contract import Committed, Epoch


class Step(Enum):
    """What a crash right after each one leaves. ``OFFSETS_COMMITTED`` comes where the delivery puts it: that is the
    whole difference between the deliveries."""

    LOOKED = "looked"
    """The run knows where the table stands and what Kafka holds; nothing is planned yet. ``behind`` is all that isn't
    committed."""
    IN_DOUBT = "in_doubt"
    """Two-phase commit: an epoch was found that is decided, and not known to be in all sinks. Whatever run it is of, it
    is rolled forward next."""
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
    WAITING = "waiting"
    """All is well, and nothing to do until the run looks again: what Kafka held is committed, or can wait."""
    RETRYING = "retrying"
    """What may pass has failed (``error``), and is tried again after a while, from where the table stands."""


@dataclass(frozen=True)
class Event:
    step: Step
    epoch: Epoch
    committed: Committed | None = None
    """With ``Step.COMMITTED`` and ``Step.FOLDED`` only."""
    behind: int = 0
    """Offsets that were there when the run looked and still lie behind this epoch."""
    letters: int = 0
    """With ``Step.READ`` only: dead letters among the epoch's records, as far as they were counted."""
    note: str = ""
    """Something that a person should read."""
    sink: str = ""
    """With ``Step.SINK_COMMITTED`` only."""
    error: BaseException | None = None
    """With ``Step.RETRYING`` only."""

    @property
    def run(self) -> str | None:
        """The run that announces it; None where the epoch may be that of another, which is rolled forward."""
        return None if self.step in (Step.IN_DOUBT, Step.SINK_COMMITTED) else self.epoch.owner


Observer = Callable[[Event], None]


class Ending(Protocol):
    """An observer that also hears how its run ends."""

    def ended(self, error: BaseException | None) -> None: ...


_Ending = TypeVar("_Ending", bound=Ending)


@contextmanager
def told_its_end(observer: _Ending) -> Iterator[_Ending]:
    """``observer``, which is told how the block ends."""
    try:
        yield observer
    except BaseException as error:
        observer.ended(error)
        raise
    observer.ended(None)
