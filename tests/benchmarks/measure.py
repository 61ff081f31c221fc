"""Alternating repetitions and their results: medians, their spread, and ratios with a target."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from benchmarks.stage import Stage

progress = Console(stderr=True, highlight=False)

OURS = "lakelock"
Figures = Mapping[str, float]
"""The values that one run measured, by name."""


class WrongResult(Exception):
    """A table doesn't hold the expected rows, so its time doesn't count."""


@dataclass(frozen=True)
class Run:
    contender: str
    repetition: int
    figures: Figures


@dataclass(frozen=True)
class Median:
    value: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Median:
        listed = sorted(values)
        return cls(statistics.median(listed), listed[0], listed[-1])


@dataclass(frozen=True)
class Ratio:
    """``top`` / ``bottom``, each (contender, figure). ``bottom`` None: the target is a bound on ``top`` itself."""

    name: str
    top: tuple[str, str]
    bottom: tuple[str, str] | None
    at_most: float | None = None
    at_least: float | None = None

    @property
    def target(self) -> str:
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return "" if self.at_least is None else f">= {self.at_least:g}"

    def judge(self, runs: Sequence[Run]) -> Judged | None:
        """The ratio of the medians, with the lowest and highest ratio of a repetition. None if a side has no runs."""
        top, bottom = _values(runs, *self.top), _values(runs, *self.bottom) if self.bottom else {}
        if not top or (self.bottom and not bottom):
            return None
        if self.bottom is None:
            return Judged(self, Median.of(top.values()))
        of_medians = statistics.median(top.values()) / statistics.median(bottom.values())
        # Runs of one repetition are neighbours in time: noise of the machine affected both.
        pairs = [value / bottom[number] for number, value in top.items() if number in bottom]
        return Judged(self, Median(of_medians, min(pairs), max(pairs)))


@dataclass(frozen=True)
class Judged:
    ratio: Ratio
    median: Median

    @property
    def met(self) -> bool | None:
        """Whether the ratio meets its target. None if it has no target."""
        if self.ratio.at_most is not None:
            return self.median.value <= self.ratio.at_most
        return None if self.ratio.at_least is None else self.median.value >= self.ratio.at_least


@dataclass(frozen=True)
class Work:
    """A workload to measure. ``main``: the figure that the chart shows for every contender."""

    name: str
    about: str
    main: str
    ratios: Sequence[Ratio]
    measure: Callable[[Stage], list[Run]]


@dataclass(frozen=True)
class Measured:
    work: Work
    runs: Sequence[Run] = ()
    failed: str = ""
    date: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds"))

    @property
    def judged(self) -> list[Judged]:
        return [judged for ratio in self.work.ratios if (judged := ratio.judge(self.runs)) is not None]

    @property
    def medians(self) -> dict[str, dict[str, Median]]:
        """The median of each figure: contender -> figure -> median, in the order of the runs."""
        contenders = list(dict.fromkeys(run.contender for run in self.runs))
        return {
            contender: {
                figure: Median.of(_values(self.runs, contender, figure).values())
                for figure in dict.fromkeys(
                    figure for run in self.runs if run.contender == contender for figure in run.figures
                )
            }
            for contender in contenders
        }


def alternating(contenders: Mapping[str, Callable[[], Figures]], repetitions: int, *, warm_up: int = 0) -> list[Run]:
    """Run each contender ``repetitions`` times, in turns. Every second turn is in reverse order, so that no contender
    always follows the same one. ``warm_up``: turns before these, which don't count."""
    names, runs = list(contenders), []
    for repetition in range(-warm_up, repetitions):
        for contender in names if repetition % 2 == 0 else reversed(names):
            figures = contenders[contender]()
            shown = "  ".join(f"{name} {value:,.3g}" for name, value in list(figures.items())[:4])
            turn = f"{repetition + 1} of {repetitions}" if repetition >= 0 else "warm-up"
            progress.print(f"  {turn}  {contender}: {shown}", soft_wrap=True)
            if repetition >= 0:
                runs.append(Run(contender, repetition, figures))
    return sorted(runs, key=lambda run: (names.index(run.contender), run.repetition))


def _values(runs: Sequence[Run], contender: str, figure: str) -> dict[int, float]:
    return {run.repetition: run.figures[figure] for run in runs if run.contender == contender and figure in run.figures}
