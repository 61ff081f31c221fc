"""What the commands print of a pipeline's state, a recovery, a rewind, dead letters and upkeep: as text or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from connector.cli.console import out
from connector.config import PipelineConfig
from connector.operations.dead_letters import LetterGroup, Retried
from connector.operations.maintain import Cleared
from connector.operations.rewind import Rewind
from connector.operations.status import Status
from connector.protocol.two_phase import Recovered
from connector.telemetry.progress import span
from sinks.contract import Position
from sinks.delta.maintenance import Upkeep
from sinks.plurals import plural
from sinks.recreated import is_retired, topic_of


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


def print_rewind(plan: Rewind) -> None:
    """Print where the table stands, and where a rewind would take it."""
    stands, target = plan.position, plan.target
    out.print(
        f"now       version {stands.version}, epoch {stands.epoch}, next {stands.offsets.to_json()}", soft_wrap=True
    )
    if plan.clock is not None:
        out.print(f"time      {escape(plan.clock)}", soft_wrap=True)
    what = f"epoch {target.epoch}" if target.epoch else "no epoch yet"
    out.print(f"back to   version {target.version}, {what}, next {plan.next_offsets.to_json()}", soft_wrap=True)
    out.print(f"again     {plural(plan.again, 'offset is', 'offsets are')} read once more by the next run")


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
            topic: {str(at.partition): round(lag, 3) for at, lag in state.lag_seconds.items() if at.topic == topic}
            for topic in sorted(state.held.ends.topics)
        },
        "max_lag_seconds": round(max(state.lag_seconds.values(), default=0.0), 3),
        "watermark": position.clock.watermark.isoformat() if position and position.clock.watermark else None,
        "late": position.clock.late if position else 0,
        "read_to": position.read_to.isoformat() if position and position.read_to else None,
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


def print_status(state: Status) -> None:
    """Print where a pipeline stands, what would stop a run, and the lag of each partition."""
    lines = [f"pipeline     {state.pipeline}", f"delivery     {state.delivery}"]
    lines += [f"{'table' if len(state.sinks) == 1 else 'sink':12} {escape(sink)}" for sink in state.sinks]
    if state.in_doubt:
        doubted = state.in_doubt
        lines.append(
            f"[yellow]in doubt[/]     epoch {doubted.epoch.number} was {doubted.state.value} by run "
            f"{doubted.epoch.owner}. That run is at work, or was killed; the next run settles the epoch"
        )
    if state.position is None:
        lines.append("epoch        none yet: the first run starts at source.start")
    else:
        lines += [*_position_lines(state.position, state.unfolded), *_gap_lines(state, state.position)]
    for line in lines:
        out.print(line, soft_wrap=True)
    out.print(_lag_table(state))


def _position_lines(position: Position, unfolded: int | None) -> list[str]:
    """The last epoch, its commit, and how far the table is complete, as markup of Rich."""
    lines = [f"epoch        {position.epoch}" + _found_by(position.source)]
    if position.committed_at:
        when = f"{position.committed_at:%Y-%m-%d %H:%M:%S} UTC"
        version = f"version {position.version}, " if position.version is not None else ""
        lines.append(f"last commit  {version}{when}, by run {position.owner}")
    if unfolded is not None:
        lines.append(f"unfolded     {plural(unfolded, 'epoch')}: `connector.read` has what the table lacks")
    if position.read_to:
        lines.append(f"complete to  {position.read_to:%Y-%m-%d %H:%M:%S} UTC")
    if position.clock.watermark:
        lines.append(
            f"watermark    {position.clock.watermark:%Y-%m-%d %H:%M:%S} UTC, late so far: {position.clock.late:,}"
        )
    return lines


def _gap_lines(state: Status, position: Position) -> list[str]:
    """What Kafka doesn't hold as the table expects, as markup of Rich: recreated topics, gone, cut and lost records."""
    recreated = [
        f"[yellow]recreated[/]    {topic}: Kafka has a new topic of this name. A run stops there; see "
        "source.on_recreated_topic"
        for topic in sorted(state.recreated)
    ]
    gone = [
        f"[yellow]gone[/]         {gap}: never read, and Kafka no longer holds it. A run stops there; see "
        "source.on_data_loss"
        for gap in state.gone
    ]
    cut = [
        f"[yellow]cut[/]          {gap}: was read, and Kafka ends before it. A run stops there: were records of the "
        "topic lost?"
        for gap in state.cut
    ]
    retired = [
        f"recreated    {topic_of(topic)}: the topic before it is {escape(topic)}, read up to "
        + escape(json.dumps(position.offsets.to_dict()[topic]))
        for topic in filter(is_retired, sorted(position.offsets.topics))
    ]
    lost = [f"[yellow]lost[/]         {gap}, up to {plural(gap.span, 'record')} never read" for gap in position.lost]
    return [*recreated, *gone, *cut, *retired, *lost]


