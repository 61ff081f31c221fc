"""Charts of an experiment, for notebooks. They are readable without colour: shapes and words tell the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from connector.display.style import colours
from connector.lab.check.fates import LEGEND, Fate, behind, fates, lanes_of, ranges, stored_at
from connector.lab.check.history import History
from connector.lab.check.verdict import Report
from sinks.offsets import TopicPartition
from sinks.plurals import plural

_WIDTH = 10.0
"""The width of a chart in inches."""
_KILL = colours()["lost"]
_EDGE = "#636363"
_THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.0f}")


@dataclass(frozen=True)
class Series:
    """How one of several series looks: as bars by colour and hatch, as a line by colour and marker."""

    colour: str
    hatch: str
    marker: str


SERIES = (Series("#08306b", "", "o"), Series("#2f8fbf", "....", "s"), Series("#f4a53a", "////", "v"))
"""Three series. They differ in lightness, so that they do for every eye and on paper, and are blue and orange, which
people with any colour blindness tell apart."""


@dataclass(frozen=True)
class _Look:
    face: str
    hatch: str = ""
    mark: str = ""


_LOOKS: Mapping[str, _Look] = {
    "never": _Look("white", mark="x"),
    "stale": _Look("#d9d9d9", "\\\\\\\\"),
    "again": _Look("#4d4d4d"),
    "odd": _Look("white", mark="!"),
    "blip": _Look("#bdbdbd", "...."),
    "hidden": _Look("#efefef", "xxxx"),
    "waiting": _Look("white", mark="?"),
    "once": _Look("#9ecae1"),
    "was": _Look("#deebf7", "////"),
}


@dataclass(frozen=True)
class Picture:
    """A chart that a notebook shows."""

    figure: Figure

    def _repr_png_(self) -> bytes:
        out = BytesIO()
        self.figure.savefig(out, format="png", dpi=110, bbox_inches="tight")
        return out.getvalue()

    def save(self, file: Path | str) -> None:
        """Write the chart to a file. The file's suffix decides the format."""
        self.figure.savefig(file, dpi=150, bbox_inches="tight")


def records_chart(history: History, report: Report) -> Picture:
    """A chart of what became of each record, one row of cells per partition. Below it is what each run did."""
    known = fates(history, report)
    places = sorted({sent.at for sent in history.sent})
    lanes = lanes_of(history.delivery)
    runs = sorted({event.run for event in history.events})
    rows = 1.6 + len(runs) * (len(lanes) + 0.6)
    figure = Figure(figsize=(_WIDTH, 0.9 + len(places) * (0.28 * rows + 0.3)), layout="constrained")
    axes = figure.subplots(len(places), 1, squeeze=False, sharex=True)[:, 0]
    for at, ax in zip(places, axes, strict=True):
        _partition(ax, at, history, known)
    axes[-1].set_xlabel("offset (records, in the order in which Kafka keeps them)")
    words = [word for word in LEGEND if any(fate.word == word for fate in known.values())]
    figure.legend(
        handles=[_patch(word) for word in words],
        loc="outside upper left",
        ncols=min(3, len(words)),
        frameon=False,
        fontsize=9,
    )
    return Picture(figure)


def lag_chart(history: History, arrived: Sequence[tuple[float, int]] = ()) -> Picture:
    """A chart of how many of the topic's records the table didn't have yet, over the seconds of the experiment.

    ``arrived``: when records were sent, in seconds since the lab began, and how many; by default all of them before the
    first run.
    """
    figure = Figure(figsize=(_WIDTH, 2.8), layout="constrained")
    ax = figure.subplots()
    lacked, crashes = behind(history, arrived)
    for at in crashes:
        ax.axvline(at, color=_KILL, linestyle="--", linewidth=1)
        ax.annotate(" kill -9", (at, 0.92), xycoords=("data", "axes fraction"), color=_KILL, fontsize=9)
    seconds, records = zip(*lacked, strict=True)
    line = SERIES[0].colour
    ax.fill_between(seconds, records, step="post", color=_LOOKS["once"].face, alpha=0.5, linewidth=0)
    ax.step(seconds, records, where="post", color=line, linewidth=1.5)
    ax.plot(seconds, records, SERIES[0].marker, color=line, markersize=4)
    ax.set_xlabel("seconds since the first run began")
    ax.set_ylabel("records behind")
    ax.set_ylim(0, 1.2 * max(records) or 1)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_formatter(_THOUSANDS)
    ax.spines[["top", "right"]].set_visible(False)
    return Picture(figure)


