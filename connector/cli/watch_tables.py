"""Several pipelines, and the epochs of one, on a terminal or for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from connector.cli.tables import status_fields
from connector.operations.history import PastEpoch, short
from connector.operations.status import Status
from connector.telemetry.progress import span
from connector.watch.poll import Fault, Watched
from connector.watch.state_words import count, ranges, standing

_COLOURS = {"good": "green", "waiting": "yellow", "bad": "red", "unknown": "dim"}


def statuses_table(found: Sequence[tuple[Watched, Status | Fault]], now: datetime) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    for heading in ("pipeline", "state", "epoch", "behind", "oldest waits", "last commit"):
        right = heading in ("epoch", "behind", "oldest waits")
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    faults = []
    for each, status in found:
        if isinstance(status, Fault):
            table.add_row(escape(each.name), "[red]can't be read[/]", "", "", "", "")
            faults.append(f"[red]{escape(each.file)}[/]: {escape(status.message)}")
            if status.hint:
                faults.append(f"[bold]what to do[/]: {escape(status.hint)}")
            continue
        kind, word = standing(status)
        position = status.position
        committed = position.committed_at if position else None
        table.add_row(
            escape(each.name),
            f"[{_COLOURS[kind]}]{escape(word)}[/]",
            str(position.epoch) if position else "-",
            f"{sum(status.lag.values()):,}",
            span(max(status.lag_seconds.values(), default=0.0)),
            f"{committed:%Y-%m-%d %H:%M:%S} UTC, {span((now - committed).total_seconds())} ago" if committed else "-",
        )
    return Group(f"{now:%Y-%m-%d %H:%M:%S} UTC", table, *faults)


def statuses_fields(found: Sequence[tuple[Watched, Status | Fault]]) -> list[dict[str, object]]:
    return [
        {"file": each.file, "error": status.message, "hint": status.hint}
        if isinstance(status, Fault)
        else {"file": each.file, **status_fields(status)}
        for each, status in found
    ]


def past_fields(epochs: Sequence[PastEpoch]) -> list[dict[str, object]]:
    return [
        {
            "epoch": each.number,
            "state": each.state,
            "at": each.at.isoformat(),
            "run": each.owner,
            "records": each.records,
            "rows": each.rows,
            "seconds_since_last": each.since_last,
            "seconds": each.took,
            "ranges": None if each.ranges is None else [list(asdict(part).values()) for part in each.ranges],
            "offsets": each.offsets.to_dict(),
            "commits": dict(each.commits),
            "lost": [list(asdict(part).values()) for part in each.lost],
            "notes": list(each.notes),
        }
        for each in epochs
    ]


def past_table(pipeline: str, epochs: Sequence[PastEpoch]) -> RenderableType:
    if not epochs:
        return f"{escape(pipeline)}: no epoch yet."
    several = any(len(each.commits) > 1 for each in epochs)
    table = Table(box=None, pad_edge=False)
    for heading in ("epoch", "committed (UTC)", "offsets", "rows", "after", "commit", "run", "remarks"):
        right = heading in ("epoch", "offsets", "rows", "after")
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for each in epochs:
        remarks = [*([] if each.state in ("committed", "done") else [each.state]), *each.notes]
        if each.lost:
            remarks.append(f"lost: {ranges(each.lost)}")
        if each.took is not None:
            remarks.append(f"took {span(each.took)}")
        commits = [f"{sink}: {commit}" if several else commit for sink, commit in each.commits.items()]
        table.add_row(
            str(each.number),
            f"{each.at:%Y-%m-%d %H:%M:%S}",
            count(each.records),
            count(each.rows),
            span(each.since_last),
            escape("\n".join(commits) or "-"),
            escape(short(each.owner)),
            escape("; ".join(remarks)),
        )
    return table
