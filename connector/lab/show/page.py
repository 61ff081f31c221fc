"""The lab's results as one self-contained HTML page: a matrix, and a picture of every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from connector.lab.check.fates import LEGEND
from connector.lab.check.history import Happened, History
from connector.lab.check.verdict import PROMISES, Anomaly, Kind, Report, Verdict
from connector.lab.show.explanations import ORDER, POINTS, what_follows
from connector.lab.show.picture import icon, picture
from connector.lab.show.style import SCRIPT, STYLE

SHOWN_ANOMALIES = 100
SHOWN_EVENTS = 400

Run = tuple[History, Report]

_SIGNS = {"held": "M3 9l4 4 7-9", "allowed": "M3 9l4 4 7-9", "broken": "M3.5 3.5l9 9m0-9l-9 9"}
_QUESTION = "M5 5.5a3 3 0 1 1 3.6 3c-.5.2-.6.6-.6 1.5M8 13v.2"
_SPOKEN = {Kind.REGRESSED: "older for a while"}
_FILTERS = {"all": "All runs", "shows": "With lost, duplicated or stale records", "open": "Broken or unknown"}


def page(reports: Sequence[Run], title: str, facts: Mapping[str, str]) -> str:
    """HTML of the page. ``facts``: what the page shows under the title, such as date, versions, number of records."""
    numbered = [(f"run-{number}", history, report) for number, (history, report) in enumerate(reports, start=1)]
    points = _points(reports)
    runs = "\n".join(_run(anchor, history, report) for anchor, history, report in numbered)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<p class="lead">A process moves records from Kafka into a Delta table and is killed. Which records are lost, and which
are stored twice? Each run below was really killed with <code>kill -9</code> and started again, and then its table was
checked.</p>
{_facts(facts)}
{_totals(reports)}
<h2 id="matrix">Results</h2>
<p>Each cell is a run: one delivery into one sink, killed at one moment, the crash point. The lab compared every version
of the run's table with the records in Kafka. <b>Held</b>: the table shows nothing that the delivery forbids. At most
once may lose records, and at least once may repeat them. <b>Broken</b>: the table shows more than that, or it lacks a
fault that must appear in theory. <b>Unknown</b>: the run proves nothing.</p>
{_matrix(numbered, points)}
<h2>Crash points</h2>
<p>A crash point is a moment in the life of one batch of records. The damage of a crash depends on what the process
stores first: the rows in the table, or the offsets, which say how far it has read.</p>
{_orders(reports)}
<dl class="points">{_point_list(points)}</dl>
<h2>Runs</h2>
<p>Each partition has a row of cells, one per record, in the order of the offsets. Below the cells are the steps of each
process. The red line is the stored offset when the process died. The blue line is the offset at which the next process
started. A dashed red bar is a write without its commit. A dot marks a record that was written again without effect.</p>
{_legend()}
<div class="filters" hidden>{_filters()}</div>
{runs}
</main>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _facts(facts: Mapping[str, str]) -> str:
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(fact)}</dd></div>" for name, fact in facts.items())
    return f'<dl class="facts">{items}</dl>' if facts else ""


def _totals(reports: Sequence[Run]) -> str:
    looks = [_look(report) for _, report in reports]
    words = {
        "held": "held, without a fault",
        "allowed": "held, with allowed faults",
        "broken": "broken",
        "unknown": "unknown",
    }
    items = "".join(
        f'<li class="{look}"><b>{looks.count(look)}</b>{text}</li>'
        for look, text in words.items()
        # "0 broken" is a result worth showing. "0 unknown" is not.
        if look in looks or look != "unknown"
    )
    return f'<ul class="totals">{items}</ul>'


def _orders(reports: Sequence[Run]) -> str:
    there = {history.delivery for history, _ in reports}
    lines = []
    for delivery, steps in ORDER.items():
        if delivery not in there:
            continue
        items = []
        for step, points in steps:
            items.append(f'<li class="step">{escape(step)}</li>')
            items += [f'<li class="at"><i class="bolt"></i>{escape(_spoken(point))}</li>' for point in points]
        name = f'<div><code>{escape(delivery)}</code><span class="promise">{escape(PROMISES[delivery])}</span></div>'
        lines.append(f'<div class="order">{name}<ol>{"".join(items)}</ol></div>')
    return f'<div class="orders">{"".join(lines)}</div>'


def _points(reports: Sequence[Run]) -> list[str]:
    there = {history.crash_point for history, _ in reports}
    return [point for point in POINTS if point in there] + sorted(there - POINTS.keys())


def _point_list(points: Sequence[str]) -> str:
    return "".join(
        f"<div><dt>{escape(_spoken(point))}</dt><dd>{escape(POINTS[point])}</dd></div>"
        for point in points
        if point in POINTS
    )


def _matrix(numbered: Sequence[tuple[str, History, Report]], points: Sequence[str]) -> str:
    rows = list(dict.fromkeys((history.delivery, history.sink) for _, history, _ in numbered))
    head = "".join(f'<th scope="col">{escape(_spoken(point))}</th>' for point in points)
    body = []
    for delivery, sink in rows:
        cells = []
        for point in points:
            of_point = [
                _cell(anchor, report)
                for anchor, history, report in numbered
                if (history.delivery, history.sink, history.crash_point) == (delivery, sink, point)
            ]
            inner = "".join(of_point) or '<span class="none" title="not run">&ndash;</span>'
            cells.append(f'<td data-point="{escape(_spoken(point))}"><div>{inner}</div></td>')
        allows = {
            kind for _, h, report in numbered if (h.delivery, h.sink) == (delivery, sink) for kind in report.allows
        }
        may = ", ".join(_SPOKEN.get(kind, kind.value) for kind in Kind if kind in allows) or "nothing"
        promise = f'<span class="promise">{escape(PROMISES.get(delivery, ""))}<br>may show: {may}</span>'
        name = f'<th scope="row"><code>{escape(delivery)}</code> {escape(sink)}{promise}</th>'
        body.append(f"<tr>{name}{''.join(cells)}</tr>")
    return (
        f'<table class="matrix"><colgroup><col class="name"><col span="{len(points)}"></colgroup>'
        f'<thead><tr><th scope="col">delivery and sink</th>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'
    )


def _cell(anchor: str, report: Report) -> str:
    look = _look(report)
    counts = ", ".join(_counts(report)) or ("exact" if report.verdict is Verdict.HELD else "")
    return (
        f'<a class="cell {look}" href="#{anchor}"><span>{_sign(look)}<b>{report.verdict.value}</b></span> '
        f'<span class="small">{escape(counts)}</span></a>'
    )


def _counts(report: Report) -> list[str]:
    return [f"{number} {_SPOKEN.get(kind, kind.value)}" for kind, number in report.counts.items() if number]


def _look(report: Report) -> str:
    """The CSS class of a verdict. ``held`` with allowed anomalies has its own class, ``allowed``."""
    return "allowed" if report.verdict is Verdict.HELD and report.anomalies else report.verdict.value


def _sign(look: str) -> str:
    path = _SIGNS.get(look, _QUESTION)
    return f'<svg class="sign" viewBox="0 0 16 16" aria-hidden="true"><path d="{path}"/></svg>'


def _legend() -> str:
    words = ["once", *(word for word in reversed(list(LEGEND)) if word != "once")]
    items = "".join(f"<li>{icon(word)}{escape(LEGEND[word])}</li>" for word in words)
    return f'<ul class="legend">{items}</ul>'


def _filters() -> str:
    return "".join(
        f'<button type="button" data-show="{name}" aria-pressed="{str(name == "all").lower()}">{text}</button>'
        for name, text in _FILTERS.items()
    )


def _run(anchor: str, history: History, report: Report) -> str:
    look = _look(report)
    groups = ["shows"] * bool(report.anomalies) + ["open"] * (report.verdict is not Verdict.HELD)
    promise = PROMISES.get(history.delivery, "")
    killed = f"killed {_spoken(history.crash_point)}" if history.crash_point else "not killed"
    theory = what_follows(history.delivery, history.sink, history.crash_point)
    reasons = "".join(f'<p class="reason">{escape(reason)}</p>' for reason in report.reasons)
    return f"""<section class="run" id="{anchor}" data-is="{" ".join(groups)}">
