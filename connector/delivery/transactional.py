"""Exactly once: the next offsets are committed with the rows, in the table, and read back from there.

A crash before the commit leaves the old offsets without the rows. A crash after it leaves the new offsets with the
rows. Either way the next run starts at the first record that the table doesn't have.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from connector.delivery.handover import TRANSACTIONAL, hand_over
from connector.delivery.ports import Delivered, Topics, Work
from connector.delivery.retries import Retries
from connector.protocol.gone import doubts, with_gone
from connector.protocol.pacing import EpochSize, Pace
from connector.protocol.plan import next_epoch, within_bytes
from connector.protocol.read_to import ahead, looked, of_wrong_clock, times_of, wants_renewal
from connector.protocol.recover import TopicsHeld, behind, readable, resumed
from connector.protocol.recreated import of_unknown_id, recreated, retirement
from connector.protocol.steps import Event, Step
from sinks.contract import Epoch, Position
from sinks.errors import Fenced, LakelockError, OffsetsLost, TopicRecreated
from sinks.offsets import Offsets

log = logging.getLogger("lakelock.delivery")

_IDLE_SECONDS = 0.05


def deliver(work: Work, *, interval: timedelta | None, stop: threading.Event) -> Delivered:
    """Commit epoch after epoch, up to what Kafka held at the start.

    With ``interval``, repeat that until ``stop`` is set.

    The order of steps makes the result exact:

    ====================  ==============================================================================================
    crash after           what is left, and what the next run does
    ====================  ==============================================================================================
    position, plan        Nothing has changed. The next run asks the table again, and plans again.
    dead letters          Letters that don't count yet, as the position hasn't passed their records. The next run meets
                          the same records and adds no letter twice.
    a part of the write   Files that no version of the table names. The position is the old one, so the epoch is planned
                          again.
    the commit            Rows and next offsets, in one commit. The next run goes on from them.
    publish               The same. Only lag tools read the consumer group's offsets.
    ====================  ==============================================================================================

    A run that was replaced can't commit: another run has committed the number of its epoch (``Fenced``). Transient
    errors are retried as ``work.patience`` says. Raises LakelockError; whatever it raises, the table holds whole epochs
    only.
    """
    run = _Run(work, stop)
    while True:
        started, before = time.monotonic(), run.epochs
        run.patiently(run.round)
        run.announce(Step.WAITING)
        took = time.monotonic() - started
        if interval is None or stop.wait(_pause(interval.total_seconds(), took, idle=run.epochs == before)):
            work.destination.finish()
            return Delivered(run.epochs, run.rows, run.last, run.behind)


def finish_doubted(work: Work, *, stop: threading.Event) -> None:
    """Finish an epoch that is in doubt, and begin no other. Retries and raises as ``deliver`` does."""
    run = _Run(work, stop)
    run.patiently(run.finish_doubted)


def _pause(interval: float, took: float, *, idle: bool) -> float:
    """Seconds to the next round. After a round that found nothing the brokers get a moment, also with interval 0."""
    return max(_IDLE_SECONDS if idle else 0.0, interval - took)


class _Run:
    """What a run remembers from one round to the next. No epoch's offsets depend on it."""

    def __init__(self, work: Work, stop: threading.Event) -> None:
        self._work = work
        self._stop = stop
        self._size = EpochSize.first(work.max_records, work.target_duration)
        self._pace = Pace(work.target_latency) if work.target_latency is not None else None
        self._looked_back: int | None = None
        """The version of the table at which this run did what a RESTORE asks for."""
        self._tidy = False
        """Whether nothing is left behind by epochs that weren't committed."""
        self._known: Position | None = None
        """The newest position that a look was compared with, and what the looks since say of it. No commit has it."""
        self._warned = False
        """Whether the log says that a commit's time is still to come."""
        self.epochs = self.rows = 0
        self.last: Position | None = None
        """The newest position that this run has read or committed."""
        self.behind: int | None = None
        """Offsets in Kafka that aren't committed. None: the pipeline has no position, or the run hasn't looked yet."""

    def announce(self, step: Step, error: BaseException | None = None) -> None:
        """Announce a step that lies between two epochs."""
        stands = self.last or Position(0, Offsets())
        epoch = replace(Epoch.that_left(stands, pipeline=self._work.pipeline), owner=self._work.owner)
        self._work.observe(Event(step, epoch, behind=self.behind or 0, error=error))

    def failed(self, error: BaseException) -> None:
        """Announce that a round failed and will be tried again."""
        self.announce(Step.RETRYING, error)

    def patiently(self, attempt: Callable[[], None]) -> None:
        """Call a function, again after a failure that passes."""
        retries = Retries(self._work.patience, lambda: self.epochs, self._stop, self.failed)
        while retries.wanted():
            with retries:
                attempt()

    def finish_doubted(self) -> None:
        """Have the destination say where it stands: before that it settles what is in doubt."""
        self._find_position()
        self._work.destination.settle()

    def round(self) -> None:
        """Commit everything that Kafka holds now.

        After any error the next round asks the destination again where it stands.
        """
        started = time.monotonic()
        position, held = self._find_position()
        if not self._can_wait(position, held, started):
            position, held = self._catch_up(position, held)
        if position is not None:
            self._work.destination.fold(position)
        self._work.destination.settle()
        self.last = position
        self.behind = behind(position.offsets, held) if position is not None else None

    def _find_position(self) -> tuple[Position | None, TopicsHeld]:
        """Where the pipeline stands, and what Kafka holds.

        The position comes from the destination, never from memory: somebody may have restored a table since.
        """
        last = self.last
        # Ask Kafka first, so that the lag is reported even if Spark no longer answers.
        held = self._look() if last is not None else None
        position = self._position()
        if last is None and position is not None and position.delivery != TRANSACTIONAL:
            hand_over(self._work, TRANSACTIONAL)
            self._tidy = False  # what a batch has left behind is told only by offsets that are in the table
            position = self._position()
        self._refuse_replaced(position)
        self.last = position
        if held is None or last is None or position is None or position.offsets != last.offsets:
            held = self._look()  # the position has changed, so the first look may be too old for it
        return position, held

    def _can_wait(self, position: Position | None, held: TopicsHeld, started: float) -> bool:
        """Whether the next epoch may begin one look later, so that there are fewer epochs."""
        if position is None or self._pace is None:
            return False
        waiting = readable(position.offsets, held)
        self._pace = self._pace.after_look(started, waiting=waiting > 0)
        return waiting < self._size.records and self._pace.can_wait(started)

    def _catch_up(self, position: Position | None, held: TopicsHeld) -> tuple[Position | None, TopicsHeld]:
        """Run epoch after epoch up to what Kafka holds now. Returns the position then, and the newest look at Kafka."""
        target = held
        while not self._stop.is_set():
            retired = _retired(self._work, position, held)
            if retired is not None:
                # Ends of the old topic say nothing about the new one.
                self.epochs, position, target = self.epochs + 1, retired, held
            epoch = self._plan(position, held, target.that_knows(held))
            if epoch is None:
                break
            try:
                position = self._run_epoch(epoch, held)
            except (OffsetsLost, TopicRecreated):
                # Nothing of the epoch is written. Plan again from a new look: it names what is missing.
                position, held = self._position(), self._work.topics.look()
                passed = any(held.beginnings.get(range_.at, range_.end) > range_.start for range_ in epoch.ranges)
                if not passed and not (position and recreated(position, held)):
                    raise
                continue
            if not epoch.ranges:
                break
            # Look again before each epoch: retention goes on, and a topic may be recreated.
            held = self._work.topics.look()
        return position, held

    def _plan(self, position: Position | None, held: TopicsHeld, target: TopicsHeld) -> Epoch | None:
        """The next epoch, up to the ends of ``target``. None: there is nothing to do."""
        work = self._work
        known, goes_on = self._as_known(position, held), work.continue_on_data_loss
        resumption = resumed(known, held, work.topics, continue_on_data_loss=goes_on)
        resumption = with_gone(resumption, position, held, continue_on_data_loss=goes_on)
        if doubt := doubts(resumption.gone):
            log.warning("pipeline %s: %s", work.pipeline, doubt)
        if known is not None:
            known = self._known = looked(known, resumption.offsets, held)
        epoch = next_epoch(
            work.pipeline,
            work.owner,
            known,
            resumption,
            target,
            max_records=bounded(self._size, work.max_bytes, work.topics, resumption.offsets, target.ends),
            now=datetime.now(timezone.utc),
        )
        if epoch is None and position and known and wants_renewal(position, known, held):
            epoch = Epoch.of_no_records(known, pipeline=work.pipeline, owner=work.owner)
        return replace(epoch, expected=position) if epoch is not None else None

    def _as_known(self, position: Position | None, held: TopicsHeld) -> Position | None:
        """The position, with the times that looks of this run have found since it was committed."""
        if position is None:
            return None
        wrong = ahead(position, held.looked_at)
        if wrong is not None and not self._warned:
            self._warned = True
            log.warning("pipeline %s: %s", self._work.pipeline, of_wrong_clock(position, wrong))
        if self._known is None or not position.same_place(self._known):
            return position
        return replace(position, **times_of(self._known)._asdict())

    def _run_epoch(self, epoch: Epoch, held: TopicsHeld) -> Position:
        """Run one epoch, and return the position after it."""
        work = self._work
        # The lag counts all that Kafka holds now, not only what this round is to reach.
        left = behind(epoch.offsets, held)
        if not self.epochs:
            work.observe(Event(Step.RESUMED, epoch, behind=left))
        work.observe(Event(Step.PLANNED, epoch, behind=left))
        begun = time.monotonic()
        committed = work.destination.run_epoch(epoch, left)
        took = timedelta(seconds=time.monotonic() - begun)
        self._size = self._size.after(epoch.span, took)
        self._pace = self._pace and self._pace.after_epoch(took.total_seconds())
        self.epochs, self.rows = self.epochs + 1, self.rows + (committed.rows or 0)
        self.last = committed.position
        publish(work, epoch, held, left)
        work.destination.fold(committed.position)
        return committed.position

    def _position(self) -> Position | None:
        """The destination's position.

        If it shows a RESTORE that this run hasn't seen yet, first do what the RESTORE asks for. Then, and at the start
        of the run, remove what uncommitted epochs have left behind.

        Somebody may RESTORE the table during a run, so this is done wherever the position is read.
        """
        position = self._work.destination.position()
        if position is not None and position.restored_to is not None and position.version != self._looked_back:
            self._work.destination.restored(position)
            self._looked_back, self._tidy = position.version, False
        if not self._tidy:
            position = self._work.destination.tidied(position)
            self._tidy = True
        return position

    def _look(self) -> TopicsHeld:
        held = self._work.topics.look()
        if self.last is not None:
            self.behind = behind(self.last.offsets, held)
            self.announce(Step.LOOKED)
        return held

    def _refuse_replaced(self, position: Position | None) -> None:
        """Raises Fenced if another run has committed an epoch since this run's last one.

        An epoch of this run's own, from a round that failed after its commit, is fine. So it is once a RESTORE has
        taken it back: the number stays, and the owner is that of the epoch before.
        """
        last, work = self.last, self._work
        if last is None or position is None or position.stands_at <= last.epoch or position.owner == work.owner:
            return
        raise Fenced(
            f"Pipeline {work.pipeline!r} was replaced: run {position.owner} has committed epoch {position.epoch}; "
            f"this run ({work.owner}) has stopped after its epoch {last.epoch}.",
            owner=position.owner,
            epoch=position.epoch,
            hint="Two runs of one pipeline were active. Nothing is lost: the other run goes on.",
        )


