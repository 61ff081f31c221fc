"""Whose turn it is: at most so many pipelines of a process work at the same time, the others wait for their turn.

A pipeline has its turn from its start to its end, except while it sleeps between two rounds. After an epoch that
leaves it behind it hands the turn on if others wait, so a large backlog delays nobody for longer than an epoch.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from connector.protocol.steps import Event, Step

_UNKNOWN = 1_000_000
"""Offsets that a pipeline is taken to be behind before it has looked: its first look comes early."""
_WAKE_SECONDS = 0.5


def urgency(waited: float, behind: int | None) -> float:
    """How much a pipeline's turn is due after so many seconds of waiting. Pure.

    A lag of a million offsets counts seven times as much as none. Waiting has no bound, so nobody waits forever.
    """
    return waited * (1 + math.log10(1 + (_UNKNOWN if behind is None else behind)))


class Turns:
    """The turns of one process. ``at_once``: how many pipelines work at the same time."""

    def __init__(self, at_once: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._changed = threading.Condition()
        self._free = at_once
        self._clock = clock
        self._waiting: dict[Turn, float] = {}
        """Who waits, and since when."""

    def take(self, turn: Turn) -> None:
        """Wait for a turn. Returns at once if the pipeline is to stop: what is left to do then takes no time."""
        with self._changed:
            self._waiting[turn] = self._clock()
            while not turn.is_set() and not (self._free > 0 and self._first() is turn):
                self._changed.wait(_WAKE_SECONDS)
            del self._waiting[turn]
            self._free -= 1
            self._changed.notify_all()

    def give_back(self) -> None:
        """End a turn."""
        with self._changed:
            self._free += 1
            self._changed.notify_all()

    def wanted(self) -> bool:
        """Whether anybody waits for a turn."""
        return bool(self._waiting)

    def _first(self) -> Turn:
        now = self._clock()
        return max(self._waiting, key=lambda turn: urgency(now - self._waiting[turn], turn.behind))


class Turn(threading.Event):
    """One pipeline's stop signal, which knows of turns: while the pipeline waits on it, another one has the turn.

    It is an observer too: between two epochs it hands the turn on.
    """

    def __init__(self, turns: Turns, stop: threading.Event) -> None:
        super().__init__()
        self._turns, self._stop = turns, stop
        self.behind: int | None = None
        """Offsets that the pipeline is behind, as it last saw it."""
        self._unpublished = False
        """Whether an epoch is committed, and the consumer group hasn't taken its offsets, which it may refuse."""

    def is_set(self) -> bool:
        """Whether the pipeline is to stop."""
        return self._stop.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the signal, as `threading.Event.wait` does, while others have the turn."""
        self._turns.give_back()
        try:
            return self._stop.wait(timeout)
        finally:
            self._turns.take(self)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Have the turn within the block."""
        self._turns.take(self)
        try:
            yield
        finally:
            self._turns.give_back()

    def __call__(self, event: Event) -> None:
        """Take a step of the run."""
        if event.step not in (Step.STARTING, Step.RETRYING):
            self.behind = event.behind
        if event.step is Step.COMMITTED:
            self._unpublished = True
        if event.step not in (Step.OFFSETS_COMMITTED, Step.PLANNED):
            return
        # Published: the epoch is over, and its time has been measured. Who has caught up ends its turn soon anyway.
        due = bool(event.behind) if event.step is Step.OFFSETS_COMMITTED else self._unpublished
        self._unpublished = False
        if due and self._turns.wanted():
            self._turns.give_back()
            self._turns.take(self)
