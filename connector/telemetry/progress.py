"""The output for a person: a line per epoch and, on a terminal, a live line per working pipeline below them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from connector.protocol.steps import Event, Observer
from connector.telemetry.tracker import Done, Observed

_PER_SECOND = 4
_LINES = 10
"""The most pipelines with a live line."""

Watch = Callable[[str], AbstractContextManager[Observer]]
"""Gives an observer for one run of the pipeline with this name, within the block."""


@contextmanager
def progress(console: Console) -> Iterator[Watch]:
    """Observers that show the progress of one pipeline, or of several at once, within the block."""
    lines = _Lines(console)
    running: dict[str, Observed] = {}
    live = Live(
        get_renderable=lambda: _now(dict(running)), console=console, refresh_per_second=_PER_SECOND, transient=True
    )

    @contextmanager
    def watch(pipeline: str) -> Iterator[Observer]:
        observed = running[pipeline] = Observed(lines.done)
        if live.is_started:
            live.refresh()

        def observe(event: Event) -> None:
            if event.note:
                lines.say(f"{pipeline}  {escape(event.note)}")
            observed(event)

        try:
            yield observe
        finally:
            del running[pipeline]

    with live if console.is_terminal else nullcontext():
        yield watch


def _now(running: Mapping[str, Observed]) -> Group:
    """A line for each pipeline; of many, for those that are at work."""
    at_work = {name: each for name, each in running.items() if len(running) == 1 or each.doing != "waiting"}
    shown = [now(name, observed) for name, observed in list(at_work.items())[:_LINES]]
    waiting = len(running) - len(shown)
    return Group(*shown, *([Text(f"{waiting} more are waiting", style="dim")] if waiting else []))


def now(pipeline: str, observed: Observed) -> Text:
    """The live line: ``flights  epoch 7: writing, 3.1 s  21,153/s  behind 236,776 and 12 min, about 11 s to go``."""
    shown = Text(f"{pipeline}  ", style="dim")
    waits = observed.doing.startswith("waiting")
    if observed.epoch is not None and not waits:
        shown.append(f"epoch {observed.epoch.number}: ")
    shown.append(observed.doing)
    if not waits:
        shown.append(f", {observed.seconds:.1f} s")
    rate, left = observed.offsets_per_second, observed.seconds_to_catch_up
    if rate is not None:
        shown.append(f"  {rate:,.0f}/s")
    if observed.behind is not None:
        shown.append(f"  behind {observed.behind:,}")
    if (late := observed.seconds_behind) is not None:
        shown.append(f" and {span(late)}")
    if left:
        shown.append(f", about {span(left)} to go")
    return shown


def span(seconds: float | None) -> str:
    """A duration as text: ``1.5 s``, ``40 s``, ``12 min``, ``4 h``, ``30 days``. None becomes ``-``."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def done(self, done: Done) -> None:
        changed = f" ({done.changed:,} of them changed)" if done.changed else ""
        rows = "" if done.rows is None else f"rows {done.rows:,}{changed}  "
        rows += f"set aside {done.letters:,}  " if done.letters else ""
        name = done.epoch.pipeline
        if done.what == "fold":
            version = f"  version {done.version}" if done.version is not None else ""
            self.say(f"{name}  folded up to epoch {done.epoch.number}  {rows}{done.seconds:.1f} s{version}")
        elif done.epoch.ranges:
            self.say(
                f"{name}  {done.what} {done.epoch.number}  offsets +{done.offsets:,}  {rows}"
                f"{done.seconds:.1f} s  {done.offsets_per_second:,.0f}/s  behind {done.behind:,}"
                + (f"  version {done.version}" if done.version is not None else "")
            )
            for gap in done.epoch.lost_now:
                self.say(f"[yellow]lost[/] {gap}: no longer in Kafka")
            for gap in done.epoch.missed_now:
                self.say(f"[yellow]lost[/] deletes in {gap}, maybe: its topic is compacted")