def _retired(work: Work, position: Position | None, held: TopicsHeld) -> Position | None:
    """The position after recreated topics have retired to new names. None: there is nothing to do."""
    names = recreated(position, held) if position is not None else {}
    if position is None or not work.destination.takes_recreated or not (names or of_unknown_id(position, held)):
        return None
    starts = work.destination.starts(position, held, names)
    if not names:
        return None
    epoch = retirement(work.pipeline, work.owner, position, held, names, starts)
    if doubt := doubts({name: epoch.gone.get(name) for name in names.values()}):
        log.warning("pipeline %s: %s", work.pipeline, doubt)
    for gap in epoch.lost_now:
        log.warning("pipeline %s: %s was never read before the topic was recreated: it is lost", work.pipeline, gap)
    committed = work.destination.retire(epoch, names)
    note = "; ".join(
        f"{topic} was recreated, the rows of the old topic are now {name}" for topic, name in names.items()
    )
    work.observe(Event(Step.RESUMED, epoch, committed, note=note))
    return committed.position


def bounded(size: EpochSize, max_bytes: int | None, topics: Topics, offsets: Offsets, ends: Offsets) -> int:
    """The most records that the next epoch may have: by the size, and by ``max_bytes`` if there is such a limit."""
    if max_bytes is None:
        return size.records
    return within_bytes(offsets, ends, size.records, max_bytes, topics.record_bytes(offsets, ends))


def publish(work: Work, epoch: Epoch, held: TopicsHeld, left: int) -> None:
    """Store the epoch's next offsets in the consumer group, so that lag tools show how far the table is.

    Lakelock never reads them back. If this fails, only the figures of those tools are wrong, so it is logged and not
    raised.
    """
    try:
        # Kafka takes no offsets of a topic that is gone.
        work.group.store(Offsets({at: offset for at, offset in epoch.offsets.items() if at in held.ends}))
    except LakelockError as error:
        log.warning("offsets were not published to consumer group %s: %s", work.group.name, error.message)
        return
    work.observe(Event(Step.OFFSETS_COMMITTED, epoch, behind=left))
