"""Tables of several pipelines, and of the epochs of one, for a terminal or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from connector.cli.tables import status_fields
from connector.fleet.files import Fault, PipelineFile
from connector.operations.history import PastEpoch
from connector.operations.status import Status
from connector.telemetry.progress import span
from connector.watch.state_words import standing

_COLOURS = {"good": "green", "waiting": "yellow", "bad": "red", "unknown": "dim"}


def statuses_table(statuses: Sequence[tuple[PipelineFile, Status | Fault]], now: datetime) -> RenderableType:
    """A line per pipeline, with the time ``now`` above, and below it why pipelines can't be read."""
    table = Table(box=None, pad_edge=False)
    for heading in ("pipeline", "state", "epoch", "behind", "oldest waits", "last commit"):
        right = heading in ("epoch", "behind", "oldest waits")
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    faults = []
    for pipeline, status in statuses:
        if isinstance(status, Fault):
            word = "[red]can't be read[/]" if status.exit_code else "no record yet"
            table.add_row(escape(pipeline.name), word, "", "", "", "")
            # The error of a file begins with its path.
            told = status.message.removeprefix(f"{pipeline.file} ")
            between = ": " if told == status.message else " "
            faults.append(f"[red]{escape(pipeline.file)}[/]{between}{escape(told)}")
            if status.hint:
                faults.append(f"[bold]what to do[/]: {escape(status.hint)}")
            continue
        kind, word = standing(status)
        position = status.position
        committed = position.committed_at if position else None
        table.add_row(
            escape(pipeline.name),
            f"[{_COLOURS[kind]}]{escape(word)}[/]",
            str(position.epoch) if position else "-",
            f"{sum(status.lag.values()):,}",
            span(status.max_lag_seconds),
            f"{committed:%Y-%m-%d %H:%M:%S} UTC, {span((now - committed).total_seconds())} ago" if committed else "-",
        )
    return Group(f"{now:%Y-%m-%d %H:%M:%S} UTC", table, *faults)


def statuses_fields(statuses: Sequence[tuple[PipelineFile, Status | Fault]]) -> list[dict[str, object]]:
    """Where several pipelines stand, as plain JSON values. A pipeline that can't be read has ``error`` and ``hint``."""
    return [
        {"file": pipeline.file, "error": status.message, "hint": status.hint}
        if isinstance(status, Fault)
        else {"file": pipeline.file, **status_fields(status)}
        for pipeline, status in statuses
    ]


def past_fields(epochs: Sequence[PastEpoch]) -> list[dict[str, object]]:
    """The last epochs as plain JSON values, for ``lakelock history --json``."""
    return [
        {
            "epoch": epoch.number,
            "state": epoch.state,
            "at": epoch.at.isoformat(),
            "run": epoch.owner,
            "records": epoch.records,
            "rows": epoch.rows,
            "seconds_since_last": epoch.since_last,
            "seconds": epoch.took,
            "phases": dict(epoch.phases),
            "ranges": None if epoch.ranges is None else [list(asdict(part).values()) for part in epoch.ranges],
            "offsets": epoch.offsets.to_dict(),
            "commits": dict(epoch.commits),
            "lost": [list(asdict(part).values()) for part in epoch.lost],
            "notes": list(epoch.notes),
        }
        for epoch in epochs
    ]
