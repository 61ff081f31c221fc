"""What the commands print of a recovery, and of a pipeline's state and dead letters as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape

from connector.cli.console import out
from connector.operations.letter_groups import LetterGroup
from connector.operations.status import Status
from connector.protocol.two_phase import Recovered


def recovered_fields(recovered: Recovered) -> dict[str, object]:
    """A recovery as plain JSON values, for ``lakelock recover --json``."""
    return {
        "epoch": recovered.stands.number if recovered.stands else None,
        "found": recovered.found.value,
        "did": recovered.did.value,
        "in_doubt": recovered.doubted.epoch.number if recovered.doubted else None,
        "state": recovered.doubted.state.value if recovered.doubted else None,
        "owner": recovered.doubted.epoch.owner if recovered.doubted else None,
        "held": dict(recovered.held),
    }


def print_recovered(pipeline: str, recovered: Recovered) -> None:
    """Print what a recovery found in each sink, and what it did."""
    doubted = recovered.doubted
    if doubted is not None:
        out.print(
            f"in doubt  epoch {doubted.epoch.number}, {doubted.state.value} by run {doubted.epoch.owner}",
            soft_wrap=True,
        )
        for sink, held in recovered.held.items():
            out.print(f"found     {escape(sink)}: {'the same range' if held else 'nothing of it'}", soft_wrap=True)
    out.print(f"found     {recovered.found.value}")
    out.print(f"did       {recovered.did.value}")
    where = f"at epoch {recovered.stands.number}" if recovered.stands else "without any epoch yet"
    out.print(f"{pipeline}: all sinks are {where}.", soft_wrap=True)


def status_fields(state: Status) -> dict[str, object]:
    """Where a pipeline stands as plain JSON values, for ``lakelock status --json``."""
    position = state.position
    return {
        "pipeline": state.pipeline,
        "delivery": state.delivery,
        "table": state.sinks[0],
        "sinks": list(state.sinks),
        "in_doubt": {
            "epoch": state.in_doubt.epoch.number,
            "state": state.in_doubt.state.value,
            "owner": state.in_doubt.epoch.owner,
        }
        if state.in_doubt
        else None,
        "epoch": position.epoch if position else None,
        "unfolded_epochs": state.unfolded,
        "offsets": state.offsets.to_dict(),
        "ends": state.held.ends.to_dict(),
        "lag": {
            topic: {str(at.partition): lag for at, lag in state.lag.items() if at.topic == topic}
            for topic in sorted(state.held.ends.topics)
        },
        "total_lag": sum(state.lag.values()),
        "lag_seconds": {
            topic: {str(at.partition): _rounded(waits) for at, waits in state.lag_seconds.items() if at.topic == topic}
            for topic in sorted(state.held.ends.topics)
        },
        "max_lag_seconds": _rounded(state.max_lag_seconds),
        "watermark": position.clock.watermark.isoformat() if position and position.clock.watermark else None,
        "late": position.clock.late if position else 0,
        "read_to": position.read_to.isoformat() if position and position.read_to else None,
        "replaced": state.replaced or None,
        "recreated": sorted(state.recreated),
        "gone": [[gap.topic, gap.partition, gap.start, gap.end] for gap in state.gone],
        "cut": [[gap.topic, gap.partition, gap.start, gap.end] for gap in state.cut],
        "lost": [[gap.topic, gap.partition, gap.start, gap.end] for gap in position.lost] if position else [],
        "last_commit": {
            "version": position.version,
            "owner": position.owner,
            "time": position.committed_at.isoformat() if position.committed_at else None,
            "position_from": position.source,
        }
        if position
        else None,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def letters_fields(groups: Sequence[LetterGroup]) -> dict[str, object]:
    """The dead letters as plain JSON values, for ``lakelock dead-letters --json``."""
    return {
        "total": sum(group.count for group in groups),
        "groups": [
            {
                "reason": group.reason,
                "detail": group.detail,
                "sink": group.sink,
                "count": group.count,
                "epochs": [group.first_epoch, group.last_epoch],
                "example": {"topic": group.topic, "partition": group.partition, "offset": group.offset},
                "last_noted_at": group.last_noted_at.isoformat(),
            }
            for group in groups
        ],
    }
