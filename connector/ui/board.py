"""What the page shows. One thread with one Spark session refreshes it; a request never waits for a look."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from connector.fleet.files import Fault, fault_of, one_session, read
from connector.watch.poll import Look, look


@dataclass(frozen=True)
class Seen:
    """One state of the board. It is replaced as a whole, so that a page never mixes two states."""

    looks: Mapping[str, Look | None]
    """By file, in the order of the files. None: not looked at yet."""
    fault: Fault | None = None
    """What failed for all pipelines in the last round, for example that Spark didn't start."""


class Board:
    """The last look at each pipeline. One thread writes; requests read ``seen``."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self.seen = Seen({str(file): None for file in self.files})

    def expects(self, files: Sequence[str]) -> None:
        """Show these from now on. A file with ``tables`` is one for each of its topics, which come and go."""
        self.seen = replace(self.seen, looks={file: self.seen.looks.get(file) for file in files})

    def saw(self, look: Look) -> None:
        """Take in a new look at a pipeline."""
        self.seen = Seen({**self.seen.looks, look.file: kept(self.seen.looks[look.file], look)})

    def failed(self, error: Exception) -> None:
        """Take in what ended a whole round. Every look stays as it was."""
        self.seen = replace(self.seen, fault=fault_of(error))


def kept(before: Look | None, after: Look) -> Look:
    """The look to show: ``after``, or, if that has faults, the one ``before`` with its age and the new faults."""
    if before is None or not after.faults:
        return after
    return replace(before, faults=after.faults)


class Refresher:
    """The thread that looks at all pipelines, every so many seconds. Its name is ``lakelock-ui``."""

    def __init__(self, board: Board, overrides: Sequence[str], *, every: float, debug: bool) -> None:
        self._board, self._overrides, self._every, self._debug = board, overrides, every, debug
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lakelock-ui", daemon=True)

    def start(self) -> None:
        """Begin to look, in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the running look; waits for up to 30 seconds."""
        self._stop.set()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with one_session(read(self._board.files, self._overrides), name="ui", debug=self._debug) as spark:
                    while not self._stop.is_set():
                        # Read the files again, so that a corrected file shows.
                        found = read(self._board.files, self._overrides)
                        self._board.expects([pipeline.file for pipeline in found])
                        for pipeline in found:
                            self._board.saw(look(pipeline, spark, debug=self._debug))
                            if self._stop.is_set():
                                break
                        self._stop.wait(self._every)
            except Exception as error:
                self._board.failed(error)
                self._stop.wait(self._every)
