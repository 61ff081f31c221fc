"""Two-phase commit over several sinks: every epoch is in all of them or in none. Pure: what to do, and when; not how.

::

    begin -> prepare on every sink -> decide -> commit on every sink -> done

Three of these are entries of a log: ``begun`` (which offsets, as which attempt), ``decided`` (what every sink has
prepared), ``done`` (what each has committed). Entries are numbered, and appending number n succeeds for one run only:
that is the fence. A run that was replaced finds the next number taken, and stops (``Fenced``). ``done`` and the next
``begun`` share an entry, which is appended while the sinks prepare: what is prepared counts for nothing until it is
decided, and that takes both. Nothing is decided by a clock, and no run asks whether another one is alive.

What a crash leaves, and why recovery is right, between every two steps:

====================  ==================================================================================================
crash after           what is left, and what the next run does
====================  ==================================================================================================
nothing, ``done``     Every sink is at the last decided epoch. There is nothing to do. What may be prepared already
                      is bound to an attempt that the log doesn't know: whoever takes its number throws it away.
``begun``             Work without a decision: *presumed abort*. The next run appends ``aborted``, which fences the
                      run that began, wherever it is, and only then has the sinks throw away what has a lower attempt.
                      No sink can hold anything of the epoch, because nobody commits without a decision.
some prepared         The same. What is prepared is durable but invisible, and bound to its attempt: the next one
                      prepares anew, beside it.
all prepared          The same. That all are prepared is known to nobody but the run that is gone.
``decided``           The epoch counts. The next run commits on every sink what is prepared there, as the log says,
                      without reading Kafka, whose retention may have passed the ranges.
some committed        The same. ``commit`` is a no-op that says so where the epoch is there already, so it can be called
                      again by anybody, also by two runs at the same time.
all committed         The same, and every commit is a no-op. ``done`` is appended.
====================  ==================================================================================================

A run that was paused anywhere, and replaced, can do no harm when it wakes up. *Before its decision* its next append
fails. *After it* all it can do is commit what was decided, which is either still to be done or a no-op: no other run
begins the next epoch before this one is in all sinks. *In an abort* it throws away only attempts up to the last entry
that it knows, and every attempt that anybody may still decide on or commit was begun by a later one.

A crash in a recovery leaves one of the states above, with at most an ``aborted`` or a second ``decided`` more.

Should what was prepared be gone, or a file of it (somebody removed it), the epoch is read from Kafka again, over the
ranges that are in the log. It has to give the very same rows, by count and checksum: what was committed elsewhere
already was made from those (``Diverged``). The new receipts are decided once more, so that of two runs only one goes on
with them.

**Routed tables** go the same way, and stage nothing (``sinks.delta.unstaged``): what a table has prepared is gone with
its process. So there is no ``begun``, and a decided epoch is always read again after a crash, with the same pipeline
file. A table that gets no rows of an epoch is passed by: it makes no commit. So the log says for each table which epoch
it is at (``Prepared.after``).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

from connector.protocol.decided import (
    LogHeld,
    Row,
    State,
    disagree,
    gone_from_kafka,
    is_at,
    is_before,
    joins,
    refuse_other_file,
    refuse_other_rows,
)
from sinks.contract import Committed, Epoch, Position, Prepared
from sinks.errors import Fenced, OffsetsLost, PositionMismatch

log = logging.getLogger("lakelock.two_phase")

Returned = TypeVar("Returned")
_LOOKS = 5


# What the protocol asks for: the value of each ``yield`` is what the class says.


@dataclass(frozen=True)
class ReadLog:
    """LogHeld."""


@dataclass(frozen=True)
class Append:
    """None. Raises Fenced where the number is taken, CommitUnknown."""

    number: int
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class AskPositions:
    """Mapping[str, Position | None], from every sink of the pipeline file; of routed tables, from those that the log
    knows."""

    known: Collection[str] = ()
    """The sinks that the log names."""
    decided: Row | None = field(default=None, compare=False)
    """The last decision. A sink that has forgotten its position may be told."""
    done: bool = field(default=False, compare=False)
    """Whether all sinks are known to hold it."""


@dataclass(frozen=True)
class Prepare:
    """The epoch, with the event time of its records, and Mapping[str, Prepared] of all sinks. With ``again``, of these
    sinks only, and of the epoch as it was decided."""

    epoch: Epoch
    again: Collection[str] = ()


@dataclass(frozen=True)
class Begin:
    """Both at the same time: what Prepare says, or the exception where preparing fails. Raises what Append raises."""

    append: Append
    prepare: Prepare


@dataclass(frozen=True)
class Commit:
    """Mapping[str, Committed | None]; None: what this sink had prepared is gone, and it doesn't hold the epoch."""

    epoch: Epoch
    prepared: Mapping[str, Prepared]


