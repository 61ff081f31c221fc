"""Charts for notebooks, of simulated histories; and what a run says of itself."""

from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from unit.connector.lab.samples import every, simulate

from connector.lab.check.checker import judge
from connector.lab.check.fates import LEGEND
from connector.lab.check.history import Happened, History, Sent
from connector.lab.experiment import Run
from connector.lab.show.charts import _LOOKS, SERIES, Picture, epochs_chart, lag_chart, records_chart
from sinks.offsets import OffsetRange, TopicPartition


def texts(figure: Figure) -> list[str]:
    return [found.get_text() for found in figure.findobj(Text) if isinstance(found, Text)]


def test_every_fate_has_a_look_of_its_own_that_is_seen_without_colours() -> None:
    assert _LOOKS.keys() == LEGEND.keys()
    greys = [(look.hatch, look.mark) for look in _LOOKS.values() if look.hatch or look.mark]
    assert len(set(greys)) == len(greys) == len(LEGEND) - 2  # "once" is plain; "again" shows how often


@pytest.mark.parametrize("one_of", [9, pytest.param(1, marks=pytest.mark.breadth)])
def test_every_history_is_drawn(one_of: int) -> None:
    for history in islice(every(), 0, None, one_of):
        for picture in (records_chart(history, judge(history)), lag_chart(history)):
            assert picture._repr_png_().startswith(b"\x89PNG")


def test_the_chart_of_a_loss_says_where_the_process_died_and_what_the_table_lacks() -> None:
    history = simulate("auto_commit", "append", "after_auto_commit")
    said = texts(records_chart(history, judge(history)).figure)
    assert "kill -9" in said
    assert "x" in said
    assert any(text.startswith("lost") for text in said)
    assert "run 2: wrote" in said


def test_the_lag_ends_at_what_was_lost_or_at_nothing() -> None:
    for delivery, point in (("transactional", "after_write"), ("manual_commit", "after_write")):
        ax = lag_chart(simulate(delivery, "append", point)).figure.axes[0]
        heights = list(ax.lines[-1].get_ydata())
        assert heights[0] == 40
        assert heights[-1] == 0


def heights(picture: Picture) -> list[float]:
    return list(picture.figure.axes[0].lines[-1].get_ydata())  # type: ignore[arg-type]


def two_runs(end: str) -> History:
    """Half of the records is sent later. The second run decides on them and is killed, the third one finishes."""
    at = TopicPartition("t", 0)
    first, second = (OffsetRange(*at, 0, 5),), (OffsetRange(*at, 5, 10),)
    events = (
        Happened(0, 10.0, "started"), Happened(0, 11.0, "committed", first), Happened(0, 12.0, "done"),
        Happened(1, 14.0, "decided", second), Happened(1, 15.0, "crashed"),
        Happened(2, 16.0, "sink_committed", second), Happened(2, 17.0, "sink_committed", second),
        Happened(2, 18.0, end),
    )  # fmt: skip
    sent = tuple(Sent("t", 0, offset, "k", offset) for offset in range(10))
    return History("transactional", "upsert", "decided", sent, events, ())


def test_the_lag_rises_when_records_arrive_and_falls_when_the_last_sink_has_a_finished_epoch() -> None:
    shown = lag_chart(two_runs("done"), [(9.0, 5), (13.0, 5)])
    assert heights(shown) == [5, 0, 5, 0]
    assert list(shown.figure.axes[0].lines[-1].get_xdata()) == [0, 1, 3, 7]  # type: ignore[arg-type]
    assert heights(lag_chart(two_runs("crashed"), [(9.0, 5), (13.0, 5)])) == [5, 0, 5]
    assert heights(lag_chart(two_runs("done"), [(9.0, 5)])) == [10, 5, 0], "somebody else has sent the rest"


def test_a_row_of_epochs_says_what_was_committed_in_the_time() -> None:
    said = texts(epochs_chart({500: [(0, 0.8), (0.9, 1.7), (1.8, 2.6)], 2000: [(0, 1.1)]}, 2).figure)
    assert [text.strip() for text in said if text.endswith("records")] == ["1,000 records", "2,000 records"]
    assert "500 per epoch" in said


def test_series_are_told_apart_by_lightness_alone_and_by_shape() -> None:
    def lightness(colour: str) -> float:
        linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour))
        return float(116 * np.dot((0.2126, 0.7152, 0.0722), list(linear)) ** (1 / 3) - 16)

    levels = sorted(lightness(series.colour) for series in SERIES)
    assert all(lighter - darker > 15 for darker, lighter in pairwise(levels)), levels
    assert levels[-1] < 80, "it would be lost on white"
    for shape in ("hatch", "marker"):
        assert len({getattr(series, shape) for series in SERIES}) == len(SERIES)


def test_a_run_is_told_a_line_per_batch() -> None:
    events = simulate("manual_commit", "append", "after_write").events
    first = [event for event in events if event.run == 0]
    assert repr(Run(1, "after_write", first)).splitlines() == [
        "run 1, killed: after_write",
        "  goes on at orders-0: 0, orders-1: 0",
        "  orders-0 [0, 5), orders-1 [0, 5): read, writing, in the table, noted in Kafka",
        "  orders-0 [5, 10), orders-1 [5, 10): read, writing, in the table, noted in Kafka",
        "  orders-0 [10, 15), orders-1 [10, 15): read, writing, in the table, kill -9",
    ]
