"""The read-only page of ``lakelock ui``, made on the server from what the board holds."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from flask import Blueprint, Flask, Response, abort, render_template, request

from connector.display.chart import Chart
from connector.display.style import STATIC, TEMPLATES
from connector.operations.history import short
from connector.operations.letter_groups import LetterGroup
from connector.operations.status import Status
from connector.protocol.decided import State
from connector.telemetry.progress import span
from connector.ui.board import Board
from connector.ui.charts import Sample, durations, lag, offsets, throughput
from connector.watch.at_work import at_work
from connector.watch.poll import Look
from connector.watch.state_words import count, of_look, ranges
from sinks.plurals import plural

_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_READS = ("GET", "HEAD")
_STALE = 300.0
"""Seconds. An older look says nothing about now, so the page shows its age instead of "up to date"."""


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own: localhost, 127.0.0.1, ::1, ..."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def page(board: Board, *, host: str = "127.0.0.1", now: Callable[[], datetime] | None = None) -> Flask:
    """The application that shows what the ``board`` holds. It answers GET and HEAD only, and never asks Kafka or Spark.

    ``host``: the address that the server listens on. If that is this machine, requests by another host name are
    refused. ``now``: the clock, for tests.
    """
    app = Flask(__name__)
    app.register_blueprint(
        Blueprint("shared", __name__, static_folder=STATIC, static_url_path="/shared", template_folder=TEMPLATES)
    )
    clock = now or (lambda: datetime.now(timezone.utc))
    _guard(app, host)
    _add_filters(app, clock)

    @app.get("/")
    def pipelines() -> str:
        seen = board.seen
        shown = [(address(file), Path(file), look, stands(look, clock())) for file, look in seen.looks.items()]
        bad = sum(kind == "bad" for *_, (kind, _) in shown)
        return render_template("pipelines.html", shown=shown, fault=seen.fault, bad=bad)

    @app.get("/p/<of>")
    def pipeline(of: str) -> str:
        seen = board.seen
        file = next((file for file in seen.looks if address(file) == of), None)
        if file is None:
            abort(404)
        look = seen.looks[file]
        kind, word = stands(look, clock())
        return render_template(
            "pipeline.html",
            file=Path(file),
            look=look,
            kind=kind,
            word=word,
            fault=seen.fault,
            charts=charts(look, seen.lags.get(file, ())) if look else [],
            work=at_work(look.status, look.past, look.report, clock()) if look else None,
            passed=offsets(look.past) if look else None,
            reasons=reasons(look.letters or ()) if look else [],
            sinks=sinks(look) if look else [],
            partitions=partitions(look.status) if look and look.status else [],
        )

    return app


def address(file: str) -> str:
    """What stands for a file in the address of its page. Its place in the list changes when a topic appears."""
    return hashlib.sha256(file.encode(errors="surrogatepass")).hexdigest()[:16]


def charts(look: Look, lags: Sequence[Sample]) -> list[Chart]:
    """The charts for which there are numbers."""
    made = (lag(lags), throughput(look.past), durations(look.past))
    return [chart for chart in made if chart is not None]


def stands(look: Look | None, now: datetime) -> tuple[str, str]:
    """How a pipeline stands by its last look: the kind of state, and the state in words."""
    if look is None:
        return "unknown", "not seen yet"
    age = (now - look.at).total_seconds()
    if age > _STALE and not look.faults:
        return "bad", f"not seen for {span(age)}"
    return of_look(look)


def _guard(app: Flask, host: str) -> None:
    """Refuse every request that isn't a read, or comes by a foreign host name; send headers that protect the page."""

    @app.before_request
    def only_reads_from_here() -> None:
        if is_loopback(host) and not _is_here(request.host):
            # Somebody else's page, with a name that points at this machine, could read this page in the user's browser.
            abort(403, "This page is for this machine only: open it as 127.0.0.1 or localhost.")
        if request.method not in _READS:
            abort(Response("The page is read-only.\n", 405, {"Allow": ", ".join(_READS)}))

    @app.after_request
    def guarded(response: Response) -> Response:
        response.headers.update(_HEADERS)
        return response


def _add_filters(app: Flask, clock: Callable[[], datetime]) -> None:
    """Add the filters by which the templates write times, ages, counts and offsets."""
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.add_template_filter(span, "span")
    app.add_template_filter(count, "count")
    app.add_template_filter(short, "short")
    app.add_template_filter(ranges, "ranges")
    app.add_template_filter(lambda time: f"{time:%Y-%m-%d %H:%M:%S}" if time else "-", "time")
    app.add_template_filter(lambda time: (clock() - time).total_seconds() if time else None, "age")


def _is_here(host: str) -> bool:
    """Whether a request's Host header, with or without a port, names this machine."""
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


@dataclass(frozen=True)
class PartitionLine:
    """A line of the page's table of partitions."""

    topic: str
    partition: int
    next: int | None
    end: int
    behind: int
    waits: float | None
    """None: nobody knows."""


def partitions(status: Status) -> list[PartitionLine]:
    """A line per partition, the one that is furthest behind first, because there may be hundreds."""
    lag, seconds = status.lag, status.lag_seconds
    lines = [
        PartitionLine(at.topic, at.partition, status.offsets.get(at), end, lag[at], seconds[at])
        for at, end in status.held.ends.items()
    ]
    return sorted(lines, key=lambda line: (-line.behind, line.topic, line.partition))


def reasons(groups: Sequence[LetterGroup]) -> list[tuple[str, int, list[LetterGroup]]]:
    """Dead letters by reason: its name, how many records it has, and its groups. The most frequent reason is first."""
    counts: Counter[str] = Counter()
    for group in groups:
        counts[group.reason] += group.count
    return [(name, total, [group for group in groups if group.reason == name]) for name, total in counts.most_common()]


@dataclass(frozen=True)
class SinkLine:
    """A line of the page's table of sinks."""

    name: str
    epoch: int | None
    """The last epoch that the sink is known to hold."""
    commit: str
    doubt: str
    """What is known of an epoch in doubt; empty without one."""


def sinks(look: Look) -> list[SinkLine]:
    """A line per sink, from the coordinator log, which knows what was prepared and what was committed."""
    status = look.status
    if status is None:
        return []
    done = next((epoch for epoch in look.past if epoch.state in ("done", "committed")), None)
    commits: Mapping[str, str] = done.commits if done else {}
    doubted, lines = status.in_doubt, []
    for name in status.sinks:
        doubt = ""
        if doubted is not None and doubted.state is State.DECIDED:
            prepared = doubted.prepared.get(name)
            what = f"{plural(prepared.rows, 'row')} prepared, " if prepared else ""
            doubt = f"epoch {doubted.epoch.number}: {what}decided, to be committed"
        elif doubted is not None:
            doubt = f"epoch {doubted.epoch.number}: being prepared, not decided"
        lines.append(SinkLine(name, done.number if done and name in commits else None, commits.get(name, "-"), doubt))
    return lines
