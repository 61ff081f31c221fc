"""The charts as numbers: nothing lies outside of the plot, axes are round, and colours differ for everybody."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import boards
import pytest
from boards import NOW, past
from hypothesis import given
from hypothesis import strategies as st

from connector.display.chart import Chart, brief, scale
from connector.display.style import colours
from connector.ui.board import SAMPLES, Board
from connector.ui.charts import Sample, durations, lag, offsets, throughput
from connector.watch.poll import Look


@given(st.floats(min_value=1e-3, max_value=1e15))
def test_an_axis_has_a_few_round_marks_and_reaches_the_highest_value(highest: float) -> None:
    marks = scale(highest)
    assert marks[0] == 0
    assert marks[-1] >= highest * 0.999999
    assert 3 <= len(marks) <= 6
    step = marks[1] / 10 ** math.floor(math.log10(marks[1]) + 1e-9)
    assert min(abs(step - round_) for round_ in (1, 2, 5)) < 1e-6


def test_an_axis_of_nothing_has_two_marks() -> None:
    assert scale(0) == scale(float("nan")) == [0, 1]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (0.25, "0.25"), (950, "950"), (1200, "1.2k"), (36_000, "36k"), (1.5e6, "1.5M"), (2e9, "2G")],
)
def test_numbers_at_an_axis_are_brief(number: float, text: str) -> None:
    assert brief(number) == text


def inside(chart: Chart | None) -> Chart:
    assert chart is not None
    points = [tuple(map(float, point.split(","))) for line in chart.lines for point in line.split()]
    points += [(mark.x, mark.y) for mark in (*chart.dots, *chart.bars)]
    points += [(bar.x + bar.width, bar.y + bar.height) for bar in chart.bars]
    assert all(
        Chart.LEFT - 0.2 <= x <= Chart.RIGHT + 0.2 and Chart.TOP - 0.2 <= y <= Chart.BOTTOM + 0.3 for x, y in points
    )
    return chart


@given(st.lists(st.tuples(st.integers(0, 10**7), st.none() | st.integers(0, 10**12)), max_size=30))
def test_the_lag_stays_in_its_plot_and_breaks_where_nothing_was_seen(looks: list[tuple[int, int | None]]) -> None:
    times = sorted(seconds for seconds, _ in looks)
    samples = [Sample(NOW + timedelta(seconds=at), lag) for at, (_, lag) in zip(times, looks, strict=True)]
    seen = [each for each in samples if each.offsets is not None]
    chart = lag(samples)
    if len(seen) < 2:
        assert chart is None
        return
    runs = [
        len(list(group)) for known, group in itertools.groupby(samples, lambda each: each.offsets is not None) if known
    ]
    assert [len(line.split()) for line in inside(chart).lines] == [size for size in runs if size > 1]


def test_an_epoch_that_was_taken_back_or_had_no_pause_is_in_no_chart() -> None:
    epochs = [past(5), past(4, state="taken back"), past(3, since_last=None), past(2), past(1, ranges=None)]
    drawn = inside(throughput(epochs))
    assert [dot.title.partition(":")[0] for dot in drawn.dots] == ["epoch 2", "epoch 5"]
    assert [bar.title for bar in inside(durations(epochs)).bars] == [
        f"epoch {number}: 60 s after the epoch before" for number in (1, 2, 5)
    ]
    assert throughput([past(2), past(1, ranges=None)]) is None
    assert durations([past(1, since_last=None)]) is None


def test_phases_are_stacked_in_the_order_in_which_they_happen() -> None:
    epochs = [past(2, phases={"write": 6.0, "read": 2.0, "match": 2.0}), past(1, phases={"read": 5.0})]
    chart = inside(durations(epochs))
    assert chart.keys == [("part-a", "read"), ("part-b", "match"), ("part-c", "write")]
    of_second = [bar for bar in chart.bars if bar.title.startswith("epoch 2")]
    assert [bar.title for bar in of_second] == ["epoch 2: read 2.0 s", "epoch 2: match 2.0 s", "epoch 2: write 6.0 s"]
    assert of_second[0].y > of_second[1].y > of_second[2].y
    assert sum(bar.height for bar in of_second) == pytest.approx(Chart.BOTTOM - Chart.TOP, abs=0.2)


def test_every_epoch_has_a_bar_of_its_kind_as_high_as_the_offsets_that_it_passed() -> None:
    lost = past(2).ranges or ()
    epochs = [
        past(5, ranges=()),
        past(4, state="taken back"),
        past(3, notes=("restored",)),
        past(2, lost=lost),
        past(1),
    ]
    chart = inside(offsets(epochs))
    assert [bar.kind for bar in chart.bars] == ["usual", "unusual", "unusual", "gone", "usual"]
    assert [kind for kind, _ in chart.keys] == ["usual", "unusual", "gone"]
    passed = [epoch.records for epoch in reversed(epochs)]
    highest = max(chart.bars, key=lambda bar: bar.height)
    assert highest.title == f"epoch 4: {max(each or 0 for each in passed)} offsets, taken back"
    assert chart.bars[-1].title == "epoch 5: 0 offsets, committed"
    assert 0 < chart.bars[-1].height < min(bar.height for bar in chart.bars[:-1])
    assert "offsets unknown" in inside(offsets([past(1, ranges=None)])).bars[0].title
    assert offsets([]) is None


def test_epochs_are_named_below_their_bars_and_of_many_the_first_and_the_last() -> None:
    few = inside(offsets([past(2), past(1)]))
    assert [(tick.label, tick.anchor) for tick in few.x] == [("epoch 1", "middle"), ("epoch 2", "middle")]
    assert [tick.at for tick in few.x] == [bar.x + bar.width / 2 for bar in few.bars]
    many = inside(offsets([past(number) for number in range(20, 0, -1)]))
    assert [(tick.label, tick.anchor) for tick in many.x] == [("epoch 1", "begin"), ("epoch 20", "end")]
    assert (many.x[0].at, many.x[1].at) == (many.bars[0].x, many.bars[-1].x + many.bars[-1].width)


def test_the_board_keeps_the_lag_of_two_hours() -> None:
    board = Board([Path("flights.yaml")])
    for number in range(SAMPLES + 20):
        seen = boards.status("flights", behind=number) if number % 2 else None
        board.saw(Look("flights.yaml", "flights", NOW + timedelta(seconds=number), seen))
    lags = board.seen.lags["flights.yaml"]
    assert len(lags) == SAMPLES
    assert [each.offsets for each in lags[-2:]] == [None, 3 * (SAMPLES + 19)]


LIGHT, DARK = colours(), colours(dark=True)
# How people see who lack one kind of cones: Machado, Oliveira and Fernandes (2009), severity 1, for linear RGB.
SEEN = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def linear(colour: str) -> list[float]:
    full = colour if len(colour) == 7 else "#" + "".join(digit * 2 for digit in colour[1:])
    parts = [int(full[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def lab(rgb: list[float]) -> tuple[float, float, float]:
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    xyz = [sum(a * b for a, b in zip(row, rgb, strict=True)) / w for row, w in zip(to_xyz, white, strict=True)]
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def seen(colour: str, by: str) -> tuple[float, float, float]:
    rgb = linear(colour)
    return lab([min(1.0, max(0.0, sum(a * b for a, b in zip(row, rgb, strict=True)))) for row in SEEN[by]])


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_of_a_chart_differ_for_everybody_and_from_what_is_behind_them(theme: Mapping[str, str]) -> None:
    for names in (("part-a", "part-b", "part-c"), ("usual", "unusual")):
        for by in SEEN:
            for one, other in itertools.combinations(names, 2):
                assert math.dist(seen(theme[one], by), seen(theme[other], by)) > 20, (one, other, by)
    behind = sum(a * b for a, b in zip((0.2126, 0.7152, 0.0722), linear(theme["panel"]), strict=True))
    for name in ("part-a", "part-b", "part-c", "usual", "unusual", "gone", "lost", "stale", "link"):
        light = sum(a * b for a, b in zip((0.2126, 0.7152, 0.0722), linear(theme[name]), strict=True))
        assert (max(light, behind) + 0.05) / (min(light, behind) + 0.05) >= 3, name
