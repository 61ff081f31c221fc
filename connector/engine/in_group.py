"""Runs the deliveries whose offsets are in a consumer group."""

from __future__ import annotations

import threading
from dataclasses import replace

from connector.config import PipelineConfig
from connector.delivery import auto_commit, idempotent, manual_commit
from connector.delivery.handover import hand_over
from connector.delivery.ports import Delivered, GroupWork, Work
from connector.engine.assembly import Assembly
from connector.engine.epoch import run_epoch, these
from connector.source.group_member import GroupMember
from connector.source.records import polled
from sinks.contract import Epoch

_DELIVERIES = {
    "auto_commit": auto_commit.deliver,
    "manual_commit": manual_commit.deliver,
    "idempotent": idempotent.deliver,
}


def run_in_group(config: PipelineConfig, work: Work, assembly: Assembly, stop: threading.Event) -> Delivered:
    """Deliver as a member of the consumer group, until ``stop`` is set or the trigger says so. Raises LakelockError."""
    position = hand_over(work, config.delivery)
    member = GroupMember(
        config,
        owner=work.owner,
        source=assembly.source,
        group=assembly.group,
        position=position,
        stop=stop,
        observe=work.observe,
    )

    reading = assembly.reading({assembly.table.label: assembly.table})

    def write(batch: Epoch) -> int:
        records = member.records
        if not records:
            return 0
        committed = run_epoch(
            batch,
            replace(reading, read=these(polled(assembly.spark, records))),
            write=assembly.table.derivation.plain.write,
            observe=work.observe,
            behind=member.behind,
        )
        return len(records) if committed.rows is None else committed.rows

    try:
        return _DELIVERIES[config.delivery](GroupWork(member, write))
    finally:
        member.close()
