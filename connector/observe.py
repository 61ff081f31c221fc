"""What a run shows while it works: one line per epoch."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape

from connector.protocol.steps import Event, Step
from sinks.contract import Committed, Epoch


class Progress:
    """An observer that prints each committed epoch."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()

    def __call__(self, event: Event) -> None:
        if event.note:
            self._console.print(f"{event.epoch.pipeline}  {escape(event.note)}", highlight=False, soft_wrap=True)
        if event.step in (Step.PLANNED, Step.FOLDING):
            self._started = time.monotonic()
        if event.step is Step.FOLDED and event.committed is not None:
            self._folded(event.epoch, event.committed)
        if event.step is not Step.COMMITTED or event.committed is None or not event.epoch.ranges:
            return
        seconds = time.monotonic() - self._started
        what = "epoch" if event.epoch.delivery == "transactional" else "batch"
        read = event.epoch.span
        rows, version = event.committed.rows, event.committed.position.version
        self._console.print(
            f"{event.epoch.pipeline}  {what} {event.epoch.number}  offsets +{read:,}  "
            + ("" if rows is None else f"rows {rows:,}  ")
            + f"{seconds:.1f} s  {read / max(seconds, 1e-9):,.0f}/s  behind {event.behind:,}"
            + (f"  version {version}" if version is not None else ""),
            highlight=False,
            soft_wrap=True,
        )
        for gap in event.epoch.lost_now:
            self._console.print(
                f"[yellow]lost[/] {gap.topic}-{gap.partition} [{gap.start}, {gap.end}): no longer in Kafka",
                soft_wrap=True,
            )

    def _folded(self, epoch: Epoch, committed: Committed) -> None:
        rows = "" if committed.rows is None else f"rows {committed.rows:,}  "
        self._console.print(
            f"{epoch.pipeline}  folded up to epoch {committed.position.epoch}  {rows}"
            f"{time.monotonic() - self._started:.1f} s  version {committed.position.version}",
            highlight=False,
            soft_wrap=True,
        )
