"""The lab's results as one self-contained HTML page: a matrix, and a picture of every run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from connector.display.chart import Chart
from connector.display.page import Tone
from connector.display.style import TEMPLATES, style
from connector.lab.check.fates import LEGEND
from connector.lab.check.history import History
from connector.lab.check.verdict import PROMISES, Kind, Report, Verdict
from connector.lab.show.explanations import ORDER, POINTS, what_follows
from connector.lab.show.lag import lag
from connector.lab.show.picture import icon, picture
from sinks.plurals import plural

SHOWN_ANOMALIES = 100
SHOWN_EVENTS = 400

_OWN = Path(__file__).parent / "templates"
_UNKNOWN = "unknown"
_TONES: Mapping[Verdict, Tone] = {Verdict.HELD: "good", Verdict.BROKEN: "bad"}
_TOTALS = {
    "good": "held, without a fault",
    "warning": "held, with allowed faults",
    "bad": "broken",
    _UNKNOWN: "unknown",
}
"""Tone -> what runs of this tone have in common. A verdict without a tone is unknown."""
_CHECK = "M3 9l4 4 7-9"
_SIGNS = {
    "good": _CHECK,
    "warning": _CHECK,
    "bad": "M3.5 3.5l9 9m0-9l-9 9",
    _UNKNOWN: "M5 5.5a3 3 0 1 1 3.6 3c-.5.2-.6.6-.6 1.5M8 13v.2",
}
_SPOKEN = {Kind.REGRESSED: "older for a while"}


@dataclass(frozen=True)
class _Run:
    """A run, with what the page says of it."""

    anchor: str
    history: History
    report: Report

    @cached_property
    def tone(self) -> str:
        if self.report.verdict is Verdict.HELD and self.report.anomalies:
            return "warning"
        return _TONES.get(self.report.verdict, _UNKNOWN)

    @property
    def verdict(self) -> str:
        return self.report.verdict.value

    @cached_property
    def counts(self) -> list[str]:
        return [f"{number} {_word(kind)}" for kind, number in self.report.counts.items() if number]

    @property
    def short(self) -> str:
        """What its cell of the matrix says below the verdict."""
        return ", ".join(self.counts) or ("exact" if self.report.verdict is Verdict.HELD else "")

    @property
    def groups(self) -> list[str]:
        """The filters that show it, apart from the one for all runs."""
        return ["shows"] * bool(self.report.anomalies) + ["open"] * (self.report.verdict is not Verdict.HELD)

    @property
    def killed(self) -> str:
        point = self.history.crash_point
        return f"killed {_spoken(point)}" if point else "not killed"

    @property
    def promise(self) -> str:
        return PROMISES.get(self.history.delivery, "")

    @property
    def theory(self) -> str:
        return what_follows(self.history.delivery, self.history.sink, self.history.crash_point)

    @property
    def picture(self) -> Markup:
        return Markup(picture(self.history, self.report))

    @property
    def lag(self) -> Chart | None:
        return lag(self.history, f"lag-{self.anchor}")

    @property
    def told(self) -> str:
        events, versions = len(self.history.events), len(self.history.versions)
        return f"{plural(events, 'event')} in order, {plural(versions, 'version')} of the table"


@dataclass(frozen=True)
class _Line:
    """A line of the matrix: a delivery into a sink."""

    delivery: str
    sink: str
    runs: Mapping[str, Sequence[_Run]]
    """By crash point."""

    @property
    def promise(self) -> str:
        return PROMISES.get(self.delivery, "")

    @property
    def may(self) -> str:
        allows = {kind for runs in self.runs.values() for run in runs for kind in run.report.allows}
        return ", ".join(_word(kind) for kind in Kind if kind in allows) or "nothing"


def page(reports: Sequence[tuple[History, Report]], title: str, facts: Mapping[str, str]) -> str:
    """HTML of the page. ``facts``: what the page shows under the title, such as date, versions, number of records."""
    runs = [_Run(f"run-{number}", history, report) for number, (history, report) in enumerate(reports, start=1)]
    points = _points(runs)
    return _environment().get_template("matrix.html").render(
        title=title,
        facts=facts,
        style=Markup(style()),
        script=Markup((_OWN / "filter.js").read_text(encoding="utf-8")),
        signs=_SIGNS,
        totals=list(_totals(runs)),
        points=points,
        lines=_lines(runs, points),
        orders=[
            (delivery, PROMISES[delivery], steps)
            for delivery, steps in ORDER.items()
            if any(run.history.delivery == delivery for run in runs)
        ],
        explained=[(point, POINTS[point]) for point in points if point in POINTS],
        legend=[
            (Markup(icon(word)), LEGEND[word])
            for word in ("once", *(word for word in reversed(list(LEGEND)) if word != "once"))
        ],
        runs=runs,
        shown_anomalies=SHOWN_ANOMALIES,
        shown_events=SHOWN_EVENTS,
    )  # fmt: skip


def _environment() -> Environment:
    """The templates. They escape every text but that of `Markup`."""
    templates = Environment(
        loader=FileSystemLoader([_OWN, TEMPLATES]),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    templates.filters.update(spoken=_spoken, word=_word)
    return templates


def _totals(runs: Sequence[_Run]) -> Iterable[tuple[str, int, str]]:
    tones = [run.tone for run in runs]
    for tone, text in _TOTALS.items():
        # "0 broken" is a result worth showing. "0 unknown" is not.
        if tone in tones or tone != _UNKNOWN:
            yield tone, tones.count(tone), text


def _points(runs: Sequence[_Run]) -> list[str]:
    there = {run.history.crash_point for run in runs}
    return [point for point in POINTS if point in there] + sorted(there - POINTS.keys())


def _lines(runs: Sequence[_Run], points: Sequence[str]) -> list[_Line]:
    lines: dict[tuple[str, str], dict[str, list[_Run]]] = {}
    for run in runs:
        of_line = lines.setdefault((run.history.delivery, run.history.sink), {point: [] for point in points})
        of_line[run.history.crash_point].append(run)
    return [_Line(delivery, sink, by_point) for (delivery, sink), by_point in lines.items()]


def _word(kind: Kind) -> str:
    return _SPOKEN.get(kind, kind.value)


def _spoken(point: str) -> str:
    return point.replace("_", " ") or "not killed"
