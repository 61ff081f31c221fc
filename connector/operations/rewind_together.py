"""Rewinds the tables of a pipeline with a coordinator log: those of several sinks, or of a route. All, or none."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from connector.config import DeltaSink
from connector.delivery.retries import passes
from connector.engine.assembly import Assembly
from connector.engine.coordinator import Coordinator
from connector.engine.coordinator_log import Log
from connector.engine.outputs import Table
from connector.engine.settled import without_query
from connector.operations.rewind import Rewind, WhereTo, first_records, of_unsaid_column, planned_from
from connector.protocol.decided import LogHeld, Row, State
from connector.protocol.rewind import Goal, goal, versions
from connector.protocol.steps import Observer
from sinks.contract import Prepared
from sinks.delta.commit import PipelineCommits
from sinks.delta.merge_on_read import MergeOnRead
from sinks.delta.restore import Target, of_epoch
from sinks.errors import ConfigurationError, Fenced, LakelockError
from sinks.offsets import Offsets
from sinks.s3.hadoop import require_conditional_writes

logger = logging.getLogger("lakelock.rewind")

_FIRST_LOOK = 100
_ALL = 1 << 40


def rewound_together(
    assembly: Assembly, to: WhereTo, *, confirm: Callable[[Rewind], bool], observe: Observer, agreed: bool = False
) -> Rewind:
    """See ``Pipeline.rewind``. ``agreed``: whether ``confirm`` says yes to any plan.

    Once it may, it settles an epoch that is in doubt first, as every run does. Raises LakelockError.

    What has to be right of each table is looked at before anything is decided. ``protocol.rewind`` says what a crash
    leaves. The plan alone changes nothing: a run may be at work, whose epoch looks like one in doubt.
    """
    config, log = assembly.config, assembly.log
    assert log is not None
    coordinator = without_query(assembly).coordinator(observe)
    known, settled = _settled(coordinator, log) if agreed else (log.read(), None)
    try:
        planned = _planned(assembly, log, known, to)
    except ConfigurationError as error:
        raise error if agreed else _or_settled_first(error, known) from None
    if not confirm(planned.plan):
        return planned.plan
    if not agreed:
        before = planned
        known, settled = _settled(coordinator, log)
        if known.number != before.known.number:
            planned = _planned(assembly, log, known, to)
        if not _as_wanted(planned, settled) and planned.goes_to != before.goes_to and not confirm(planned.plan):
            return planned.plan
    if _as_wanted(planned, settled):
        return replace(planned.plan, done=True)  # an earlier call had decided this very rewind
    for location in {*assembly.locations, *(table.location for table in planned.tables.values())}:
        require_conditional_writes(assembly.spark, location)
    stands = planned.plan.position
    epoch = planned.aim.epoch_after(stands, pipeline=config.name, owner=assembly.run)
    prepared = {
        name: Prepared.going_back(version, planned.aim.epoch, of_route=assembly.routes is not None)
        for name, version in planned.back.items()
    }
    coordinator.tidied(stands)  # dead letters that a run has marked, and was killed
    coordinator.rewind(epoch, known.number, prepared, back_to=planned.aim.epoch)
    return replace(planned.plan, done=True)


def _or_settled_first(error: ConfigurationError, known: LogHeld) -> ConfigurationError:
    """The error. Where an epoch is in doubt, as the first one of several tables, there may be a plan once it isn't."""
    doubted = known.in_doubt
    if doubted is None or doubted.state is not State.DECIDED:
        return error
    number = doubted.epoch.number
    settled = f"Epoch {number} is in doubt: if no run is at work, `lakelock recover FILE` settles it first."
    return type(error)(error.message, hint=f"{settled} {error.hint}".strip())


@dataclass(frozen=True)
class _Planned:
    """A plan, made of what the log held then."""

    plan: Rewind
    known: LogHeld
    aim: Goal
    tables: Mapping[str, Table]
    back: Mapping[str, int]
    """The version that each table goes back to."""

    @property
    def goes_to(self) -> tuple[int, Mapping[str, int]]:
        """The epoch and the versions."""
        return self.aim.epoch, self.back


def _as_wanted(planned: _Planned, settled: Row | None) -> bool:
    """Whether the epoch that was settled is a rewind to the same goal."""
    back_to = settled.back_to if settled is not None else None
    return settled is not None and back_to is not None and planned.aim.epoch in (back_to, settled.epoch.number)