@dataclass(frozen=True)
class Abort:
    """None."""

    before: int


@dataclass(frozen=True)
class Join:
    """Mapping[str, Position | None] of these sinks, after they have caught up with the others, which are at the epoch.
    Where the run is to end they may be behind: then it runs no epoch."""

    epoch: Epoch
    positions: Mapping[str, Position | None]


@dataclass(frozen=True)
class TakeBack:
    """None. What epochs after ``to`` did beside the tables is undone. Asked for again after a crash."""

    epoch: Epoch
    to: int


Action = ReadLog | Append | AskPositions | Prepare | Begin | Commit | Abort | Join | TakeBack
Steps = Generator[Action, Any, Returned]


class Found(str, Enum):
    """How much of the epoch in doubt the sinks hold."""

    NOTHING_IN_DOUBT = "nothing in doubt"
    NOTHING = "nothing of it"
    PART = "part of it"
    SAME = "the same range"


class Did(str, Enum):
    """What a recovery did with the epoch in doubt."""

    NOTHING = "nothing"
    ABORTED = "thrown away: it was never decided"
    ROLLED_FORWARD = "committed, from what was prepared"
    READ_AGAIN = "committed; what was prepared was gone, and was read again"


@dataclass(frozen=True)
class Recovered:
    """Every sink is at ``stands``, and the log's last entry is ``number``."""

    number: int
    stands: Epoch | None
    """The last decided epoch; None: there was none."""
    positions: Mapping[str, Position | None]
    found: Found = Found.NOTHING_IN_DOUBT
    did: Did = Did.NOTHING
    doubted: Row | None = None
    """The epoch that was in doubt."""
    held: Mapping[str, bool] = field(default_factory=dict)
    """Sink -> whether it held the epoch in doubt before the recovery."""


@dataclass(frozen=True)
class Ran:
    """An epoch that is in all sinks. ``done`` is still to be appended, with the next ``begun`` or alone."""

    number: int
    committed: Mapping[str, Committed]
    done: Row


