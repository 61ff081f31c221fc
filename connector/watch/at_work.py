"""Whether a run is at work, as far as its traces show: no run announces itself, so this is a judgement. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from connector.operations.history import PastEpoch, short
from connector.operations.status import Status
from connector.telemetry.progress import span
from connector.watch.reports import Report
from connector.watch.state_words import Kind, count

_RECENT = 60.0
"""Seconds. A commit that is not older is a sign of a run."""
_GAPS = 3
"""Times the usual pause between two epochs of a run."""


def at_work(
    status: Status | None, past: Sequence[PastEpoch], report: Report | None, now: datetime
) -> tuple[Kind, str] | None:
    """Whether a run is at work: the kind of the answer, and the answer in words. None: nothing was seen."""
    if status is None:
        return None
    if status.in_doubt is not None:
        doubted = status.in_doubt.epoch
        return "waiting", f"Run {short(doubted.owner)} is at work on epoch {doubted.number}, or was killed."
    running = report is not None and report.state == "running"
    position = status.position
    if status.delivery != "transactional":
        return "unknown", "Its runs are members of the consumer group: ask Kafka for these."
    if position is None or position.committed_at is None:
        return ("unknown", "A report says that a run goes on.") if running else ("unknown", "No commit tells of a run.")
    if report is not None and not running and report.ended >= position.committed_at:
        return "unknown", f"No, by its report: the last run ended {span((now - report.ended).total_seconds())} ago."
    age, whose = (now - position.committed_at).total_seconds(), f"run {short(position.owner)}"
    if age <= max(_RECENT, _GAPS * _usual_gap(past, position.owner)):
        return "good", f"Yes, it seems: {whose} has committed {span(age)} ago."
    waiting = sum(status.lag.values()) - sum(back.offsets for back in status.held.held_back.values())
    if not waiting:
        more = " A report says that a run goes on." if running else ""
        return "unknown", f"Nothing is to be done, so nothing shows whether a run waits.{more}"
    sign = "A report says that a run goes on, but" if running else "No sign of one:"
    return "bad", f"{sign} {count(waiting)} offsets wait, and the last commit is {span(age)} old, by {whose}."


def _usual_gap(past: Sequence[PastEpoch], owner: str) -> float:
    gaps = [
        epoch.since_last
        for epoch, before in pairwise(past)
        if epoch.owner == before.owner == owner and epoch.since_last is not None
    ]
    return min(median(gaps), timedelta(hours=1).total_seconds()) if gaps else 0.0
