"""The SVG picture of a lab run: a row of cells per partition, one per record, and the steps of each process below.

Colour, shape and a tooltip tell what became of a record. Sizes are fixed in pixels, so that text stays readable. In a
long row, a cell stands for a group of records. On a narrow screen, the row scrolls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil

from connector.lab.check.fates import LEGEND, WORST, Fate, fates, lanes_of, ranges, started, stored_at
from connector.lab.check.history import Happened, History
from connector.lab.check.verdict import Report
from sinks.offsets import OffsetRange, TopicPartition

WIDTH = 1000
CELLS = 110
"""The most cells in a row. If a partition has more records, each cell is a group of them."""
_LABELS = 78
_CELL_TOP, _CELL = 18, 20
_RUN_HEAD, _LANE, _RUN_FOOT, _GAP = 20, 11, 18, 4


def picture(history: History, report: Report) -> str:
    """HTML of the picture, with all partitions. Needs the page's style."""
    known = fates(history, report)
    places = sorted({sent.at for sent in history.sent})
    return "\n".join(_partition(at, history, known) for at in places)


def icon(word: str) -> str:
    """SVG of a single cell, for the legend."""
    shapes = _shapes(word, 1.0, 1.0, 14.0, 2)
    return f'<svg class="icon" width="16" height="22" aria-hidden="true">{shapes}</svg>'


@dataclass(frozen=True)
class _Scale:
    """Converts offsets to pixels."""

    low: int
    high: int

    @property
    def per(self) -> int:
        return ceil((self.high - self.low) / CELLS)

    @property
    def cell(self) -> float:
        cells = ceil((self.high - self.low) / self.per)
        return min(21.5, WIDTH / cells)

    @property
    def width(self) -> float:
        return self.x(self.high)

    def x(self, offset: int) -> float:
        return 1 + (min(max(offset, self.low), self.high) - self.low) / self.per * self.cell


def _partition(at: TopicPartition, history: History, known: Mapping[tuple[TopicPartition, int], Fate]) -> str:
    offsets = [sent.offset for sent in history.sent if sent.at == at]
    low = min(*offsets, history.since.get(at, min(offsets)))
    scale = _Scale(low, max(offsets) + 1)
    lanes = lanes_of(history.delivery)
    runs = sorted({event.run for event in history.events})
    labels = [_text(0, _CELL_TOP + 14, f"partition {at.partition}", "strong")]
    if scale.per > 1:
        labels.append(_text(0, _CELL_TOP - 6, f"{scale.per} per cell", "tick"))
    drawn = [*_ticks(scale), *_cells(at, scale, known)]
    marks = []
    y = _CELL_TOP + _CELL
    stored = low
    crashes = []
    for run in runs:
        events = [event for event in history.events if event.run == run]
        top = y + _RUN_HEAD
        bottom = top + len(lanes) * _LANE
        labels.append(_text(0, y + 15, f"run {run}", "strong"))
        if run > 0:
            start = started(at, events, stored)
            marks.append(_mark("resume", scale, start, y + 4, bottom, f"starts at {start}"))
        for number, (name, words) in enumerate(lanes):
            lane = top + number * _LANE
            labels.append(_text(0, lane + 9, name, "lane"))
            drawn.append(f'<line class="rule" x1="1" x2="{scale.width:.1f}" y1="{lane + 5.5}" y2="{lane + 5.5}"/>')
            drawn += _bars(at, events, words, scale, lane, run, name)
        stored = stored_at(at, events, lanes, stored)
        if any(event.what == "crashed" for event in events):
            # The mark is below the run's steps, because time runs downwards, and on the cells, which it divides.
            crashes.append(stored)
            x = scale.x(stored)
            marks.append(f'<path class="kill line" d="M{x:.1f} {_CELL_TOP - 2}v{_CELL + 4}M{x:.1f} {top}V{bottom}"/>')
            marks.append(_mark("kill", scale, stored, bottom + 1, bottom + _RUN_FOOT, f"kill -9 at {stored}"))
            bottom += _RUN_FOOT
        y = bottom + _GAP
    counts = Counter(known[at, offset].word for offset in offsets)
    summary = ", ".join(f"{counts[word]} {LEGEND[word]}" for word in WORST if counts[word])
    name = f"{at.topic}-{at.partition}, offsets {low} to {scale.high - 1}: {summary}"
    # If the row scrolls, the first crash is in view.
    middle = min((round(scale.x(offset)) for offset in crashes), default=0)
    # Leaves room for the last dot.
    width = ceil(scale.width) + 4
    return (
        f'<div class="partition"><svg width="{_LABELS}" height="{y}" aria-hidden="true">'
        f'{"".join(labels)}</svg><div class="wide" tabindex="0" data-at="{middle}">'
        f'<svg width="{width}" height="{y}" role="img" aria-label="{escape(name)}">'
        f"{''.join(drawn)}{''.join(marks)}</svg></div></div>"
    )


