"""What the page shows, looked at again and again by one thread with one Spark session. A request never waits for it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from connector.watch.poll import Fault, Look, fault_of, look, one_session, read


@dataclass(frozen=True)
class Seen:
    """One state of the board: replaced as a whole, so that a page never mixes two."""

    looks: tuple[Look | None, ...]
    """In the order of the files; None: not looked at yet."""
    fault: Fault | None = None
    """Of the last round as a whole: there is no Spark, say."""


class Board:
    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self.seen = Seen((None,) * len(self.files))

    def saw(self, number: int, found: Look) -> None:
        looks = list(self.seen.looks)
        looks[number] = kept(looks[number], found)
        self.seen = Seen(tuple(looks))

    def failed(self, error: Exception) -> None:
        self.seen = replace(self.seen, fault=fault_of(error))


def kept(before: Look | None, found: Look) -> Look:
    """What couldn't be seen this time stays as it was, with its age, next to what went wrong."""
    if before is None or not found.faults:
        return found
    return replace(before, faults=found.faults)


class Refresher:
    """The thread."""

    def __init__(self, board: Board, overrides: Sequence[str], *, every: float, debug: bool) -> None:
        self._board, self._overrides, self._every, self._debug = board, overrides, every, debug
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lakelock-ui", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with one_session(read(self._board.files, self._overrides), debug=self._debug) as spark:
                    while not self._stop.is_set():
                        # Read anew: a file that was mended is seen.
                        for number, each in enumerate(read(self._board.files, self._overrides)):
                            self._board.saw(number, look(each, spark, debug=self._debug))
                            if self._stop.is_set():
                                break
                        self._stop.wait(self._every)
            except Exception as error:
                self._board.failed(error)
                self._stop.wait(self._every)
