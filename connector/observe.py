"""What a run shows while it works: one line per epoch."""

from __future__ import annotations

import time

from rich.console import Console

from connector.protocol.steps import Event, Step


class Progress:
    """An observer that prints each committed epoch."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()

    def __call__(self, event: Event) -> None:
        if event.step is Step.PLANNED:
            self._started = time.monotonic()
        if event.step is not Step.COMMITTED or event.committed is None:
            return
        seconds = time.monotonic() - self._started
        read = sum(range_.span for range_ in event.epoch.ranges)
        rows, version = event.committed.rows, event.committed.position.version
        self._console.print(
            f"{event.epoch.pipeline}  epoch {event.epoch.number}  offsets +{read:,}  rows {rows or 0:,}  "
            f"{seconds:.1f} s  {read / max(seconds, 1e-9):,.0f}/s  behind {event.behind:,}  version {version}",
            highlight=False,
            soft_wrap=True,
        )
        for gap in event.epoch.lost:
            self._console.print(
                f"[yellow]lost[/] {gap.topic}-{gap.partition} [{gap.start}, {gap.end}): no longer in Kafka",
                soft_wrap=True,
            )
