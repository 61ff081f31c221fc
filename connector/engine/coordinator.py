"""The coordinator carries out the steps of ``protocol.two_phase``, on the coordinator log and on real sinks.

A run has one coordinator. It commits the sinks at the same time, each in a thread of its own.

Some platforms commit several tables in one transaction of their own (Databricks: ``BEGIN ATOMIC`` over catalog-managed
tables). A coordinator for them would replace this one. A run needs ``position``, ``run_epoch`` and ``settle`` from it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any, Protocol, TypeVar

from connector.delivery.ports import Destination
from connector.engine.in_parallel import Value, of_each
from connector.engine.left_letters import LeftLetters
from connector.protocol.decided import LogHeld, Row, State
from connector.protocol.steps import Event, Observer, Step
from connector.protocol.two_phase import (
    Action,
    Append,
    AskPositions,
    Begin,
    Commit,
    Join,
    Prepare,
    ReadLog,
    Recovered,
    Steps,
    TakeBack,
    recover,
    rewind,
    run_epoch,
)
from sinks.contract import Committed, Epoch, Participant, Position, Prepared
from sinks.errors import ConfigurationError, PreparedLost
from sinks.optional import Forgetful, Replaceable

log = logging.getLogger("lakelock.coordinator")

Returned = TypeVar("Returned")

_FORGETS_AFTER = timedelta(days=1)
"""Kafka forgets the offsets of a group after 7 days, unless it is told otherwise."""

SinksNow = Callable[[Collection[str]], Mapping[str, Participant]]
"""Gives the sinks of the pipeline file, by name. Of routed tables it gives those that are asked for, and those that
have prepared something."""

PrepareAll = Callable[[Epoch, Sequence[str], bool, int], tuple[Epoch, Mapping[str, Prepared]]]
"""Reads an epoch and prepares the named sinks; without names, all. The flag says that the epoch is read again, with the
event time that it had; the number is the offsets that Kafka holds after the epoch."""


JoinAll = Callable[[Epoch, Mapping[str, Position | None]], Mapping[str, Position | None]]
"""Brings sinks that were added to the pipeline file from their positions to the epoch that the others are at, unless
the run is to end: then no epoch follows."""


def _sum(counts: Iterable[int | None]) -> int | None:
    """The sum of the known counts; None if no sink counts."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


class EpochLog(Protocol):
    """The coordinator log, as the coordinator uses it. ``coordinator_log.Log`` is the one of production."""

    def read(self) -> LogHeld:
        """The last entries, read from the log itself at every call."""
        ...

    def done(self, epoch: int) -> Row | None:
        """The row that says that an epoch is in all sinks. None: there is none."""
        ...

    def since(self) -> datetime | None:
        """When the last entry was appended, as ``read`` has found it."""
        ...

    def append(self, number: int, rows: Sequence[Row]) -> None:
        """Append entry ``number`` with these rows. Raises Fenced if another run has appended it, CommitUnknown."""
        ...

    def compute_state(self) -> None:
        """Have ready what the next append asks of the log. Raises nothing, and changes nothing."""
        ...


