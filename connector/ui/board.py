"""What the page shows. One thread with one Spark session refreshes it; a request never waits for a look."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from connector.fleet.files import Fault, PipelineFile, fault_of, one_session, read
from connector.ui.charts import Sample
from connector.watch.poll import Look, look
from connector.watch.reports import Report, reports_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLES = 480
"""How many looks the lag is kept of: two hours, if one comes every 15 seconds."""


@dataclass(frozen=True)
class Seen:
    """One state of the board. It is replaced as a whole, so that a page never mixes two states."""

    looks: Mapping[str, Look | None]
    """By file, in the order of the files. None: not looked at yet."""
    lags: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    """By file: how far behind it was, look by look, the newest last."""
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
        lag = sum(look.status.lag.values()) if look.status is not None else None
        lags = (*self.seen.lags.get(look.file, ()), Sample(look.at, lag))[-SAMPLES:]
        self.seen = Seen(
            {**self.seen.looks, look.file: kept(self.seen.looks[look.file], look)}, {**self.seen.lags, look.file: lags}
        )

    def failed(self, error: Exception) -> None:
        """Take in what ended a whole round. Every look stays as it was."""
        self.seen = replace(self.seen, fault=fault_of(error))


def kept(before: Look | None, after: Look) -> Look:
    """The look to show: ``after``, or, if that has faults, the one ``before`` with its age and the new faults."""
    if before is None or not after.faults:
        return after
    return replace(
        before,
        faults=after.faults,
        lineage=after.lineage or before.lineage,
        text=after.text,
        report=after.report or before.report,
    )


class Refresher:
    """The thread that looks at all pipelines, every so many seconds. Its name is ``lakelock-ui``."""

    def __init__(
        self,
        board: Board,
        overrides: Sequence[str],
        *,
        every: float,
        debug: bool,
        reports: Sequence[Path] = (),
        with_rows: bool = False,
    ) -> None:
        self._board, self._overrides, self._every, self._debug = board, overrides, every, debug
        self._reports, self._with_rows = reports, with_rows
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lakelock-ui", daemon=True)

    def start(self) -> None:
        """Begin to look, in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the running look; waits for up to 30 seconds."""
        self._stop.set()
        self._thread.join(timeout=30)

    def _look(self, pipeline: PipelineFile, spark: SparkSession, report: Report | None) -> Look:
        return look(
            pipeline,
            spark,
            overrides=self._overrides,
            report=report,
            before=self._board.seen.looks.get(pipeline.file),
            with_rows=self._with_rows,
            debug=self._debug,
        )

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with one_session(read(self._board.files, self._overrides), name="ui", debug=self._debug) as spark:
                    while not self._stop.is_set():
                        # Read the files again, so that a corrected file shows.
                        found = read(self._board.files, self._overrides)
                        self._board.expects([pipeline.file for pipeline in found])
                        reports = reports_in(self._reports)
                        for pipeline in found:
                            self._board.saw(self._look(pipeline, spark, reports.get(pipeline.name)))
                            if self._stop.is_set():
                                break
                        self._stop.wait(self._every)
            except Exception as error:
                self._board.failed(error)
                self._stop.wait(self._every)
