"""The page itself: made on the server from what the board holds, for GET only, and from nowhere but here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from ipaddress import ip_address
from urllib.parse import urlsplit

from flask import Flask, Response, abort, render_template, request

from connector.operations.dead_letters import LetterGroup
from connector.operations.history import PastEpoch, short
from connector.operations.status import Status
from connector.protocol.two_phase import State
from connector.telemetry.progress import span
from connector.ui.board import Board
from connector.watch.poll import Look
from connector.watch.state_words import count, of_look, ranges

_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_READS = ("GET", "HEAD")
_STALE = 300.0
"""Seconds. What is older says nothing of how a pipeline stands now: the last thing to show then is "up to date"."""
_BAR = 14
_HEIGHT = 64


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def page(board: Board, *, host: str = "127.0.0.1", now: Callable[[], datetime] | None = None) -> Flask:
    app = Flask(__name__)
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    clock = now or (lambda: datetime.now(timezone.utc))

    def stands(found: Look | None) -> tuple[str, str]:
        if found is None:
            return "unknown", "not seen yet"
        age = (clock() - found.at).total_seconds()
        if age > _STALE and not found.faults:
            return "bad", f"not seen for {span(age)}"
        return of_look(found)

    @app.before_request
    def only_reads_from_here() -> None:
        if is_loopback(host) and not _is_here(request.host):
            # A page elsewhere whose name was pointed at this machine would read along in the person's own browser.
            abort(403, "This page is for this machine: open it as 127.0.0.1 or localhost.")
        if request.method not in _READS:
            abort(Response("The page is for reading only.\n", 405, {"Allow": ", ".join(_READS)}))

    @app.after_request
    def guarded(response: Response) -> Response:
        response.headers.update(_HEADERS)
        return response

    app.add_template_filter(span, "span")
    app.add_template_filter(count, "count")
    app.add_template_filter(short, "short")
    app.add_template_filter(ranges, "ranges")
    app.add_template_filter(lambda time: f"{time:%Y-%m-%d %H:%M:%S}" if time else "-", "time")
    app.add_template_filter(lambda time: (clock() - time).total_seconds() if time else None, "age")

    @app.get("/")
    def pipelines() -> str:
        seen = board.seen
        shown = [(file, found, stands(found)) for file, found in zip(board.files, seen.looks, strict=True)]
        bad = sum(kind == "bad" for _, _, (kind, _) in shown)
        return render_template("pipelines.html", shown=shown, fault=seen.fault, bad=bad)

    @app.get("/p/<int:number>")
    def pipeline(number: int) -> str:
        seen = board.seen
        if not 1 <= number <= len(seen.looks):
            abort(404)
        found = seen.looks[number - 1]
        kind, word = stands(found)
        return render_template(
            "pipeline.html",
            file=board.files[number - 1],
            look=found,
            kind=kind,
            word=word,
            fault=seen.fault,
            bars=bars(found.past) if found else [],
            reasons=reasons(found.letters or ()) if found else [],
            sinks=sinks(found) if found else [],
            partitions=partitions(found.status) if found and found.status else [],
        )

    return app


def _is_here(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


@dataclass(frozen=True)
class PartitionLine:
    topic: str
    partition: int
    next: int | None
    end: int
    behind: int
    waits: float


def partitions(status: Status) -> list[PartitionLine]:
    """The one that is furthest behind first: there may be hundreds."""
    lag, seconds = status.lag, status.lag_seconds
    lines = [
        PartitionLine(at.topic, at.partition, status.offsets.get(at), end, lag[at], seconds[at])
        for at, end in status.held.ends.items()
    ]
    return sorted(lines, key=lambda line: (-line.behind, line.topic, line.partition))


@dataclass(frozen=True)
class Bar:
    epoch: PastEpoch
    x: int
    y: float
    height: float
    kind: str


def bars(epochs: Sequence[PastEpoch]) -> list[Bar]:
    """Oldest first, as high as the offsets that each epoch passed."""
    highest = max((each.records or 0 for each in epochs), default=0) or 1
    found = []
    for place, each in enumerate(reversed(epochs)):
        height = max(4.0, round(_HEIGHT * (each.records or 0) / highest, 1))
        taken_back = each.state in ("taken back", "aborted")
        kind = "gone" if taken_back else "unusual" if each.notes or each.lost else "usual"
        found.append(Bar(each, place * _BAR, round(_HEIGHT - height, 1), height, kind))
    return found


def reasons(groups: Sequence[LetterGroup]) -> list[tuple[str, int, list[LetterGroup]]]:
    counts: Counter[str] = Counter()
    for group in groups:
        counts[group.reason] += group.count
    return [(name, total, [each for each in groups if each.reason == name]) for name, total in counts.most_common()]


@dataclass(frozen=True)
class SinkLine:
    name: str
    epoch: int | None
    """The last one that is known to be in it."""
    commit: str
    doubt: str
    """What is known of an epoch in doubt."""


def sinks(found: Look) -> list[SinkLine]:
    """What the coordinator's log says of each: it knows what was prepared, and what was committed."""
    status = found.status
    if status is None:
        return []
    done = next((each for each in found.past if each.state in ("done", "committed")), None)
    commits: Mapping[str, str] = done.commits if done else {}
    doubted, lines = status.in_doubt, []
    for name in status.sinks:
        doubt = ""
        if doubted is not None and doubted.state is State.DECIDED:
            prepared = doubted.prepared.get(name)
            what = f"{prepared.rows:,} rows prepared, " if prepared else ""
            doubt = f"epoch {doubted.epoch.number}: {what}decided, to be committed"
        elif doubted is not None:
            doubt = f"epoch {doubted.epoch.number}: being prepared, not decided"
        lines.append(SinkLine(name, done.number if done and name in commits else None, commits.get(name, "-"), doubt))
    return lines