def recover(run: str, config: str, *, join: bool = True) -> Steps[Recovered]:
    """Bring all sinks to the last decided epoch. ``join``: also those that were added to the file since.

    This is the rule "two-phase decision": an epoch counts if and only if the log has its entry ``decided``. A decided
    epoch is committed on every sink that lacks it, an undecided one is aborted on all. The table at the top of this
    module says what a crash leaves after each step, also within a recovery. Test:
    ``test_every_state_of_two_coordinators`` in tests/unit/connector/protocol/test_two_phase.py.

    Raises Fenced, PositionMismatch, Diverged, and what a sink raises.
    """
    for _ in range(_LOOKS):
        known: LogHeld = yield ReadLog()
        doubted, decided = known.in_doubt, known.decided
        ask = AskPositions(tuple(decided.prepared) if decided else (), decided, known.all_hold_it)
        positions: Mapping[str, Position | None]
        if doubted is None:
            yield Abort(before=known.over)  # what replaced runs may have left behind later
            positions = yield ask
            stands = decided.epoch if decided else None
            if all(is_at(position, decided, name) for name, position in _of_log(positions, decided).items()):
                positions = yield from _joined(positions, decided, join)
                return Recovered(known.number, stands, positions)
        elif doubted.state is State.BEGUN:
            number = known.number + 1
            yield Append(number, (Row(State.ABORTED, doubted.epoch, run),))
            yield Abort(before=number + 1)
            positions = yield ask
            stands = decided.epoch if decided else None
            if all(is_at(position, decided, name) for name, position in _of_log(positions, decided).items()):
                held = dict.fromkeys(positions, False)
                positions = yield from _joined(positions, decided, join)
                return Recovered(number, stands, positions, Found.NOTHING, Did.ABORTED, doubted, held)
        else:
            positions = yield ask
            stands = doubted.epoch
            held = {name: is_at(position, doubted, name) for name, position in _of_log(positions, doubted).items()}
            if all(is_before(positions[name], doubted, name) for name in held if not held[name]):
                number, committed, did = yield from _forward(known.number, doubted, run, config)
                yield Append(number + 1, (_done(stands, run, committed),))
                yield Abort(before=number + 2)
                now = {**positions, **{name: each.position for name, each in committed.items()}}
                return Recovered(
                    number + 1,
                    stands,
                    (yield from _joined(now, doubted, join)),
                    _how_much(held),
                    did,
                    doubted,
                    held,
                )
        # The sinks don't agree with the log: another run has gone on in between, or they really don't.
        again: LogHeld = yield ReadLog()
        if again.number == known.number + (doubted is not None and doubted.state is State.BEGUN):
            raise disagree(doubted if doubted is not None and doubted.state is State.DECIDED else decided, positions)
    raise Fenced(
        "Other runs of the pipeline are at work: whenever this one looks, the log has moved.",
        owner=again.last.run if again.last else "",
        epoch=again.last.epoch.number if again.last else 0,
        hint="Let one run at a time recover the pipeline.",
    )


def _of_log(positions: Mapping[str, Position | None], decided: Row | None) -> Mapping[str, Position | None]:
    """Without the sinks that were added to the file since, and have yet to catch up, and without tables of a route that
    an epoch would have made that this run could not decide on."""
    return {
        name: position
        for name, position in positions.items()
        if not joins(position, decided, name) and not _unmade(position, decided, name)
    }


def _unmade(position: Position | None, decided: Row | None, table: str) -> bool:
    return decided is not None and decided.of_route and position is None and table not in decided.prepared


def _joined(
    positions: Mapping[str, Position | None], decided: Row | None, join: bool
) -> Steps[Mapping[str, Position | None]]:
    """The positions after sinks that were added have caught up with the others.

    A sink that joins writes epochs of its own, each with its rows and offsets in one commit, the last of which has the
    number of the last decided epoch. So a crash leaves it behind, and the next run goes on there; nobody decides an
    epoch with it before it is there.
    """
    new = {name: position for name, position in positions.items() if joins(position, decided, name)}
    if not new or decided is None or not join:
        return positions
    came: Mapping[str, Position | None] = yield Join(decided.epoch, new)
    return {**positions, **came}


def run_epoch(epoch: Epoch, number: int, config: str, done: Row | None, *, stages: bool = True) -> Steps[Ran]:
    """The epoch, planned from where all sinks stand. ``number`` is the log's last entry as this run knows it, ``done``
    is still to be said of the epoch before. ``stages``: whether what is prepared outlives this process.

    Where preparing fails nothing of the epoch is left, but for what a failing abort leaves to the next run.
    """
    epoch = replace(epoch, attempt=number + 1)
    if not stages:  # nothing is to be thrown away by another run, so there is nothing to begin
        held: tuple[Epoch, Mapping[str, Prepared]]
        try:
            held = yield Prepare(epoch)
        except Exception:
            if done:  # else the epoch before stays in doubt
                yield from _said(Append(number + 1, (done,)), epoch)
            raise
        return (yield from _decide(number, config, held, done))
    begun = Row(State.BEGUN, epoch, epoch.owner)
    outcome: tuple[Epoch, Mapping[str, Prepared]] | Exception
    outcome = yield Begin(Append(number + 1, (done, begun) if done else (begun,)), Prepare(epoch))
    if isinstance(outcome, Exception):
        aborted = Append(number + 2, (Row(State.ABORTED, epoch, epoch.owner),))
        yield from _said(aborted, epoch, Abort(before=number + 3))
        raise outcome
    return (yield from _decide(number + 1, config, outcome))