def _planned(assembly: Assembly, log: Log, known: LogHeld, to: WhereTo) -> _Planned:
    """Plan it from the log as it is, and change nothing. Raises ConfigurationError and OffsetsLost."""
    config = assembly.config
    if known.decided is None:
        raise ConfigurationError("The coordinator log knows no epoch of this pipeline: there is nothing to rewind.")
    stands, held = known.decided.epoch.position(), assembly.source.look()
    clock = None if to.event_time is None else config.clock_in_words
    offsets = None
    if to.event_time is not None and config.clock is None:
        offsets = first_records(assembly.source, to.event_time, held, stands)
    doubted = known.in_doubt.epoch.number if known.in_doubt is not None and not known.all_hold_it else None
    aim, rows = _goal(log, _wanted(to, config.clock, offsets), known.decided.epoch.number, to.epoch)
    tables = dict(_tables(assembly, known.decided))
    _refuse_change_logs(tables)
    back = _versions(aim, rows, known.decided, tables, of_route=assembly.routes is not None)
    plan = planned_from(
        stands, Target(None, aim.stood), held, assembly.source, clock=clock, allow_data_loss=to.allow_data_loss
    )
    others = [f"in {name}: {what}" for name in back for what in tables[name].commits.undone(back[name]).lines]
    plan = replace(of_unsaid_column(plan, config), tables=back, others=others, in_doubt=doubted)
    return _Planned(plan, known, aim, tables, back)


def _settled(coordinator: Coordinator, log: Log) -> tuple[LogHeld, Row | None]:
    """What the log holds, and the epoch that was in doubt, had been decided, and is settled now.

    An epoch that can't be completed any more is given up by the rewind, whatever its sinks refuse it for: its tables go
    back to before it. Tables that aren't where the log says are no reason to stop either: the rewind brings them to one
    epoch. Raises Fenced, and what another try may pass.
    """
    known = log.read()
    doubted = known.in_doubt
    if doubted is None or doubted.state is not State.DECIDED:
        return known, None
    try:
        coordinator.recover(join=False)
    except Exception as error:  # Spark has errors of its own, as for a table that it reads and somebody has dropped
        if passes(error) or isinstance(error, Fenced):
            raise
        why = error.message if isinstance(error, LakelockError) else str(error)
        logger.warning("epoch %s can't be completed, and would be given up: %s", doubted.epoch.number, why)
        return log.read(), None
    return log.read(), doubted


def _wanted(to: WhereTo, column: str | None, offsets: Offsets | None) -> Callable[[Row], bool]:
    """Whether an epoch is one to go back to."""

    def wanted(row: Row) -> bool:
        if to.event_time is None:
            return row.epoch.number == to.epoch
        position = row.epoch.position()
        if column is not None:
            return position.clock.all_before(to.event_time, column, position.partitions_read)
        assert offsets is not None
        return all(offsets.get(at, next_) >= next_ for at, next_ in position.offsets.items())

    return wanted


def _goal(log: Log, wanted: Callable[[Row], bool], last: int, to_epoch: int | None) -> tuple[Goal, Sequence[Row]]:
    """The goal, and the rows of its epoch and of all later ones. Reads the log as far back as is needed."""
    look = _FIRST_LOOK if to_epoch is None else last - to_epoch + 2 if to_epoch else _ALL  # an epoch may have begun
    rows: list[Row] = []
    while True:
        before, rows = len(rows), [entry.row for entry in log.entries(look)]
        if not to_epoch:
            found = goal(rows, wanted)
        else:  # also one that an earlier rewind took back
            done = next((row for row in reversed(rows) if row.state is State.DONE and wanted(row)), None)
            found = Goal(to_epoch, done.epoch.position(), done.epoch.position()) if done is not None else None
        if found is not None and found.epoch == 0 and look != _ALL:
            look, found = _ALL, None  # which tables there were first says the whole log
            continue
        if found is not None:
            break
        if to_epoch is not None or look == _ALL or len(rows) == before:
            raise _no_epoch(to_epoch)
        look = min(look * 8, _ALL)
    if found.epoch == 0 and not any(row.epoch.expected is None for row in rows if row.state is State.DECIDED):
        raise _no_epoch(to_epoch)
    return found, rows


