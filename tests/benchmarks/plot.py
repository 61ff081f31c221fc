"""The results as a chart: a panel per workload, a bar per contender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import matplotlib

from benchmarks.measure import OURS, Measured, Median

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 3
OURS_COLOUR, PEERS_COLOUR = "#1f6f8b", "#c9c9c9"


def draw(file: Path, measured: Sequence[Measured], title: str) -> None:
    """Draw the chart into a file. A bar is a median, its whiskers are the lowest and the highest run. Ratios and their
    targets are above the bars."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [result for result in measured if result.runs]
    heights = [max(map(_height, shown[at : at + COLUMNS])) for at in range(0, len(shown), COLUMNS)] or [1.0]
    figure, axes = pyplot.subplots(
        len(heights),
        COLUMNS,
        figsize=(5.2 * COLUMNS, sum(heights)),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    for axis in axes.flat[len(shown) :]:
        axis.axis("off")
    for axis, result in zip(axes.flat, shown, strict=False):
        _panel(axis, result)
    figure.suptitle(title)
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


def _bars(measured: Measured) -> Mapping[str, Median]:
    main = measured.work.main
    return {name: figures[main] for name, figures in measured.medians.items() if main in figures}


def _height(measured: Measured) -> float:
    """Inches: a name may take two lines beside its bar, and so may a ratio above them."""
    return 1.0 + 0.4 * len(_bars(measured)) + 0.3 * len(measured.judged)


def _panel(axis: Axes, measured: Measured) -> None:
    bars = _bars(measured)
    for place, (name, median) in enumerate(bars.items()):
        whiskers = [[median.value - median.lowest], [median.highest - median.value]]
        colour = OURS_COLOUR if name.startswith((OURS, "transactional")) else PEERS_COLOUR
        axis.barh(place, median.value, xerr=whiskers, color=colour, capsize=3)
    axis.set_yticks(range(len(bars)), [fill(name, 22) for name in bars])
    axis.invert_yaxis()
    axis.set_xlabel(measured.work.main.replace("_", " "))
    lines = [measured.work.name]
    for judged in measured.judged:
        target = f" (target {judged.ratio.target}{'' if judged.met else ', not met'})" if judged.ratio.target else ""
        lines.append(fill(f"{judged.median.value:.2f}  {judged.ratio.name}{target}", 52))
    axis.set_title("\n".join(lines), fontsize=9, loc="left")
    axis.spines[["top", "right"]].set_visible(False)
