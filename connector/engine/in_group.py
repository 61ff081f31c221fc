"""Runs the deliveries whose offsets are in a consumer group."""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import replace

from connector.config import PipelineConfig
from connector.delivery import auto_commit, idempotent, manual_commit
from connector.delivery.handover import hand_over, is_due
from connector.delivery.ports import Delivered, GroupWork, Work
from connector.delivery.retries import Retries
from connector.engine.assembly import Assembly
from connector.engine.epoch import run_epoch, these
from connector.protocol.steps import Event, Step
from connector.source.group_member import GroupMember
from connector.source.records import polled
from sinks.contract import Epoch, Position
from sinks.offsets import Offsets

log = logging.getLogger("lakelock.delivery")

_DELIVERIES = {
    "auto_commit": auto_commit.deliver,
    "manual_commit": manual_commit.deliver,
    "idempotent": idempotent.deliver,
}


def run_in_group(config: PipelineConfig, work: Work, assembly: Assembly, stop: threading.Event) -> Delivered:
    """Deliver as a member of the consumer group, until ``stop`` is set or the trigger says so. Raises LakelockError.

    Transient errors are retried as ``work.patience`` says, each time as a new member. A failure leaves what a crash at
    this point leaves, see the delivery: so a batch that failed is written again, or with ``auto_commit`` lost.
    """
    run = _Run(config, work, assembly, stop)
    retries = Retries(work.patience, lambda: run.finished, stop, run.failed)
    while retries.wanted():
        with retries:
            run.as_member()
    return run.done


class _Run:
    """What a run remembers from one member to the next."""

    def __init__(self, config: PipelineConfig, work: Work, assembly: Assembly, stop: threading.Event) -> None:
        self._config, self._work, self._assembly, self._stop = config, work, assembly, stop
        self._reading = assembly.reading({assembly.table.label: assembly.table})
        self._position: Position | None = None
        self._committed = 0
        self.done = Delivered()

    @property
    def finished(self) -> int:
        """The number of batches that were written and have their offsets in the group, in whichever order."""
        return min(self.done.epochs, self._committed)

    def failed(self, error: BaseException) -> None:
        """Announce that the member has failed, and that another one follows."""
        stands = self._position or Position(0, Offsets())
        epoch = replace(Epoch.that_left(stands, pipeline=self._work.pipeline), owner=self._work.owner)
        self._work.observe(Event(Step.RETRYING, epoch, error=error))

    def as_member(self) -> None:
        """Join the group, deliver, and leave it."""
        self._position = hand_over(self._work, self._config.delivery)
        member = GroupMember(
            self._config,
            owner=self._work.owner,
            source=self._assembly.source,
            group=self._assembly.group,
            position=self._position,
            stop=self._stop,
            observe=self._observe,
        )
        try:
            _DELIVERIES[self._config.delivery](GroupWork(member, lambda batch: self._write(member, batch)))
        except BaseException:
            with contextlib.suppress(Exception):  # the first error tells more
                member.close()
            raise
        member.close()

    def _observe(self, event: Event) -> None:
        self._committed += event.step is Step.OFFSETS_COMMITTED
        self._work.observe(event)

    def _write(self, member: GroupMember, batch: Epoch) -> int:
        try:
            rows = self._written(member, batch)
        except BaseException:
            if self._config.delivery == "auto_commit" and member.records:
                log.warning("the Kafka client has committed %s, and they may be lost", _said(batch))
            raise
        self.done = self.done.plus(rows)
        return rows

    def _written(self, member: GroupMember, batch: Epoch) -> int:
        if self._position is not None and is_due(self._position):
            # Else a run that stays up would outlive the only commit that says whose offsets count.
            self._position = hand_over(self._work, self._config.delivery)
        records = member.records
        if not records:
            return 0
        committed = run_epoch(
            batch,
            replace(self._reading, read=these(polled(self._assembly.spark, records))),
            write=self._assembly.table.derivation.plain.write,
            observe=self._work.observe,
            behind=member.behind,
        )
        return len(records) if committed.rows is None else committed.rows


def _said(batch: Epoch) -> str:
    return ", ".join(map(str, batch.ranges))
