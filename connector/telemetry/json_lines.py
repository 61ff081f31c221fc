"""A run's output for programs: one JSON object per line, on standard error. docs/logs.md lists the fields."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from connector.protocol.steps import Event, Observer
from connector.telemetry.tracker import Done, Observed
from sinks.errors import LakelockError


def configure(level: str, *, as_json: bool, say: Callable[[str], None]) -> None:
    """Set up the loggers ``lakelock.*`` of this process. ``say`` gets each line."""
    handler = _Said(say)
    handler.setFormatter(_Json() if as_json else logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    log = logging.getLogger("lakelock")
    log.handlers, log.propagate = [handler], False
    log.setLevel(level.upper())


class JsonLines:
    """An observer that writes a line for every epoch, batch and fold, and one for the end."""

    def __init__(self, say: Callable[[str], None], pipeline: str) -> None:
        self._say = say
        self._pipeline = pipeline
        self._run: str | None = None
        self._observed = Observed(self._done)

    def __call__(self, event: Event) -> None:
        """Take a step of the run."""
        self._run = event.run or self._run
        if event.note:
            self.write("note", message=event.note)
        self._observed(event)

    def write(self, event: str, level: str = "info", **fields: Any) -> None:
        """Write one line."""
        self._say(_line(level, event=event, pipeline=self._pipeline, run=self._run, **fields))

    def failed(self, error: BaseException) -> None:
        """Write the line for an error."""
        message, hint = getattr(error, "message", None) or str(error), getattr(error, "hint", "")
        code = error.exit_code if isinstance(error, LakelockError) else 1
        self.write("error", "error", error=type(error).__name__, message=message, hint=hint, exit_code=code)

    def _done(self, done: Done) -> None:
        epoch = done.epoch
        self.write(
            done.what,
            epoch=epoch.number,
            offsets=done.offsets,
            rows=done.rows,
            changed=done.changed,
            set_aside=done.letters,
            seconds=round(done.seconds, 3),
            offsets_per_second=round(done.offsets_per_second, 1),
            behind=done.behind,
            version=done.version,
            lost=sum(gap.span for gap in epoch.lost_now),
            complete_to=epoch.read_to.isoformat() if epoch.read_to else None,
            phases={name: round(seconds, 3) for name, seconds in done.phases.items()},
        )


@contextmanager
def json_lines(say: Callable[[str], None], pipeline: str) -> Iterator[Observer]:
    """An observer within the block, which also writes a line for the block's error."""
    lines = JsonLines(say, pipeline)
    try:
        yield lines
    except BaseException as error:
        lines.failed(error)
        raise


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return _line(
            record.levelname.lower(), record.created, event="log", logger=record.name, message=record.getMessage()
        )


class _Said(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(self.format(record))


def _line(level: str, at: float | None = None, /, **fields: Any) -> str:
    when = datetime.fromtimestamp(time.time() if at is None else at, timezone.utc)
    return json.dumps({"time": when.isoformat(timespec="milliseconds"), "level": level, **fields}, ensure_ascii=False)
