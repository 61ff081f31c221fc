"""The page's charts as numbers: places in pixels, ticks and words. The template draws them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from connector.operations.history import PastEpoch
from connector.telemetry.progress import span
from sinks.plurals import plural

WIDTH, HEIGHT = 360, 190
LEFT, RIGHT, TOP, BOTTOM = 46, 350, 12, 160
"""The edges of the plot."""
_TICKS = 4
_GONE = ("taken back", "aborted")
_PHASES = ("read", "match", "write", "prepare", "commit")
_PART = {"read": "a", "match": "b", "write": "c", "prepare": "a", "commit": "b"}
"""Phase -> its class of colour. Parts differ in lightness too, and the legend has the order of the bar."""


@dataclass(frozen=True)
class Sample:
    """How far behind a pipeline was at a time. None: it couldn't be seen."""

    at: datetime
    offsets: int | None


@dataclass(frozen=True)
class Tick:
    """A mark at an axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Mark:
    """A dot or a bar, with what it says."""

    x: float
    y: float
    kind: str
    title: str
    height: float = 0.0
    width: float = 0.0


@dataclass(frozen=True)
class Chart:
    """One chart."""

    name: str
    title: str
    said: str
    """The same in words, for who doesn't see it."""
    x: Sequence[Tick]
    y: Sequence[Tick]
    lines: Sequence[str] = ()
    """Points of each polyline."""
    dots: Sequence[Mark] = ()
    bars: Sequence[Mark] = ()
    keys: Sequence[tuple[str, str]] = field(default_factory=tuple)
    """Of the legend: the class of the colour, and the word."""


def brief(number: float) -> str:
    """A number in few letters: ``950``, ``1.2k``, ``36k``, ``1.2M``."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def scale(highest: float) -> list[float]:
    """The marks of an axis from 0 on: round numbers, a few, the last at or above ``highest``."""
    if not math.isfinite(highest) or highest <= 0:
        return [0.0, 1.0]
    rough = highest / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(times * power for times in (1, 2, 5, 10) if times * power >= rough * 0.999_999)
    return [step * number for number in range(math.ceil(highest / step - 1e-9) + 1)]


def lag(samples: Sequence[Sample]) -> Chart | None:
    """The lag over time, as it was seen. The line breaks where it couldn't be seen. None: too little was seen."""
    seen = [(each.at, each.offsets) for each in samples if each.offsets is not None]
    if len(seen) < 2:
        return None
    place, marks = _places([at for at, _ in seen], max(offsets for _, offsets in seen))
    lines: list[list[str]] = [[]]
    for each in samples:
        if each.offsets is None:
            lines.append([])
        else:
            x, y = place(each.at, each.offsets)
            lines[-1].append(f"{x},{y}")
    numbers = [offsets for _, offsets in seen]
    (x, y), (at, now) = place(*seen[-1]), seen[-1]
    return Chart(
        "lag",
        "Behind, in offsets, since this page runs",
        f"Offsets behind from {seen[0][0]:%H:%M} to {at:%H:%M} UTC: between {min(numbers):,} and {max(numbers):,}, "
        f"now {now:,}.",
        *marks,
        lines=[" ".join(points) for points in lines if len(points) > 1],
        dots=[Mark(x, y, "a", f"{at:%H:%M:%S}: {plural(now, 'offset')}")],
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
    place, marks = _places([epoch.at for epoch, _ in rates], max(rate for _, rate in rates))
    points = [place(epoch.at, rate) for epoch, rate in rates]
    least, most = min(rate for _, rate in rates), max(rate for _, rate in rates)
    return Chart(
        "throughput",
        "Offsets per second, from one epoch to the next",
        f"Offsets per second of the last {plural(len(rates), 'epoch')}: between {brief(least)} and {brief(most)}, "
        f"last {brief(rates[-1][1])}.",
        *marks,
        lines=[" ".join(f"{x},{y}" for x, y in points)],
        dots=[
            Mark(x, y, "a", f"epoch {epoch.number}: {brief(rate)} offsets per second")
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
        return _stacked(
            known,
            "phases",
            "Seconds of an epoch, by phase",
            [(_PART[name], name) for name in names],
        )
    pauses = [(epoch, {"after": epoch.since_last}) for epoch in epochs if epoch.since_last is not None]
    return _stacked(pauses, "pauses", "Seconds from one epoch to the next", []) if pauses else None


def _stacked(
    epochs: Sequence[tuple[PastEpoch, Mapping[str, float]]],
    name: str,
    title: str,
    keys: Sequence[tuple[str, str]],
) -> Chart:
    totals = [sum(phases.values()) for _, phases in epochs]
    marks = scale(max(totals))
    each = (RIGHT - LEFT) / len(epochs)
    width = round(min(each * 0.8, 24), 1)
    bars = []
    for place, (epoch, phases) in enumerate(epochs):
        x, below = round(LEFT + each * place + (each - width) / 2, 1), float(BOTTOM)
        for phase, seconds in phases.items():
            height = (BOTTOM - TOP) * seconds / marks[-1]
            below -= height
            told = f"{phase} {span(seconds)}" if keys else f"{span(seconds)} after the epoch before"
            bars.append(
                Mark(
                    x, round(below, 1), _PART.get(phase, "a"), f"epoch {epoch.number}: {told}", round(height, 1), width
                )
            )
    first, last = epochs[0][0].number, epochs[-1][0].number
    ends = [Tick(LEFT, f"epoch {first}"), Tick(RIGHT, f"epoch {last}")]
    return Chart(
        name,
        title,
        f"{title}, epochs {first} to {last}: between {span(min(totals))} and {span(max(totals))}, last "
        f"{span(totals[-1])}.",
        ends if len(epochs) > 1 else ends[:1],
        _heights(marks),
        bars=bars,
        keys=tuple(keys),
    )


class _Place:
    """Where a value at a time is drawn."""

    def __init__(self, begin: datetime, length: timedelta, highest: float) -> None:
        self._begin, self._length, self._highest = begin, length.total_seconds() or 1.0, highest

    def __call__(self, at: datetime, value: float) -> tuple[float, float]:
        share = (at - self._begin).total_seconds() / self._length
        return round(LEFT + (RIGHT - LEFT) * share, 1), round(BOTTOM - (BOTTOM - TOP) * value / self._highest, 1)


def _places(times: Iterable[datetime], highest: float) -> tuple[_Place, tuple[list[Tick], list[Tick]]]:
    """Where to draw, and the ticks of both axes."""
    ordered = sorted(times)
    begin, end, marks = ordered[0], ordered[-1], scale(highest)
    length = end - begin
    form = "%H:%M:%S" if length < timedelta(minutes=10) else "%H:%M" if length < timedelta(days=1) else "%m-%d %H:%M"
    middle = (LEFT + RIGHT) / 2
    shown = [
        Tick(LEFT, f"{begin:{form}}"),
        Tick(middle, f"{begin + length / 2:{form}}"),
        Tick(RIGHT, f"{end:{form}} UTC"),
    ]
    return _Place(begin, length, marks[-1]), (shown if length else shown[:1], _heights(marks))


def _heights(marks: Sequence[float]) -> list[Tick]:
    return [Tick(round(BOTTOM - (BOTTOM - TOP) * mark / marks[-1], 1), brief(mark)) for mark in marks]
