"""Exactly once: the next offsets are committed with the rows, in the table, and read back from there.

A crash before the commit leaves the old offsets without the rows, a crash after it the new offsets with the rows:
either way the next run starts at the first record that the table doesn't have.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Protocol

from connector.protocol.plan import next_epoch
from connector.protocol.recover import TopicsHeld, resume
from sinks.contract import Committed, Epoch, Position
from sinks.errors import Fenced
from sinks.offsets import Offsets


class Topics(Protocol):
    """What the delivery asks of the source."""

    def look(self) -> TopicsHeld: ...

    def starting(self, held: TopicsHeld) -> Callable[[frozenset[str]], Offsets]: ...


@dataclass(frozen=True)
class Work:
    """What one run has to do. ``run_epoch`` takes the epoch and the offsets that still lie behind it."""

    pipeline: str
    owner: str
    topics: Topics
    position: Callable[[], Position | None]
    run_epoch: Callable[[Epoch, int], Committed]
    max_records: int
    continue_on_data_loss: bool = False


@dataclass(frozen=True)
class Delivered:
    epochs: int
    rows: int
    position: Position | None


def deliver(work: Work, *, interval: timedelta | None, stop: threading.Event) -> Delivered:
    """Epoch after epoch, up to what Kafka held at the start; with ``interval`` again and again, until ``stop``."""
    epochs = rows = 0
    last: Position | None = None
    while True:
        started = time.monotonic()
        # From the table, never from memory: somebody may have restored it since.
        position = work.position()
        if last is not None and position is not None and position.epoch > last.epoch:
            raise Fenced(
                f"Pipeline {work.pipeline!r} was replaced: run {position.owner} has committed epoch {position.epoch}; "
                f"this run ({work.owner}) has stopped after its epoch {last.epoch}.",
                owner=position.owner,
                epoch=position.epoch,
                hint="Two runs of one pipeline were active. Nothing is lost: the other run goes on.",
            )
        target = held = work.topics.look()
        while not stop.is_set():
            resumption = resume(
                position, held, work.topics.starting(held), continue_on_data_loss=work.continue_on_data_loss
            )
            epoch = next_epoch(
                work.pipeline,
                work.owner,
                position,
                resumption,
                target,
                max_records=work.max_records,
                now=datetime.now(timezone.utc),
            )
            if epoch is None:
                break
            committed = work.run_epoch(epoch, behind(epoch.offsets, target))
            epochs, rows, position = epochs + 1, rows + (committed.rows or 0), committed.position
            if not epoch.ranges:
                break
            # Again before each epoch: retention goes on, and a topic may be made anew.
            held = work.topics.look()
        last = position
        if interval is None or stop.wait(max(0.0, interval.total_seconds() - (time.monotonic() - started))):
            return Delivered(epochs, rows, position)


def behind(offsets: Offsets, held: TopicsHeld) -> int:
    """Offsets between ``offsets`` and the ends of the topics: an upper bound on the records still to come."""
    return sum(max(0, end - offsets.get(at, held.beginnings.get(at, 0))) for at, end in held.ends.items())
