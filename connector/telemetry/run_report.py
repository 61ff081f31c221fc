"""How a run ended: a last line, an exit code, and a JSON file with the same.

The file says ``running`` from the start. A file that still says so afterwards is from a run that was killed.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from connector.delivery.ports import Delivered
from connector.protocol.steps import Event, Step
from sinks.contract import Position
from sinks.errors import ConfigurationError, LakelockError
from sinks.plurals import plural

log = logging.getLogger("lakelock.report")

EXIT_CODES = {"done": 0, "stopped": 0, "failed": 1, "refused": 2, "fenced": 3}
"""The states in the last line, by the way a run ended."""
_STATES = {code: word for word, code in EXIT_CODES.items() if code}


@dataclass
class RunReport:
    """An observer of one run, and the context in which it runs.

    ``pipeline`` is the file's name until the pipeline's own name is known. ``say`` gets the last line. ``file`` is the
    JSON file, or None. Raises ConfigurationError before anything else if the file can't be written.
    """

    pipeline: str
    say: Callable[[str], None]
    file: Path | None = None
    run: str | None = None
    state: str = "running"
    """``running``, then ``done``, ``stopped`` (by a signal, after its epoch), ``failed``, ``refused`` or ``fenced``."""
    exit_code: int | None = None
    error: LakelockError | BaseException | None = None
    epochs: int = 0
    records: int = 0
    rows: int = 0
    set_aside: int = 0
    """The number of dead letters in its epochs."""
    lost: int = 0
    """The number of offsets that Kafka no longer had, and that its epochs skipped."""
    behind: int | None = None
    position: Position | None = None
    limited: bool = False
    """Whether the run ended because it had committed as many epochs as ``--max-epochs`` says."""
    versions: dict[str, int] = field(default_factory=dict)
    """Place -> version of each Delta table, as far as the run has seen it."""
    started: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    _clock: float = field(default_factory=time.monotonic)
    _seconds: float = 0.0
    _letters: int = 0
    """The number of dead letters in the current epoch."""

    def __call__(self, event: Event) -> None:
        """Take a step of the run."""
        if event.step in (Step.LOOKED, Step.WAITING):
            self.behind = event.behind
        if event.step in (Step.STARTING, Step.LOOKED, Step.WAITING, Step.RETRYING):
            return  # nothing has begun
        self.run = event.run or self.run
        if event.sink and event.committed is not None:
            self._saw(event.sink, event.committed.position)
        if event.step is Step.PLANNED:
            self.behind = event.behind + event.epoch.span
        if event.step is Step.READ:
            self._letters = event.letters
        if event.step is Step.COMMITTED and event.committed is not None:
            self.epochs += event.counts
            self.records += event.epoch.span
            self.rows += event.committed.rows or 0
            self.set_aside, self._letters = self.set_aside + self._letters, 0
            self.lost += sum(gap.span for gap in event.epoch.lost_now)
            self.behind, self.position = event.behind, event.committed.position

    def __enter__(self) -> RunReport:
        self._write()
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if error is not None:
            self.error, self.exit_code = error, error.exit_code if isinstance(error, LakelockError) else 1
            self.state = _STATES[self.exit_code]
        self._seconds = time.monotonic() - self._clock
        self.say(self.line())
        try:
            self._write()
        except ConfigurationError as missing:  # the last line says how the run ended, which matters more
            log.warning("%s", missing.message)

    def begin(self) -> None:
        """Measure from now on: until then the run has waited for its turn."""
        self.started, self._clock = datetime.now(timezone.utc), time.monotonic()

    def ended(self, delivered: Delivered, *, table: str | None, stopped: bool) -> None:
        """Record the end of a run without error. ``table`` is the place of the only table, None with several sinks."""
        self.state, self.exit_code = "stopped" if stopped else "done", 0
        self.limited = delivered.limited and not stopped
        # An epoch that was decided in a failed round is in the events only. The end of a recreated topic is only here.
        self.epochs, self.rows = max(self.epochs, delivered.epochs), max(self.rows, delivered.rows)
        self.position = delivered.position or self.position
        self.behind = delivered.behind if delivered.behind is not None else self.behind
        if table is not None and self.position is not None:
            self._saw(table, self.position)

    def stopped(self) -> None:
        """Record that the run was stopped before it began anything."""
        self.state, self.exit_code = "stopped", 0

    def line(self) -> str:
        """The last line of the run's output. Programs may rely on its first two words."""
        state = self.state if not self.exit_code else f"{self.state}, exit code {self.exit_code}"
        if self.run is None and self.position is None and (self.exit_code or self.state == "stopped"):
            return f"{self.pipeline}: {state}. Nothing was begun."
        batches = self.position is not None and self.position.delivery != "transactional"
        where = f"; the table is at epoch {self.position.epoch}" if self.position and not batches else ""
        behind = f", {plural(self.behind, 'offset')} behind" if self.behind is not None else ""
        set_aside = f", {plural(self.set_aside, 'record')} set aside" if self.set_aside else ""
        lost = f", up to {self.lost:,} lost" if self.lost else ""
        epochs = plural(self.epochs, "batch", "batches") if batches else plural(self.epochs, "epoch")
        return (
            f"{self.pipeline}: {state}. {epochs}, {plural(self.rows, 'row')} written"
            f"{set_aside}{lost} in {self._seconds:.1f} s{where}{behind}."
            + (" It ended there because of --max-epochs; the next run goes on." if self.limited else "")
        )

    def to_dict(self) -> dict[str, object]:
        """The report as it is written to the JSON file."""
        message, hint = getattr(self.error, "message", str(self.error)), getattr(self.error, "hint", "")
        return {
            "pipeline": self.pipeline,
            "run": self.run,
            "state": self.state,
            "exit_code": self.exit_code,
            "error": {"type": type(self.error).__name__, "message": message, "hint": hint} if self.error else None,
            "started": self.started.isoformat(),
            "seconds": round(self._seconds, 3),
            "epochs": self.epochs,
            "max_epochs_reached": self.limited,
            "records": self.records,
            "rows": self.rows,
            "set_aside": self.set_aside,
            "lost": self.lost,
            "lag": self.behind,
            "epoch": self.position.epoch if self.position else None,
            "offsets": self.position.offsets.to_dict() if self.position else None,
            "tables": self.versions,
        }

    def _saw(self, sink: str, position: Position) -> None:
        if position.version is not None:
            self.versions[sink] = position.version

    def _write(self) -> None:
        if self.file is None:
            return
        write(self.file, self.to_dict())


def write(file: Path, report: Mapping[str, object]) -> None:
    """Write a report as a whole: a reader never sees a half of it. Raises ConfigurationError."""
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        new.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        new.replace(file)
    except OSError as error:
        raise ConfigurationError(f"--report: {str(file)!r} can't be written: {error.strerror}.") from None
