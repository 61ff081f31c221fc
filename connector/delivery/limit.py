"""``--max-epochs``: a run ends after so many epochs, as if it had been stopped then."""

from __future__ import annotations

import threading

from connector.protocol.steps import Event


class EpochLimit(threading.Event):
    """A stop signal that is also set once the run has committed so many epochs. It hears of them as an observer.

    ``stop`` is the signal from outside. ``most``: None for no limit.
    """

    def __init__(self, stop: threading.Event, most: int | None) -> None:
        super().__init__()
        self._stop, self._most = stop, most
        self._committed = 0

    def __call__(self, event: Event) -> None:
        """Take a step of the run."""
        self._committed += event.counts

    @property
    def reached(self) -> bool:
        """Whether the run has committed as many epochs as it may."""
        return self._most is not None and self._committed >= self._most

    def is_set(self) -> bool:
        """Whether the run is to end."""
        return self.reached or self._stop.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the signal, as `threading.Event.wait` does. Only this run's thread commits epochs."""
        return self.reached or self._stop.wait(timeout)
