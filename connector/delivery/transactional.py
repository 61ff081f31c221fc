"""Exactly once: the next offsets are committed with the rows, in the table, and read back from there.

A crash before the commit leaves the old offsets without the rows, a crash after it the new offsets with the rows:
either way the next run starts at the first record that the table doesn't have.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import datetime, timedelta, timezone

from connector.delivery.handover import TRANSACTIONAL, hand_over
from connector.delivery.work import Delivered, Work, behind
from connector.protocol.pace import Pace
from connector.protocol.plan import next_epoch, within_bytes
from connector.protocol.recover import TopicsHeld, resume
from connector.protocol.retire import recreated, retirement
from connector.protocol.size import EpochSize
from connector.protocol.steps import Event, Step
from sinks.contract import Epoch, Position
from sinks.errors import Fenced, LakelockError, OffsetsLost
from sinks.offsets import Offsets

log = logging.getLogger("lakelock.delivery")


def deliver(work: Work, *, interval: timedelta | None, stop: threading.Event) -> Delivered:
    """Epoch after epoch, up to what Kafka held at the start; with ``interval`` again and again, until ``stop``."""
    epochs = rows = 0
    last: Position | None = None
    size = EpochSize.first(work.max_records, work.target_duration)
    pace = Pace(work.target_latency) if work.target_latency is not None else None
    while True:
        started = time.monotonic()
        # From the table, never from memory: somebody may have restored it since.
        position = work.position()
        if last is None and position is not None and position.delivery != TRANSACTIONAL:
            position = hand_over(work, TRANSACTIONAL)
        if last is not None and position is not None and position.epoch > last.epoch:
            raise Fenced(
                f"Pipeline {work.pipeline!r} was replaced: run {position.owner} has committed epoch {position.epoch}; "
                f"this run ({work.owner}) has stopped after its epoch {last.epoch}.",
                owner=position.owner,
                epoch=position.epoch,
                hint="Two runs of one pipeline were active. Nothing is lost: the other run goes on.",
            )
        target = held = work.topics.look()
        held_back = False
        if pace is not None and position is not None:
            left = behind(position.offsets, held)
            pace = pace.after_look(started, waiting=left > 0)
            held_back = left < size.records and pace.can_wait(started)
        while not (held_back or stop.is_set()):
            retired = _retired(work, position, held)
            if retired is not None:
                # Ends of the old topic say nothing about the new one.
                epochs, position, target = epochs + 1, retired, held
            resumption = resume(
                position,
                held,
                work.topics.starting(held),
                work.topics.remaining(held),
                continue_on_data_loss=work.continue_on_data_loss,
            )
            epoch = next_epoch(
                work.pipeline,
                work.owner,
                position,
                resumption,
                target,
                max_records=_bound(work, size, resumption.offsets, target.ends),
                now=datetime.now(timezone.utc),
            )
            if epoch is None:
                break
            left = behind(epoch.offsets, target)
            if not epochs:
                work.observe(Event(Step.RESUMED, epoch, behind=left))
            work.observe(Event(Step.PLANNED, epoch, behind=left))
            begun = time.monotonic()
            try:
                committed = work.run_epoch(epoch, left)
            except OffsetsLost:
                # Nothing of the epoch is written: from the start again, which finds, and names, what is missing.
                position, held = work.position(), work.topics.look()
                passed = any(held.beginnings.get(range_.at, range_.end) > range_.start for range_ in epoch.ranges)
                if not passed and not (position and recreated(position, held)):
                    raise
                continue
            took = timedelta(seconds=time.monotonic() - begun)
            size = size.after(epoch.span, took)
            pace = pace and pace.after_epoch(took.total_seconds())
            _publish(work, epoch, held, left)
            epochs, rows, position = epochs + 1, rows + (committed.rows or 0), committed.position
            _fold(work, position)
            if not epoch.ranges:
                break
            # Again before each epoch: retention goes on, and a topic may be made anew.
            held = work.topics.look()
        _fold(work, position)
        if work.settle is not None:
            work.settle()
        last = position
        if interval is None or stop.wait(max(0.0, interval.total_seconds() - (time.monotonic() - started))):
            return Delivered(epochs, rows, position)


def _retired(work: Work, position: Position | None, held: TopicsHeld) -> Position | None:
    """The position after topics that were made again got other names; None where there is nothing to do."""
    names = recreated(position, held) if position is not None else {}
    if position is None or work.retire is None or not names:
        return None
    epoch = retirement(work.pipeline, work.owner, position, held, names)
    committed = work.retire(epoch, names)
    note = "; ".join(f"{topic} was made again, what came from it before is {name}" for topic, name in names.items())
    work.observe(Event(Step.RESUMED, epoch, committed, note=note))
    return committed.position


def _fold(work: Work, position: Position | None) -> None:
    if work.fold is not None and position is not None:
        work.fold(position)


def _bound(work: Work, size: EpochSize, offsets: Offsets, ends: Offsets) -> int:
    if work.max_bytes is None:
        return size.records
    sizes = work.topics.record_bytes(offsets, ends)
    return within_bytes(offsets, ends, size.records, work.max_bytes, sizes)


def _publish(work: Work, epoch: Epoch, held: TopicsHeld, left: int) -> None:
    """Tell lag tools how far the table is. Never read back: where it fails, nothing but their figures is wrong."""
    try:
        # Kafka takes none of a topic that is gone.
        work.group.store(Offsets({at: offset for at, offset in epoch.offsets.items() if at in held.ends}))
    except LakelockError as error:
        log.warning("offsets were not published to consumer group %s: %s", work.group.name, error.message)
        return
    work.observe(Event(Step.OFFSETS_COMMITTED, epoch, behind=left))