def _said(entry: Append, epoch: Epoch, then: Abort | None = None) -> Steps[None]:
    """Append an entry after preparing has failed. What made it fail is what the user has to know."""
    try:
        yield entry
        if then is not None:
            yield then
    except Fenced:
        raise  # that is why preparing failed: the run that came after has thrown its work away
    except Exception as error:
        # Presumed abort: the next run sees to it.
        log.warning("after epoch %s failed, the log could not be brought up to date: %s", epoch.number, error)


def _decide(
    number: int, config: str, outcome: tuple[Epoch, Mapping[str, Prepared]], done: Row | None = None
) -> Steps[Ran]:
    epoch, prepared = outcome
    decided = Row(State.DECIDED, epoch, epoch.owner, prepared, config=config)
    yield Append(number + 1, (done, decided) if done else (decided,))
    number, committed, _ = yield from _forward(number + 1, decided, epoch.owner, config)
    yield Abort(before=number + 1)  # what was prepared has been committed
    return Ran(number, committed, _done(epoch, epoch.owner, committed))


def _forward(number: int, decided: Row, run: str, config: str) -> Steps[tuple[int, Mapping[str, Committed], Did]]:
    """Commit what was decided, on every sink. ``number``: the log's last entry."""
    epoch = decided.epoch
    committed: Mapping[str, Committed | None] = yield Commit(epoch, decided.prepared)
    did = Did.ROLLED_FORWARD
    lost = [name for name, each in committed.items() if each is None]
    if lost:
        refuse_other_file(lost, decided, config)
        number, did = number + 1, Did.READ_AGAIN
        anew: Mapping[str, Prepared]
        try:
            _, anew = yield Prepare(replace(epoch, attempt=number), lost)
        except OffsetsLost:
            raise gone_from_kafka(decided) from None
        for name in lost:
            none = Prepared(0, "", {}, decided.prepared[name].after)  # a new table of which no record is left
            refuse_other_rows(name, decided, anew.get(name, none), config)
        prepared = {**decided.prepared, **anew}
        yield Append(number, (replace(decided, run=run, prepared=prepared, config=config),))
        committed = yield Commit(epoch, prepared)
    standing = {name: each for name, each in committed.items() if each is not None}
    if len(standing) < len(committed):
        gone = ", ".join(sorted(committed.keys() - standing.keys()))
        raise PositionMismatch(f"What {gone} has prepared for epoch {epoch.number} is gone again.")
    if decided.back_to is not None:  # before `done`, so that a crash repeats it
        yield TakeBack(epoch, decided.back_to)
    return number, standing, did


def _done(epoch: Epoch, run: str, committed: Mapping[str, Committed]) -> Row:
    return Row(State.DONE, epoch, run, reads={name: each.reads for name, each in committed.items()})


def _how_much(held: Mapping[str, bool]) -> Found:
    return Found.SAME if all(held.values()) else Found.PART if any(held.values()) else Found.NOTHING


def rewind(
    epoch: Epoch, number: int, config: str, run: str, prepared: Mapping[str, Prepared], *, back_to: int
) -> Steps[Ran]:
    """Take all tables back, by an epoch of no records: ``protocol.rewind`` says what a crash leaves.

    ``number``: the log's last entry when the plan was made; ``back_to``: the epoch that they go back to. There may be
    no tables, and yet dead letters. Raises Fenced, and what a sink raises.
    """
    epoch = replace(epoch, attempt=number + 1)
    decided = Row(State.DECIDED, epoch, run, prepared, config=config, of_rewind=back_to)
    yield Append(number + 1, (decided,))
    number, committed, _ = yield from _forward(number + 1, decided, run, config)
    done = _done(epoch, run, committed)
    yield Append(number + 1, (done,))
    yield Abort(before=number + 2)
    return Ran(number + 1, committed, done)