def epochs_chart(runs: Mapping[int, Sequence[tuple[float, float]]], seconds: float) -> Picture:
    """A chart of what runs did in their first seconds, a row of bars per run.

    ``runs``: records per epoch -> the seconds at which each of its epochs began and was committed.
    """
    figure = Figure(figsize=(_WIDTH, 0.9 + 0.42 * len(runs)), layout="constrained")
    ax = figure.subplots()
    for row, (size, epochs) in enumerate(runs.items()):
        for begun, committed in epochs:
            ax.add_patch(
                Rectangle(
                    (begun, row - 0.3),
                    committed - begun,
                    0.6,
                    facecolor=_LOOKS["once"].face,
                    edgecolor=_EDGE,
                    linewidth=0.8,
                )
            )
        done = size * sum(committed <= seconds for _, committed in epochs)
        ax.annotate(f" {plural(done, 'record')}", (seconds, row), va="center", fontsize=9, annotation_clip=False)
    ax.set_xlim(0, seconds)
    ax.set_ylim(len(runs) - 0.4, -0.6)
    ax.set_yticks(range(len(runs)), [f"{size:,} per epoch" for size in runs], fontsize=9)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("seconds (a bar is an epoch, from its plan to its commit)")
    ax.annotate(f" in {seconds:g} s:", (seconds, -0.75), va="center", fontsize=9, annotation_clip=False)
    ax.spines[["top", "right", "left"]].set_visible(False)
    return Picture(figure)


def _partition(
    ax: Axes, at: TopicPartition, history: History, known: Mapping[tuple[TopicPartition, int], Fate]
) -> None:
    offsets = [sent.offset for sent in history.sent if sent.at == at]
    low, high = min(offsets), max(offsets) + 1
    for offset in offsets:
        _cell(ax, offset, known[at, offset])
    y, labels = 0.0, {0.0: f"partition {at.partition}"}
    before = low
    lanes = lanes_of(history.delivery)
    for run in sorted({event.run for event in history.events}):
        events = [event for event in history.events if event.run == run]
        y -= 0.6
        top = y
        for name, words in lanes:
            y -= 1
            labels[y] = f"run {run + 1}: {name}"
            for done in ranges(at, events, words):
                ax.add_patch(Rectangle((done.start + 0.1, y - 0.2), done.span - 0.2, 0.4, facecolor=_EDGE))
        before = stored_at(at, events, lanes, before)
        if any(event.what == "crashed" for event in events):
            ax.plot([before, before], [top - 0.5, y - 0.5], color=_KILL, linestyle="--", linewidth=1.2)
            ax.annotate(
                "kill -9", (before, y - 0.5), xytext=(3, 1), textcoords="offset points", color=_KILL, fontsize=8
            )
    ax.set_xlim(low - 0.5, high + 0.5)
    ax.set_ylim(y - 0.9, 0.8)
    ax.set_yticks(list(labels), list(labels.values()), fontsize=9)
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.spines[["top", "right", "left"]].set_visible(False)


def _cell(ax: Axes, offset: int, fate: Fate) -> None:
    look = _LOOKS[fate.word]
    ax.add_patch(
        Rectangle(
            (offset + 0.06, -0.45), 0.88, 0.9, facecolor=look.face, edgecolor=_EDGE, hatch=look.hatch, linewidth=0.6
        )
    )
    mark = str(fate.times) if fate.word == "again" else look.mark
    if mark:
        colour = "white" if fate.word == "again" else _KILL
        ax.annotate(mark, (offset + 0.5, 0), ha="center", va="center", fontsize=8, fontweight="bold", color=colour)


def _patch(word: str) -> Patch:
    look = _LOOKS[word]
    mark = "2" if word == "again" else look.mark
    label = f"{LEGEND[word]} ({mark})" if mark else LEGEND[word]
    return Patch(facecolor=look.face, edgecolor=_EDGE, hatch=look.hatch, label=label)
