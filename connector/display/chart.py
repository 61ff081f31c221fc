"""A chart as numbers: places in pixels, ticks and words. The template ``chart.html`` draws it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

_TICKS = 4


@dataclass(frozen=True)
class Tick:
    """A mark at an axis, or on the plot. ``anchor``: which part of its label is there: begin, middle or end."""

    at: float
    label: str
    anchor: str = "middle"


@dataclass(frozen=True)
class Mark:
    """A dot or a bar, with what it says. ``kind``: its class in the style sheet."""

    x: float
    y: float
    kind: str
    title: str
    height: float = 0.0
    width: float = 0.0


@dataclass(frozen=True)
class Chart:
    """One chart."""

    WIDTH: ClassVar[int] = 360
    HEIGHT: ClassVar[int] = 190
    # The edges of the plot.
    LEFT: ClassVar[int] = 46
    RIGHT: ClassVar[int] = 350
    TOP: ClassVar[int] = 12
    BOTTOM: ClassVar[int] = 160

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
    rules: Sequence[Tick] = ()
    """Upright lines with a word: something happened then."""
    keys: Sequence[tuple[str, str]] = ()
    """Of the legend: the class of the colour, and the word."""


class Plot:
    """Where values are drawn whose ``x`` is between ``first`` and ``last``, and whose ``y`` is at most ``highest``."""

    def __init__(self, first: float, last: float, highest: float) -> None:
        self._first, self._length = first, (last - first) or 1.0
        self._marks = scale(highest)

    def place(self, x: float, y: float) -> tuple[float, float]:
        """The place of a value."""
        share = (x - self._first) / self._length
        return round(Chart.LEFT + (Chart.RIGHT - Chart.LEFT) * share, 1), round(Chart.BOTTOM - self.height(y), 1)

    def height(self, y: float) -> float:
        """The height of a bar."""
        return (Chart.BOTTOM - Chart.TOP) * y / self._marks[-1]

    @property
    def y(self) -> list[Tick]:
        """The ticks of the upright axis."""
        return [Tick(round(Chart.BOTTOM - self.height(mark), 1), brief(mark)) for mark in self._marks]


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