def _lag_table(state: Status) -> Table:
    """A row per partition: next offset, end, and how far the table is behind."""
    table = Table(box=None, pad_edge=False)
    for heading in ("topic", "partition", "next", "end", "lag", "seconds"):
        table.add_column(heading, justify="left" if heading == "topic" else "right")
    for at, lag in state.lag.items():
        next_, end, seconds = state.offsets.get(at, "-"), state.held.ends[at], state.lag_seconds[at]
        table.add_row(at.topic, str(at.partition), str(next_), str(end), f"{lag:,}", f"{seconds:,.0f}")
    return table


def _found_by(source: str) -> str:
    """Where the position was found, in parentheses; empty for the usual place, the table's last commit."""
    return {
        "restored": " (the table was restored: the next run goes on from the restored version)",
        "cloned": " (the table is a clone: the next run goes on from the source's position)",
        "rows": " (no commit in the log has a position: it was found from the rows' coordinates)",
    }.get(source, "")


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


def print_letters(pipeline: str, groups: Sequence[LetterGroup]) -> None:
    """Print the dead letters, a line per group of the same fault."""
    if not groups:
        out.print(f"{pipeline}: no dead letters.")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("count", "reason", "what is wrong", "sink", "epochs", "for example", "last"):
        table.add_column(heading, justify="right" if heading == "count" else "left", overflow="fold")
    for group in groups:
        epochs = f"{group.first_epoch}" + (f"-{group.last_epoch}" if group.last_epoch != group.first_epoch else "")
        example = f"{group.topic}-{group.partition}, offset {group.offset}"
        when = f"{group.last_noted_at:%Y-%m-%d %H:%M:%S}"
        cells = (f"{group.count:,}", group.reason, group.detail, group.sink or "all", epochs, example, when)
        table.add_row(*map(escape, cells))
    out.print(table)


def print_upkeep(config: PipelineConfig, done: Sequence[Upkeep | Cleared], *, dry_run: bool) -> None:
    """Print what ``lakelock maintain`` did, or would do on a ``dry_run``, to each table and elsewhere."""
    tables = [upkeep for upkeep in done if isinstance(upkeep, Upkeep)]
    if not tables:
        out.print(f"{config.name}: there are no Delta tables yet.")
    else:
        _print_tables(config, tables, dry_run=dry_run)
    would = "would be " if dry_run else ""
    for cleared in done:
        if not isinstance(cleared, Cleared):
            continue
        if cleared.what == "entries":
            age = span(config.maintain.keep_entries.total_seconds())
            text = f"{plural(cleared.count or 0, 'entry', 'entries')} older than {age} {would}removed"
        elif cleared.count is None:
            text = "is asked to throw away what killed runs left" if dry_run else "threw away what killed runs left"
        else:
            text = f"{cleared.count:,} left by killed runs, staged or begun, {would}removed"
        if cleared.count != 0:
            out.print(f"{escape(cleared.place)}: {text}", soft_wrap=True)


def _print_tables(config: PipelineConfig, done: Sequence[Upkeep], *, dry_run: bool) -> None:
    """Print a line per Delta table: its size, and what became of small and of unused files."""
    table = Table(box=None, pad_edge=False)
    for heading in ("table", "files", "size", "small files", "unused files"):
        table.add_column(heading, justify="right" if heading in ("files", "size") else "left", overflow="fold")
    would = "would be " if dry_run else ""
    for upkeep in done:
        if not config.maintain.optimize:
            small = "left: maintain.optimize is false"
        elif not upkeep.small:
            small = "none"
        elif upkeep.into == 0:
            small = f"{upkeep.small:,} left: a run rewrites them all the time"
        else:
            small = f"{upkeep.small:,} {would}put together" + (f" into {upkeep.into:,}" if upkeep.into else "")
        if not config.maintain.vacuum:
            unused = "left: maintain.vacuum is false"
        elif upkeep.unused is None:
            unused = (
                "left: the table keeps unused files for less than an hour, and a run may need longer to write files"
            )
        else:
            unused = f"{upkeep.unused:,} {would}removed" if upkeep.unused else "none"
        table.add_row(escape(upkeep.table), f"{upkeep.files:,}", decimal(upkeep.bytes), small, unused)
    out.print(table)


def print_retried(config: PipelineConfig, retried: Retried) -> None:
    """Print how many dead letters a retry brought into the table, and how many are still bad."""
    if retried.epoch is None:
        out.print(f"{config.name}: no dead letters to send again.")
    else:
        out.print(
            f"{config.name}: {plural(retried.through, 'dead letter')} went through in epoch {retried.epoch}, "
            f"{plural(retried.still_bad, 'is', 'are')} still bad.",
            soft_wrap=True,
        )
    if retried.too_old:
        out.print(
            f"{plural(retried.too_old, 'was', 'were')} left alone, as older than "
            f"{config.sinks[0].option('tombstone_retention')}, or than the last run that had no dead_letters and kept "
            "no deletes. So nobody can tell any more whether their rows have been deleted since.",
            soft_wrap=True,
        )