def _ticks(scale: _Scale) -> Iterable[str]:
    step = next(step for step in _steps() if step / scale.per * scale.cell >= 44)
    for offset in range(-(-scale.low // step) * step, scale.high, step):
        x = scale.x(offset)
        yield f'<path class="tick" d="M{x:.1f} {_CELL_TOP - 4}v4"/>'
        yield _text(x + 2, _CELL_TOP - 6, str(offset), "tick")


def _steps() -> Iterable[int]:
    size = 1
    while True:
        yield from (size, 2 * size, 5 * size)
        size *= 10


def _cells(at: TopicPartition, scale: _Scale, known: Mapping[tuple[TopicPartition, int], Fate]) -> Iterable[str]:
    for start in range(scale.low, scale.high, scale.per):
        group = [known[at, o] for o in range(start, min(start + scale.per, scale.high)) if (at, o) in known]
        if not group:
            continue
        worst = min(group, key=lambda fate: WORST.index(fate.word))
        if scale.per == 1:
            title = worst.text
        else:
            counts = Counter(fate.word for fate in group)
            parts = ", ".join(f"{counts[word]} {LEGEND[word]}" for word in WORST if counts[word])
            title = f"offsets {start} to {start + scale.per - 1}: {parts}"
        again = any(fate.times > 1 and fate.word in ("once", "was") for fate in group)
        width = scale.x(start + scale.per) - scale.x(start) - 1
        shapes = _shapes(worst.word, scale.x(start), _CELL_TOP, width, worst.times, again)
        yield f"<g><title>{escape(title)}</title>{shapes}</g>"


def _shapes(word: str, x: float, y: float, width: float, times: int, again: bool = False) -> str:
    """SVG of one cell. Every word has its own shape, so that the picture is readable without colour."""
    high, end, bottom = _CELL, x + width, y + _CELL
    box = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{high}"'
    middle = f'x="{x + width / 2:.1f}" y="{y + 14}"'
    triangle = f"M{x:.1f} {y}H{end:.1f}L{x:.1f} {bottom}Z"
    match word:
        case "never":
            cross = f"M{x + 2:.1f} {y + 3}L{end - 2:.1f} {bottom - 3}M{end - 2:.1f} {y + 3}L{x + 2:.1f} {bottom - 3}"
            shapes = f'<rect class="never" {box}/><path class="cross" d="{cross}"/>'
        case "again":
            shapes = f'<rect class="again" {box}/><text class="times" {middle}>{min(times, 9)}</text>'
        case "stale":
            shapes = f'<rect class="stale" {box}/><path class="stale" d="{triangle}"/>'
        case "blip":
            half = f"M{x:.1f} {y}H{end:.1f}L{x:.1f} {y + 12}Z"
            shapes = f'<rect class="once" {box}/><path class="stale edge" d="{half}"/>'
        case "odd":
            shapes = f'<rect class="odd" {box}/><text class="times" {middle}>!</text>'
        case "was":
            low = f'x="{x:.1f}" y="{y + 11}" width="{width:.1f}" height="{high - 11}"'
            shapes = f'<rect class="area" {box}/><rect class="was" {low}/>'
        case "once":
            shapes = f'<rect class="once" {box}/>'
        case _:
            shapes = f'<rect class="{word}" {box}/>'
    if again:
        shapes += f'<circle class="repeat" cx="{x + width / 2:.1f}" cy="{bottom - 5}" r="{min(2.2, width / 4):.1f}"/>'
    return shapes


def _bars(
    at: TopicPartition, events: Sequence[Happened], words: frozenset[str], scale: _Scale, y: int, run: int, name: str
) -> Iterable[str]:
    done = ranges(at, events, words)
    kind = "wrote" if "committed" in words else "offsets" if "offsets_committed" in words else "polled"
    for range_ in done:
        yield _bar(range_, scale, y, kind, f"run {run} {name}: offsets {range_.start} to {range_.end - 1}")
    if kind == "wrote":
        for range_ in ranges(at, events, frozenset({"writing"})):
            if range_ not in done:
                title = f"run {run} was writing offsets {range_.start} to {range_.end - 1}: no commit"
                yield _bar(range_, scale, y, "unfinished", title)


def _bar(range_: OffsetRange, scale: _Scale, y: int, kind: str, title: str) -> str:
    x, end = scale.x(range_.start) + 0.5, scale.x(range_.end) - 1.5
    top, height = (y + 4, 3) if kind == "offsets" else (y + 2, 7)
    bar = f'<rect class="bar {kind}" x="{x:.1f}" y="{top}" width="{max(end - x, 1):.1f}" height="{height}"/>'
    if kind == "offsets":
        # A committed offset is a position, that of the next record to read, so it is drawn as a dot.
        bar += f'<circle class="bar offsets" cx="{end:.1f}" cy="{y + 5.5}" r="3"/>'
    return f"<g><title>{escape(title)}</title>{bar}</g>"


def _mark(kind: str, scale: _Scale, offset: int, y: int, bottom: int, label: str) -> str:
    x = scale.x(offset)
    # The label is left of the line if there is no room on the right.
    left = x + 10 + 6.4 * len(label) > scale.width and x > scale.width / 2
    shape = f"M{x + 3:.1f} {y}l-7 9h4l-2 8 7-10h-4z" if kind == "kill" else f"M{x:.1f} {y}l8 6-8 6z"
    text = f'<text class="{kind}" x="{x + (-8 if left else 11):.1f}" y="{y + 10}"' + (
        f' text-anchor="end">{escape(label)}</text>' if left else f">{escape(label)}</text>"
    )
    line = "" if kind == "kill" else f'<path class="{kind} line" d="M{x:.1f} {y}V{bottom}"/>'
    return f'{line}<path class="{kind} shape" d="{shape}"/>{text}'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y}">{escape(text)}</text>'
