"""The steps of an epoch, announced to observers. Progress, metrics and the crash lab listen; nothing else hooks in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from sinks.contract import Committed, Epoch, Position
from sinks.errors import NoRecordYet
from sinks.offsets import Offsets


class Step(Enum):
    """The steps of a run, each with what a crash right after it leaves.

    ``OFFSETS_COMMITTED`` comes where the delivery puts it. That is the whole difference between the deliveries.
    """

    STARTING = "starting"
    """The run begins: ``stage`` says what it does. There is no epoch yet, and that of the event has the number 0.
    Nothing has changed."""
    LOOKED = "looked"
    """The run knows where the table stands and what Kafka holds; nothing is planned yet. ``behind`` counts all offsets
    that aren't committed."""
    IN_DOUBT = "in_doubt"
    """Two-phase commit: the log has a decided epoch that may not be in all sinks yet. It is rolled forward next,
    whichever run began it."""
    RESUMED = "resumed"
    """The run knows where it goes on; nothing is planned yet."""
    PLANNED = "planned"
    """The epoch's offset ranges are known: planned, or polled by a member of a consumer group. Nothing is kept: the
    next run starts from the same offsets."""
    READ = "read"
    """The epoch's query stands; nothing was written, so the next run starts over from the stored position."""
    WRITING = "writing"
    """Either files without a commit, which no reader sees and VACUUM removes, or the whole commit."""
    BEGUN = "begun"
    """Two-phase commit: the coordinator log has the epoch's ranges. Nothing is decided. The next run aborts it."""
    PREPARED = "prepared"
    """Two-phase commit: every sink holds staged rows, which no reader sees. The next run aborts the epoch."""
    DECIDED = "decided"
    """Two-phase commit: the epoch counts. The next run commits it to the sinks that lack it, without reading Kafka."""
    SINK_COMMITTED = "sink_committed"
    """Two-phase commit: the epoch is in one of the sinks. The next run commits it to the others."""
    COMMITTED = "committed"
    """The rows are in the table. Transactional: the next offsets are too, and the next run goes on from them. Other
    deliveries: the next run starts from the consumer group's offsets, wherever they are."""
    FOLDING = "folding"
    """``merge: on_read``: the change log has epochs that the table lacks. They stay there, and readers of both see
    them."""
    FOLDED = "folded"
    """``merge: on_read``: the table has these epochs too, and says up to which offsets."""
    OFFSETS_COMMITTED = "offsets_committed"
    """The consumer group has the epoch's offsets. If that is before the write (``auto_commit``), a crash loses the
    epoch. If it is after the write (``manual_commit``), the next run goes on after it. Transactional only publishes the
    offsets, for lag tools."""
    WAITING = "waiting"
    """Nothing is to be done until the run looks again: what Kafka held is committed, or can wait."""
    RETRYING = "retrying"
    """A transient failure (``error``). The run waits, and tries again from where the table stands."""


@dataclass(frozen=True)
class Event:
    """One announced step of a run, with the epoch that it belongs to."""

    step: Step
    epoch: Epoch
    committed: Committed | None = None
    """With ``Step.COMMITTED`` and ``Step.FOLDED`` only."""
    behind: int = 0
    """Offsets that Kafka held when the run last looked, and that come after this epoch."""
    letters: int = 0
    """With ``Step.READ`` only: dead letters among the epoch's records, as far as they were counted."""
    first_letter: str = ""
    """With ``letters``: what is wrong with the first one, and its coordinates."""
    note: str = ""
    """A sentence that a person should read."""
    stage: str = ""
    """With ``Step.STARTING`` only: what the run does, as ``starting Spark``."""
    sink: str = ""
    """With ``Step.SINK_COMMITTED`` only."""
    error: BaseException | None = None
    """With ``Step.RETRYING`` only."""
    took: float | None = None
    """With ``Step.FOLDED`` only: the seconds of a fold that went on beside the epochs. No ``FOLDING`` came before."""

    @property
    def counts(self) -> bool:
        """Whether an epoch or a batch was committed. The epoch that hands a table over to a consumer group is none."""
        return self.step is Step.COMMITTED and bool(self.epoch.ranges or self.epoch.delivery == "transactional")

    @property
    def run(self) -> str | None:
        """The run that announces the event. None if the epoch may be another run's, which this run rolls forward."""
        return None if self.step in (Step.IN_DOUBT, Step.SINK_COMMITTED) else self.epoch.owner


Observer = Callable[[Event], None]


def stages(observe: Observer, pipeline: str) -> Callable[[str], None]:
    """A function that announces the stages of a run's start."""
    nothing = Epoch.that_left(Position(0, Offsets()), pipeline=pipeline)
    return lambda stage: observe(Event(Step.STARTING, nothing, stage=stage))


def all_of(observers: Sequence[Observer]) -> Observer:
    """One observer that tells each of these."""

    def observe(event: Event) -> None:
        for observer in observers:
            observer(event)

    return observe


class Ending(Protocol):
    """An observer that also hears how its run ends."""

    def ended(self, error: BaseException | None) -> None:
        """Called once, with the error that ended the run, or None."""
        ...


_Ending = TypeVar("_Ending", bound=Ending)


@contextmanager
def told_its_end(observer: _Ending) -> Iterator[_Ending]:
    """Yield ``observer``, and tell it how the block ends: with None, or with the error, which is raised again.

    A run that had no first record to infer a schema from has nothing to do. It hasn't failed.
    """
    try:
        yield observer
    except NoRecordYet:
        observer.ended(None)
        raise
    except BaseException as error:
        observer.ended(error)
        raise
    observer.ended(None)
