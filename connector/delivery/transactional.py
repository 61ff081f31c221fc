"""Exactly once: the next offsets are committed with the rows, in the table, and read back from there.

A crash before the commit leaves the old offsets without the rows, a crash after it the new offsets with the rows:
either way the next run starts at the first record that the table doesn't have.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from connector.delivery.handover import TRANSACTIONAL, hand_over
from connector.delivery.ports import Delivered, Work
from connector.delivery.retries import patiently
from connector.protocol.pacing import EpochSize, Pace
from connector.protocol.plan import next_epoch, within_bytes
from connector.protocol.recover import TopicsHeld, behind, resume
from connector.protocol.recreated import of_unknown_id, recreated, retirement
from connector.protocol.steps import Event, Step
from sinks.contract import Epoch, Position
from sinks.errors import Fenced, LakelockError, OffsetsLost, TopicRecreated
from sinks.offsets import Offsets

log = logging.getLogger("lakelock.delivery")


def deliver(work: Work, *, interval: timedelta | None, stop: threading.Event) -> Delivered:
    """Epoch after epoch, up to what Kafka held at the start; with ``interval`` again and again, until ``stop``."""
    run = _Run(work, stop)
    while True:
        started = time.monotonic()
        patiently(run.round, lambda: run.epochs, work.patience, stop, run.failed)
        run.announce(Step.WAITING)
        if interval is None or stop.wait(max(0.0, interval.total_seconds() - (time.monotonic() - started))):
            return Delivered(run.epochs, run.rows, run.last, run.behind)


class _Run:
    """What a run knows from one round to the next: nothing that the next epoch depends on."""

    def __init__(self, work: Work, stop: threading.Event) -> None:
        self._work = work
        self._stop = stop
        self._size = EpochSize.first(work.max_records, work.target_duration)
        self._pace = Pace(work.target_latency) if work.target_latency is not None else None
        self._looked_back: int | None = None
        """Version of the table at which what belongs to a RESTORE was done."""
        self.epochs = self.rows = 0
        self.last: Position | None = None
        """As far as this run has seen or brought the table."""
        self.behind: int | None = None
        """Offsets in Kafka that aren't committed; None: nothing ever was, or the run hasn't looked yet."""

    def announce(self, step: Step, error: BaseException | None = None) -> None:
        """A step between two epochs."""
        stands = self.last or Position(0, Offsets())
        epoch = replace(Epoch.that_left(stands, pipeline=self._work.pipeline), owner=self._work.owner)
        self._work.observe(Event(step, epoch, behind=self.behind or 0, error=error))

    def failed(self, error: BaseException) -> None:
        self.announce(Step.RETRYING, error)

    def round(self) -> None:
        """Up to what Kafka holds now. Whatever it raises, the next one finds out where the table stands."""
        work, stop, started, last = self._work, self._stop, time.monotonic(), self.last
        # Kafka first: what waits is to be seen also where Spark doesn't answer any more.
        held = self._look() if last is not None else None
        # From the table, never from memory: somebody may have restored it since.
        position = self._position()
        if last is None and position is not None and position.delivery != TRANSACTIONAL:
            position = hand_over(work, TRANSACTIONAL)
        self._refuse_replaced(position)
        self.last = position
        if held is None or last is None or position is None or position.offsets != last.offsets:
            held = self._look()  # anew: where the table stands may be behind what was seen before
        target, held_back = held, False
        if position is not None and self._pace is not None:
            left = behind(position.offsets, held)
            self._pace = self._pace.after_look(started, waiting=left > 0)
            held_back = left < self._size.records and self._pace.can_wait(started)
        while not (held_back or stop.is_set()):
            retired = _retired(work, position, held)
            if retired is not None:
                # Ends of the old topic say nothing about the new one.
                self.epochs, position, target = self.epochs + 1, retired, held
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
                max_records=_bound(work, self._size, resumption.offsets, target.ends),
                now=datetime.now(timezone.utc),
            )
            if epoch is None:
                break
            # Of all that Kafka holds by now, not of what this round is to reach.
            left = behind(epoch.offsets, held)
            if not self.epochs:
                work.observe(Event(Step.RESUMED, epoch, behind=left))
            work.observe(Event(Step.PLANNED, epoch, behind=left))
            begun = time.monotonic()
            try:
                committed = work.run_epoch(epoch, left)
            except (OffsetsLost, TopicRecreated):
                # Nothing of the epoch is written: from the start again, which finds, and names, what is missing.
                position, held = self._position(), work.topics.look()
                passed = any(held.beginnings.get(range_.at, range_.end) > range_.start for range_ in epoch.ranges)
                if not passed and not (position and recreated(position, held)):
                    raise
                continue
            took = timedelta(seconds=time.monotonic() - begun)
            self._size = self._size.after(epoch.span, took)
            self._pace = self._pace and self._pace.after_epoch(took.total_seconds())
            self.epochs, self.rows, position = self.epochs + 1, self.rows + (committed.rows or 0), committed.position
            self.last = position
            publish(work, epoch, held, left)
            _fold(work, position)
            if not epoch.ranges:
                break
            # Again before each epoch: retention goes on, and a topic may be made anew.
            held = work.topics.look()
        _fold(work, position)
        if work.settle is not None:
            work.settle()
        self.last = position
        self.behind = behind(position.offsets, held) if position is not None else None

    def _position(self) -> Position | None:
        """From the table. A RESTORE may come under a run: whatever belongs to it is done wherever it is found."""
        position = self._work.position()
        if position is not None and position.restored_to is not None and position.version != self._looked_back:
            self._work.restored(position)
            self._looked_back = position.version
        return position

    def _look(self) -> TopicsHeld:
        held = self._work.topics.look()
        if self.last is not None:
            self.behind = behind(self.last.offsets, held)
            self.announce(Step.LOOKED)
        return held

    def _refuse_replaced(self, position: Position | None) -> None:
        """What this very run has committed since, in a round that failed, is no other's."""
        last, work = self.last, self._work
        if last is None or position is None or position.epoch <= last.epoch or position.owner == work.owner:
            return
        raise Fenced(
            f"Pipeline {work.pipeline!r} was replaced: run {position.owner} has committed epoch {position.epoch}; "
            f"this run ({work.owner}) has stopped after its epoch {last.epoch}.",
            owner=position.owner,
            epoch=position.epoch,
            hint="Two runs of one pipeline were active. Nothing is lost: the other run goes on.",
        )


def _retired(work: Work, position: Position | None, held: TopicsHeld) -> Position | None:
    """The position after topics that were made again got other names; None where there is nothing to do."""
    names = recreated(position, held) if position is not None else {}
    if position is None or work.retire is None or not (names or of_unknown_id(position, held)):
        return None
    starts = work.starts(position, held, names)
    if not names:
        return None
    epoch = retirement(work.pipeline, work.owner, position, held, names, starts)
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


def publish(work: Work, epoch: Epoch, held: TopicsHeld, left: int) -> None:
    """Tell lag tools how far the table is. Never read back: where it fails, nothing but their figures is wrong."""
    try:
        # Kafka takes none of a topic that is gone.
        work.group.store(Offsets({at: offset for at, offset in epoch.offsets.items() if at in held.ends}))
    except LakelockError as error:
        log.warning("offsets were not published to consumer group %s: %s", work.group.name, error.message)
        return
    work.observe(Event(Step.OFFSETS_COMMITTED, epoch, behind=left))