class Coordinator(Destination):
    """The destination of a pipeline with several sinks: every epoch is in all of them, or in none."""

    def __init__(
        self,
        log: EpochLog,
        sinks: SinksNow,
        *,
        run: str,
        config: str,
        prepare: PrepareAll,
        observe: Observer,
        at_once: int | None = None,
        stages: bool = True,
        join: JoinAll = lambda *_: {},
        fold: Callable[[], object] = lambda: None,
        committed: Callable[[Epoch], object] = lambda _: None,
        take_back: Callable[[Epoch, int], None] = lambda *_: None,
        left: LeftLetters | None = None,
        event_time: str | None = None,
    ) -> None:
        """``run`` is the id of this run.

        ``config`` identifies the shape of the pipeline file; the log keeps it with each decision. ``at_once``: how
        many sinks to call at the same time; None: all. It must be 1 if they share one session whose settings belong to
        one statement at a time, as in Spark Connect. ``stages``: whether what the sinks prepare outlives this process.
        ``fold``: folds the change logs for which it is time. ``committed``: gets an epoch that all sinks hold, before
        the log says that it is done; after a crash in between, it gets it again. ``take_back``: takes the dead letters
        back, in a rewind by this epoch to the one with this number. ``left``: dead letters of epochs that failed.
        ``event_time``: the column with the records' times, if the pipeline file names one.
        """
        self._log = log
        self._sinks = sinks
        self._run = run
        self._config = config
        self._prepare = prepare
        self._join = join
        self._fold = fold
        self._committed = committed
        self._take_back = take_back
        self._left = left or LeftLetters(None, run)
        self._event_time = event_time
        self._observe = observe
        self._at_once = at_once
        self._stages = stages
        self._number = 0
        self._done: Row | None = None
        self._behind = 0
        self._announced = 0
        """The last epoch of which an event has said that it is committed."""

    def recover(self, *, join: bool = True) -> Recovered:
        """Settle an epoch that is in doubt, and bring all sinks to the same epoch. ``join``: also those that were added
        to the file since, which may have much to read.

        ``protocol.two_phase.recover`` decides what to do, and lists what a crash between any two of its steps leaves.

        Raises Fenced if another run has appended meanwhile; PositionMismatch if a sink is at another epoch than the log
        says; Diverged if a part had to be prepared again and came out different.
        """
        self.settle()
        recovered = self._carry_out(recover(self._run, self._config, join=join))
        self._number = recovered.number
        doubted = recovered.doubted
        if doubted is not None and doubted.state is State.DECIDED and doubted.epoch.owner == self._run:
            # This run decided the epoch in a round that failed, maybe after its commit was announced.
            rows = sum(prepared.rows for prepared in doubted.prepared.values())
            self._announce(doubted.epoch, Committed(doubted.epoch.position(), rows=rows))
        return recovered

    def accept(self) -> bool:
        """Go on with what somebody else has replaced in the sinks. Returns whether there is anything like that."""
        found = [sink.accept() for sink in self._sinks(()).values() if isinstance(sink, Replaceable)]
        return any(found)

    def position(self) -> Position | None:
        """Where all sinks stand. Settles an epoch that is in doubt first. Raises what ``recover`` raises."""
        recovered = self.recover()
        if recovered.stands is None:
            return None
        # A table that epochs pass by isn't refreshed by an epoch of no records, and needn't be: its number is enough.
        refresh = [
            position.refresh_after
            for position in recovered.positions.values()
            if self._stages and position is not None and position.refresh_after is not None
        ]
        stands = recovered.stands.position()
        # A sink that was added later may be the first one whose records have an event time, or this event time.
        clock = stands.clock
        for position in recovered.positions.values():
            clock = clock.joined(position.clock, self._event_time) if position is not None else clock
        return replace(stands, clock=clock, refresh_after=min(refresh, default=None))

    def tidied(self, position: Position | None) -> Position | None:
        """Mark the dead letters of records that are still to be read, see ``LeftLetters``. Changes no position."""
        self._left.mark(position)
        return position

    def run_epoch(self, epoch: Epoch, behind: int) -> Committed:
        """Commit the epoch to all sinks, or to none.

        The steps are begin, prepare, decide, commit, done. ``protocol.two_phase`` lists what a crash between any two of
        them leaves. ``behind``: the offsets that Kafka holds after this epoch, for the events. Raises whatever a sink
        raises while it prepares; then nothing of the epoch is left.
        """
        self._behind, done, self._done = behind, self._done, None
        ran = self._carry_out(run_epoch(epoch, self._number, self._config, done, stages=self._stages))
        self._number, self._done = ran.number, ran.done
        self._left.close(ran.done.epoch.position())
        commits = ran.committed.values()
        committed = Committed(
            ran.done.epoch.position(),
            rows=_sum(commit.rows for commit in commits) or 0,
            bytes=_sum(commit.bytes for commit in commits),
            unchanged=_sum(commit.unchanged for commit in commits),
        )
        self._announce(ran.done.epoch, committed)
        return committed

    def _announce(self, epoch: Epoch, committed: Committed) -> None:
        if epoch.number > self._announced:
            self._announced = epoch.number
            self._observe(Event(Step.COMMITTED, epoch, committed, self._behind))

    def fold(self, position: Position) -> None:
        """Fold the change logs of the tables for which a fold is due."""
        del position  # each table has one of its own
        self._fold()

    def rewind(self, epoch: Epoch, number: int, prepared: Mapping[str, Prepared], *, back_to: int) -> Committed:
        """Take all tables back to what ``prepared`` says, by an epoch of no records. ``number``: the log's last entry;
        ``back_to``: the epoch that they go back to.

        ``protocol.rewind`` lists what a crash leaves. Raises Fenced if another run has appended since, and what a
        sink raises.
        """
        ran = self._carry_out(rewind(epoch, number, self._config, self._run, prepared, back_to=back_to))
        self._number, self._done = ran.number, None
        committed = Committed(ran.done.epoch.position(), rows=0)
        self._announce(ran.done.epoch, committed)
        return committed

    def settle(self) -> None:
        """Append that the last epoch is done, unless the entry of a following epoch has said so."""
        done, self._done = self._done, None
        if done is not None:
            self._log.append(self._number + 1, (done,))
            self._number += 1

    def _carry_out(self, steps: Steps[Returned]) -> Returned:
        """Perform each action that the steps ask for. Errors go back into the steps, which may have to clean up."""
        try:
            action = next(steps)
            while True:
                try:
                    result = self._perform(action)
                except Exception as error:
                    action = steps.throw(error)
                else:
                    action = steps.send(result)
        except StopIteration as end:
            returned: Returned = end.value
            return returned

    def _perform(self, action: Action) -> Any:
        if isinstance(action, ReadLog):
            return self._read_log()
        if isinstance(action, Append):
            return self._append(action)
        if isinstance(action, AskPositions):
            return self._positions(action)
        if isinstance(action, Prepare):
            return self._prepared(action)
        if isinstance(action, Begin):
            return self._begin(action)
        if isinstance(action, Commit):
            return self._commit(action)
        if isinstance(action, Join):
            return self._join(action.epoch, action.positions)
        if isinstance(action, TakeBack):
            return self._take_back(action.epoch, action.to)
        return self._abort(action.before)

    def _positions(self, action: AskPositions) -> Mapping[str, Position | None]:
        sinks = self._sinks(action.known)
        found = dict(self._each(sinks, lambda sink: sink.position()))
        row = action.decided
        for name, sink in sinks.items():
            if row is None or found[name] is not None or name not in row.prepared or not isinstance(sink, Forgetful):
                continue
            before = row.epoch.expected
            if not action.done and before is None and not self._is_old():
                continue  # its first epoch, which it may well not have
            last = row.epoch.number if action.done else before.epoch if before is not None else 0
            said = self._log.done(last) if last else None
            log.warning("%s has forgotten its position, and is told that of epoch %s", name, row.epoch.number)
            reads = said.reads.get(name, {}) if said is not None else {}
            found[name] = sink.remind(row.epoch, reads, done=action.done)
        return found

    def _is_old(self) -> bool:
        """Whether the last entry of the log is old enough for a sink to have forgotten what came after."""
        since = self._log.since()
        return since is not None and datetime.now(timezone.utc) - since > _FORGETS_AFTER

    def _read_log(self) -> LogHeld:
        held = self._log.read()
        if held.in_doubt is not None and held.in_doubt.state is State.DECIDED:
            self._observe(Event(Step.IN_DOUBT, held.in_doubt.epoch))
        return held

    def _append(self, action: Append) -> None:
        self._log.append(action.number, action.rows)
        row = action.rows[-1]
        step = {State.BEGUN: Step.BEGUN, State.DECIDED: Step.DECIDED}.get(row.state)
        if step is not None:
            self._observe(Event(step, row.epoch, behind=self._behind))

    def _prepared(self, action: Prepare) -> tuple[Epoch, Mapping[str, Prepared]]:
        prepared = self._prepare(action.epoch, list(action.again), bool(action.again), self._behind)
        self._observe(Event(Step.PREPARED, prepared[0], behind=self._behind))
        return prepared

    def _begin(self, action: Begin) -> tuple[Epoch, Mapping[str, Prepared]] | Exception:
        """Append ``begun`` while the sinks prepare: an append takes most of a second, in which Spark has little to do.

        It is safe because prepared rows count for nothing until they are decided. An error of the sinks is returned, so
        that the steps see it after the append has ended.
        """
        outcome: tuple[Epoch, Mapping[str, Prepared]] | Exception
        with ThreadPoolExecutor(1, thread_name_prefix="lakelock-log") as pool:
            appended = pool.submit(self._append, action.append)
            pool.submit(self._log.compute_state)  # once ``begun`` is there: the decision waits for nothing else
            try:
                outcome = self._prepared(action.prepare)
            except Exception as error:
                outcome = error
        appended.result()
        return outcome

    def _abort(self, before: int) -> None:
        """Throw away what was prepared before an attempt.

        If a sink fails, it is only logged: the next run tries again.
        """

        def abort(sink: Participant) -> None:
            try:
                sink.abort(before)
            except Exception as error:
                log.warning("%s could not throw away what was prepared before %s: %s", sink.name, before, error)

        self._each(self._sinks(()), abort)

    def _commit(self, action: Commit) -> Mapping[str, Committed | None]:
        sinks = self._sinks(action.prepared.keys())
        unknown = action.prepared.keys() - sinks.keys()
        if unknown:
            raise ConfigurationError(
                f"Epoch {action.epoch.number} is in doubt. It was decided for {', '.join(sorted(unknown))} too, which "
                "the pipeline file doesn't name.",
                hint="Put the sink back into the file, run `lakelock recover FILE`, and then take it out again.",
            )

        def commit(sink: Participant) -> Committed | None:
            try:
                committed = sink.commit(action.epoch, action.prepared[sink.name])
            except PreparedLost:
                return None
            if not action.prepared[sink.name].passes_by:
                self._observe(Event(Step.SINK_COMMITTED, action.epoch, committed, self._behind, sink=sink.name))
            return committed

        outcomes = self._each({name: sinks[name] for name in action.prepared}, commit)
        if None not in outcomes.values():
            self._committed(action.epoch)
        return outcomes

    def _each(self, sinks: Mapping[str, Participant], call: Callable[[Participant], Value]) -> Mapping[str, Value]:
        return of_each({name: partial(call, sink) for name, sink in sinks.items()}, at_once=self._at_once)
