"""The reports that runs leave (``lakelock run --report FILE``): how the last run of a pipeline ended, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

_LARGEST = 10_000_000
"""Bytes. A larger file is no report."""


@dataclass(frozen=True)
class Report:
    """How a run ended, or that it goes on."""

    pipeline: str
    state: str
    """``running``, ``done``, ``stopped``, ``failed``, ``refused`` or ``fenced``."""
    started: datetime
    seconds: float
    run: str | None = None
    error: str | None = None
    message: str = ""
    hint: str = ""

    @property
    def bad(self) -> bool:
        """Whether the run ended with an error."""
        return self.state in ("failed", "refused", "fenced")

    @property
    def ended(self) -> datetime:
        """When it ended. Of a run that goes on, when it began."""
        return self.started + timedelta(seconds=self.seconds)


def reports_in(places: Sequence[Path]) -> dict[str, Report]:
    """The newest report of each pipeline, by its name: of these files, and of ``*.json`` in these folders.

    What isn't a report is passed over: a folder may hold other files.
    """
    found: dict[str, Report] = {}
    for place in places:
        for file in sorted(place.glob("*.json")) if place.is_dir() else [place]:
            for report in _reports(file):
                before = found.get(report.pipeline)
                if before is None or report.started >= before.started:
                    found[report.pipeline] = report
    return found


def _reports(file: Path) -> Iterator[Report]:
    try:
        if file.stat().st_size > _LARGEST:
            return
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return
    several = document.get("pipelines") if isinstance(document, dict) else None
    for fields in several if isinstance(several, list) else [document]:
        report = _report(fields) if isinstance(fields, dict) else None
        if report is not None:
            yield report


def _report(fields: Mapping[str, object]) -> Report | None:
    error = fields.get("error")
    told: Mapping[str, object] = error if isinstance(error, dict) else {}
    try:
        started = datetime.fromisoformat(str(fields["started"]))
        seconds = min(max(float(str(fields["seconds"])), 0.0), 1e9)
        return Report(
            str(fields["pipeline"]),
            str(fields["state"]),
            started if started.tzinfo is not None else started.replace(tzinfo=timezone.utc),
            seconds if seconds == seconds else 0.0,
            _text(fields.get("run")),
            _text(told.get("type")),
            _text(told.get("message")) or "",
            _text(told.get("hint")) or "",
        )
    except (KeyError, ValueError, OverflowError):
        return None


def _text(value: object) -> str | None:
    return None if value is None else str(value)[:4000]
