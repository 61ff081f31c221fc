"""The page's charts: the lag as it was seen, and what the last epochs tell. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from connector.display.chart import Chart, Mark, Plot, Tick, brief
from connector.operations.history import PastEpoch
from connector.telemetry.progress import span
from sinks.plurals import plural

_GONE = ("taken back", "aborted")
_PHASES = ("read", "match", "write", "prepare", "commit")
_PART = {"read": "part-a", "match": "part-b", "write": "part-c", "prepare": "part-a", "commit": "part-b"}
"""Phase -> its class of colour. Parts differ in lightness too, and the legend has the order of the bar."""
_KINDS = {"usual": "usual", "unusual": "with a remark", "gone": "taken back or thrown away"}
_WIDEST = 24.0
"""Pixels of a bar, however few there are."""
_LABEL = 60.0
"""Pixels of a label of an epoch, with some room."""
_LOWEST = 2.0
"""Pixels of a bar for an epoch that passed no offset."""


@dataclass(frozen=True)
class Sample:
    """How far behind a pipeline was at a time. None: it couldn't be seen."""

    at: datetime
    offsets: int | None


def lag(samples: Sequence[Sample]) -> Chart | None:
    """The lag over time, as it was seen. The line breaks where it couldn't be seen. None: too little was seen."""
    seen = [(each.at, each.offsets) for each in samples if each.offsets is not None]
    if len(seen) < 2:
        return None
    numbers = [offsets for _, offsets in seen]
    plot, ticks = _over_time([at for at, _ in seen], max(numbers))
    lines: list[list[str]] = [[]]
    for each in samples:
        if each.offsets is None:
            lines.append([])
        else:
            x, y = plot.place(each.at.timestamp(), each.offsets)
            lines[-1].append(f"{x},{y}")
    at, now = seen[-1]
    x, y = plot.place(at.timestamp(), now)
    return Chart(
        "lag",
        "Behind, in offsets, since this page runs",
        f"Offsets behind from {seen[0][0]:%H:%M} to {at:%H:%M} UTC: between {min(numbers):,} and {max(numbers):,}, "
        f"now {now:,}.",
        ticks,
        plot.y,
        lines=[" ".join(points) for points in lines if len(points) > 1],
        dots=[Mark(x, y, "part-a", f"{at:%H:%M:%S}: {plural(now, 'offset')}")],
    )


def throughput(past: Sequence[PastEpoch]) -> Chart | None:
    """Offsets per second from one epoch to the next."""
    rates = [
        (epoch, epoch.records / epoch.since_last)
        for epoch in reversed(past)
        if epoch.records is not None and epoch.since_last and epoch.state not in _GONE
    ]
    if len(rates) < 2:
        return None
    plot, ticks = _over_time([epoch.at for epoch, _ in rates], max(rate for _, rate in rates))
    points = [plot.place(epoch.at.timestamp(), rate) for epoch, rate in rates]
    least, most = min(rate for _, rate in rates), max(rate for _, rate in rates)
    return Chart(
        "throughput",
        "Offsets per second, from one epoch to the next",
        f"Offsets per second of the last {plural(len(rates), 'epoch')}: between {brief(least)} and {brief(most)}, "
        f"last {brief(rates[-1][1])}.",
        ticks,
        plot.y,
        lines=[" ".join(f"{x},{y}" for x, y in points)],
        dots=[
            Mark(x, y, "part-a", f"epoch {epoch.number}: {brief(rate)} offsets per second")
            for (x, y), (epoch, rate) in zip(points, rates, strict=True)
        ],
    )


def durations(past: Sequence[PastEpoch]) -> Chart | None:
    """Where an epoch's time goes, if its commits tell; else the time from one epoch to the next."""
    epochs = [epoch for epoch in reversed(past) if epoch.state not in _GONE]
    parts = [(epoch, {name: epoch.phases[name] for name in _PHASES if name in epoch.phases}) for epoch in epochs]
    known = [(epoch, phases) for epoch, phases in parts if phases]
    if known:
        names = [name for name in _PHASES if any(name in phases for _, phases in known)]
        return _stacked(known, "phases", "Seconds of an epoch, by phase", [(_PART[name], name) for name in names])
    pauses = [(epoch, {"after": epoch.since_last}) for epoch in epochs if epoch.since_last is not None]
    return _stacked(pauses, "pauses", "Seconds from one epoch to the next", []) if pauses else None


