"""Charts for notebooks, of simulated histories; and what a run says of itself."""

from __future__ import annotations

from itertools import islice

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from unit.connector.lab.samples import every, simulate

from connector.lab.check.checker import judge
from connector.lab.check.fates import LEGEND
from connector.lab.experiment import Run
from connector.lab.show.charts import _LOOKS, lag_chart, records_chart


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