<div class="head"><h3><code>{escape(history.delivery)}</code> into {escape(history.sink)}, {escape(killed)}</h3>
<span class="badge {look}">{_sign(look)}{escape(", ".join([report.verdict.value, *_counts(report)]))}</span>
<span class="promise">{escape(promise)}</span><a class="back" href="#matrix">back to the matrix</a></div>
{f"<p>{escape(theory)}</p>" if theory else ""}{reasons}
<div class="pictures">{picture(history, report)}</div>
{_anomalies(report)}{_events(history)}
</section>"""


def _anomalies(report: Report) -> str:
    if not report.anomalies:
        return ""
    rows = "".join(_anomaly(anomaly, report) for anomaly in report.anomalies[:SHOWN_ANOMALIES])
    more = len(report.anomalies) - SHOWN_ANOMALIES
    head = _header("fault", "partition", "offset", "key", "from version", "until version", "in the table", "")
    rest = f"<p>and {more} more</p>" if more > 0 else ""
    return _details(f"Faults: {', '.join(_counts(report))}", f"<table>{head}{rows}</table>{rest}")


def _anomaly(anomaly: Anomaly, report: Report) -> str:
    until = "the end" if anomaly.until is None else anomaly.until
    allowed = "allowed" if report.may_show(anomaly) else "not allowed"
    return (
        f"<tr><td>{_SPOKEN.get(anomaly.kind, anomaly.kind.value)}</td>"
        f"<td>{escape(anomaly.topic)}-{anomaly.partition}</td><td>{anomaly.offset}</td>"
        f"<td>{escape(anomaly.key)}</td><td>{anomaly.version}</td><td>{until}</td>"
        f"<td>{escape(anomaly.note)}</td><td>{allowed}</td></tr>"
    )


def _events(history: History) -> str:
    rows = "".join(_event(event) for event in history.events[:SHOWN_EVENTS])
    more = len(history.events) - SHOWN_EVENTS
    rest = f"<p>and {more} more</p>" if more > 0 else ""
    versions = len(history.versions)
    summary = f"{len(history.events)} events in order, {versions} versions of the table"
    return _details(summary, f"<table>{_header('seconds', 'run', 'event', 'offsets', 'note')}{rows}</table>{rest}")


def _event(event: Happened) -> str:
    ranges = ", ".join(map(str, event.ranges))
    return (
        f"<tr><td>{event.seconds:.2f}</td><td>{event.run}</td><td>{escape(event.what)}</td><td>{escape(ranges)}</td>"
        f"<td>{escape(event.note)}</td></tr>"
    )


def _header(*names: str) -> str:
    return "<tr>" + "".join(f'<th scope="col">{escape(name)}</th>' for name in names) + "</tr>"


def _details(summary: str, inner: str) -> str:
    return f'<details><summary>{escape(summary)}</summary><div class="scroll" tabindex="0">{inner}</div></details>'


def _spoken(point: str) -> str:
    return point.replace("_", " ") or "not killed"