def offsets(past: Sequence[PastEpoch]) -> Chart | None:
    """How many offsets each epoch passed, also those that were taken back. None: there is no epoch."""
    epochs = list(reversed(past))
    if not epochs:
        return None
    passed = [epoch.records or 0 for epoch in epochs]
    plot, bars = Plot(0, 1, max(passed)), []
    for (x, width), epoch, number in zip(_slots(len(epochs)), epochs, passed, strict=True):
        kind = "gone" if epoch.state in _GONE else "unusual" if epoch.notes or epoch.lost else "usual"
        height = max(_LOWEST, round(plot.height(number), 1))
        told = "offsets unknown" if epoch.records is None else plural(number, "offset")
        title = f"epoch {epoch.number}: {told}, {epoch.state}"
        bars.append(Mark(x, round(Chart.BOTTOM - height, 1), kind, title, height, width))
    kinds = {bar.kind for bar in bars}
    return Chart(
        "offsets",
        "Offsets that each epoch passed",
        f"Offsets of the last {plural(len(epochs), 'epoch')}: between {min(passed):,} and {max(passed):,}, last "
        f"{passed[-1]:,}.",
        _numbers(epochs),
        plot.y,
        bars=bars,
        keys=[(kind, word) for kind, word in _KINDS.items() if kind in kinds] if len(kinds) > 1 else [],
    )


def _stacked(
    epochs: Sequence[tuple[PastEpoch, Mapping[str, float]]], name: str, title: str, keys: Sequence[tuple[str, str]]
) -> Chart:
    totals = [sum(phases.values()) for _, phases in epochs]
    plot, bars = Plot(0, 1, max(totals)), []
    for (x, width), (epoch, phases) in zip(_slots(len(epochs)), epochs, strict=True):
        below = float(Chart.BOTTOM)
        for phase, seconds in phases.items():
            height = plot.height(seconds)
            below -= height
            told = f"{phase} {span(seconds)}" if keys else f"{span(seconds)} after the epoch before"
            title_of_bar = f"epoch {epoch.number}: {told}"
            bars.append(Mark(x, round(below, 1), _PART.get(phase, "part-a"), title_of_bar, round(height, 1), width))
    first, last = epochs[0][0].number, epochs[-1][0].number
    return Chart(
        name,
        title,
        f"{title}, epochs {first} to {last}: between {span(min(totals))} and {span(max(totals))}, last "
        f"{span(totals[-1])}.",
        _numbers([epoch for epoch, _ in epochs]),
        plot.y,
        bars=bars,
        keys=keys,
    )


def _slots(number: int) -> list[tuple[float, float]]:
    """Of so many bars the left edges, and the widths."""
    each = (Chart.RIGHT - Chart.LEFT) / number
    width = round(min(each * 0.8, _WIDEST), 1)
    return [(round(Chart.LEFT + each * at + (each - width) / 2, 1), width) for at in range(number)]


def _numbers(epochs: Sequence[PastEpoch]) -> list[Tick]:
    """The ticks of an axis of epochs: below each bar if there is room, else of the first one and the last one."""
    slots, labels = _slots(len(epochs)), [f"epoch {epoch.number}" for epoch in epochs]
    if (Chart.RIGHT - Chart.LEFT) / len(slots) >= _LABEL:
        return [Tick(x + width / 2, label) for (x, width), label in zip(slots, labels, strict=True)]
    (first, _), (last, width) = slots[0], slots[-1]
    return [Tick(first, labels[0], "begin"), Tick(last + width, labels[-1], "end")]


def _over_time(times: Sequence[datetime], highest: float) -> tuple[Plot, list[Tick]]:
    """Where to draw, and the ticks of the axis of time."""
    begin, end = min(times), max(times)
    length = end - begin
    form = "%H:%M:%S" if length < timedelta(minutes=10) else "%H:%M" if length < timedelta(days=1) else "%m-%d %H:%M"
    ticks = [
        Tick(Chart.LEFT, f"{begin:{form}}", "begin"),
        Tick((Chart.LEFT + Chart.RIGHT) / 2, f"{begin + length / 2:{form}}"),
        Tick(Chart.RIGHT, f"{end:{form}} UTC", "end"),
    ]
    return Plot(begin.timestamp(), end.timestamp(), highest), (ticks if length else ticks[:1])