def _no_epoch(to_epoch: int | None) -> ConfigurationError:
    wanted = f"is no epoch {to_epoch}" if to_epoch is not None else "is no epoch before that time"
    return ConfigurationError(
        f"There {wanted} in the coordinator log of this pipeline that all tables have.",
        hint="`lakelock history FILE` names the epochs. The newest one may be in doubt, until the next epoch, or "
        "`lakelock recover FILE`, settles it. The log forgets old ones (`lakelock maintain`). While Kafka "
        "still holds the records, `lakelock replay` reads them into new tables.",
    )


def _tables(assembly: Assembly, decided: Row) -> Iterator[tuple[str, Table]]:
    """The tables that the rewind is about. Raises ConfigurationError for a sink that isn't one."""
    if assembly.routes is not None:
        yield from assembly.routes.tables(decided.prepared).items()
        return
    others = [sink.option("type") for sink in assembly.config.sinks if not isinstance(sink, DeltaSink)]
    several = assembly.config.sinks[0].in_several
    if others and several is not None:
        raise ConfigurationError(
            f"`rewind` is for Delta tables, and {several.option}.type is another kind of sink: what is in a topic or a "
            "bucket can't be taken back. Nothing was changed.",
            hint=f"{several.tables_alone} To write the others anew, give them new places, and run the file.",
        )
    if others:
        raise ConfigurationError(
            f"`rewind` is for Delta tables, and {', '.join(others)} is another kind of sink: what is in a topic or a "
            "bucket can't be taken back, and all sinks of a pipeline go back together, or none. Nothing was changed.",
            hint="Write a pipeline file of another name, with new places, and run it.",
        )
    for output in assembly.outputs:
        assert isinstance(output, Table)
        yield output.label, output


def _refuse_change_logs(tables: Mapping[str, Table]) -> None:
    """Raises ConfigurationError: a RESTORE of a table says nothing of its change log."""
    on_read = [name for name, table in tables.items() if isinstance(table.derivation.sink, MergeOnRead)]
    if on_read:
        raise ConfigurationError(
            f"{', '.join(on_read)}: merge: on_read: an epoch in a change log is no version of the table, so these "
            "tables can't go back together. Nothing was changed.",
            hint="`lakelock replay` reads the records into new tables.",
        )


def _versions(
    aim: Goal, rows: Sequence[Row], decided: Row, tables: Mapping[str, Table], *, of_route: bool
) -> Mapping[str, int]:
    """The version that each table goes back to. Raises ConfigurationError that names each table that can't."""
    known, unknown = versions(aim, rows, list(tables), of_route=of_route)
    found = dict(known)
    then = next((row for row in reversed(rows) if row.state is State.DECIDED and row.epoch.number == aim.epoch), None)
    wrong = []
    for name in unknown:
        if of_route and any(row.reads.get(name) for row in rows):
            wrong.append(f"{name}: the log has no version from before its first rows (was it merged on read?)")
            continue
        position = tables[name].commits.position() if of_route else None
        if not of_route or (position is not None and not position.holds(decided.epoch)):
            wrong.append(f"{name}: it was no sink of the pipeline yet")
        elif position is not None:  # its first epoch is one that can't be completed
            before = version_before(tables[name].commits, decided.epoch.number)
            if before is None:
                wrong.append(f"{name}: its history doesn't show what was before its first epoch")
            else:
                found[name] = before
    for name, version in found.items():
        left_at = then.left_at(name) if then is not None and name in then.prepared else None
        epoch = aim.epoch if left_at is None else left_at
        had = then is not None and (name in then.prepared or not of_route)
        why = tables[name].back.wrong(version, epoch if had and epoch else None, goal=aim.epoch)
        if why is not None:
            wrong.append(f"{name}: {why}")
    if wrong:
        where = f"epoch {aim.epoch}" if aim.epoch else "before their first epoch"
        raise ConfigurationError(
            f"The tables can't go back to {where} together: {'; '.join(wrong)}. Nothing was changed.",
            hint="Go back less far: `lakelock history FILE` names the epochs. While Kafka still holds the records, "
            "`lakelock replay` reads them into new tables.",
        )
    return found


def version_before(commits: PipelineCommits, epoch: int) -> int | None:
    """The version before a table's commit of an epoch, whatever was committed since. None: its history has none."""
    own = of_epoch(commits.lineage(), epoch, commits.is_own)
    return own.version - 1 if own is not None and own.version else None
