"""The sizes of all workloads, and one factor that scales them."""

from __future__ import annotations

from dataclasses import dataclass

PARTITIONS = 4


@dataclass(frozen=True)
class Sizes:
    """The defaults are for scale 1. Smaller scales keep the shape of a workload: its triggers, epochs and folds."""

    records: int = 2_000_000
    keys: int = 100_000
    per_trigger: int = 250_000
    trickle_rows: int = 1_000_000
    trickle_records: int = 1_000
    """Records per epoch."""
    trickle_epochs: int = 50
    trickle_fold: int = 25
    small_rows: int = 100_000
    large_rows: int = 10_000_000
    backlog: int = 2_000_000
    large_backlog: int = 20_000_000
    batch: int = 10_000
    """Records per batch in the workload ``delivery``. The consumer deliveries pass them through Python."""
    batches: int = 10
    two_phase_epoch: int = 100_000
    two_phase_epochs: int = 6
    polls: int = 100
    start_records: int = 1_000
    decoded: int = 1_000_000
    job_rows: int = 500_000
    job_records: int = 10_000
    many: int = 40
    """Topics of the workload of this name, with a table each."""
    many_records: int = 5_000
    """New records of each."""
    routes: int = 20
    """Tables of the workload of this name."""
    pipelines: int = 200
    """Those of many_memory. They are compared with 10."""
    fresh_keys: int = 200_000
    fresh_rate: int = 2_000
    """Records per second."""
    fresh_seconds: int = 300
    fresh_warm_up: int = 20
    """Seconds that don't count."""

    @classmethod
    def at(cls, scale: float) -> Sizes:
        def scaled(size: int, least: int) -> int:
            return max(least, round(size * scale))

        whole = cls()
        epochs = scaled(whole.trickle_epochs, 8)
        return cls(
            records=scaled(whole.records, 8_000),
            keys=scaled(whole.keys, 400),
            per_trigger=scaled(whole.per_trigger, 1_000),
            trickle_rows=scaled(whole.trickle_rows, 1_000),
            trickle_epochs=epochs,
            trickle_fold=epochs // 2,
            small_rows=scaled(whole.small_rows, 1_000),
            large_rows=scaled(whole.large_rows, 100_000),
            backlog=scaled(whole.backlog, 8_000),
            large_backlog=scaled(whole.large_backlog, 80_000),
            batch=scaled(whole.batch, 1_000),
            batches=scaled(whole.batches, 4),
            two_phase_epoch=scaled(whole.two_phase_epoch, 1_000),
            two_phase_epochs=scaled(whole.two_phase_epochs, 3),
            polls=scaled(whole.polls, 20),
            decoded=scaled(whole.decoded, 20_000),
            job_rows=scaled(whole.job_rows, 5_000),
            job_records=scaled(whole.job_records, 1_000),
            many=scaled(whole.many, 3),
            many_records=scaled(whole.many_records, 1_000),
            routes=scaled(whole.routes, 4),
            pipelines=scaled(whole.pipelines, 20),
            fresh_keys=scaled(whole.fresh_keys, 2_000),
            fresh_seconds=scaled(whole.fresh_seconds, 10),
            fresh_warm_up=scaled(whole.fresh_warm_up, 5),
        )
