"""How far a run of the lab was behind its topic, over time, as a chart of the page."""

from __future__ import annotations

from connector.display.chart import Chart, Mark, Plot, Tick, brief
from connector.lab.check.fates import behind
from connector.lab.check.history import History
from sinks.plurals import plural


def lag(history: History, name: str) -> Chart | None:
    """The chart. None: nothing was committed, so there is nothing to draw."""
    seen, crashes = behind(history)
    last = max([seconds for seconds, _ in seen] + list(crashes))
    if len(seen) < 2 or not last:
        return None
    plot = Plot(0, last, max(records for _, records in seen))
    points, before = [], seen[0][1]
    for seconds, records in seen:
        points += [plot.place(seconds, before), plot.place(seconds, records)]
        before = records
    return Chart(
        name,
        "Records that the table lacked, over time",
        f"Records that the table lacked: {seen[0][1]:,} at the start, {before:,} after {seen[-1][0]:.1f} s; "
        f"{plural(len(crashes), 'crash', 'crashes')}.",
        [Tick(Chart.LEFT, "0 s", "begin"), Tick(Chart.RIGHT, f"{brief(last)} s", "end")],
        plot.y,
        lines=[" ".join(f"{x},{y}" for x, y in points)],
        dots=[
            Mark(*plot.place(seconds, records), "part-a", f"{seconds:.2f} s: {plural(records, 'record')}")
            for seconds, records in seen
        ],
        rules=[
            Tick(plot.place(seconds, 0)[0], "kill -9", "end" if seconds > last / 2 else "begin") for seconds in crashes
        ],
    )
