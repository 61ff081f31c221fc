"""What a coordinator log says of an epoch, and where that leaves each sink. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from connector.protocol.row_shape import OF_SCHEMA, differences
from sinks.contract import Epoch, Position, Prepared
from sinks.errors import Diverged, OffsetsLost, PositionMismatch
from sinks.plurals import plural


class State(str, Enum):
    """How far an epoch has come, as the coordinator log says. Once it is ``DECIDED``, it will be committed."""

    BEGUN = "begun"
    DECIDED = "decided"
    ABORTED = "aborted"
    DONE = "done"


@dataclass(frozen=True)
class Row:
    """What an entry of the log says of an epoch."""

    state: State
    epoch: Epoch
    run: str
    """Who appended it: not always the epoch's owner, who began it."""
    prepared: Mapping[str, Prepared] = field(default_factory=dict)
    """Sink -> what it has prepared. ``decided`` only."""
    reads: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Sink -> how a reader sees it as of this epoch, as ``Committed.reads`` has it. ``done`` only."""
    config: str = ""
    """What makes the rows, see ``row_shape``. ``decided`` only."""
    of_rewind: int | None = None
    """``back_to``, of a rewind. Where there are tables, it is in what each of them has prepared as well."""

    @property
    def of_route(self) -> bool:
        """Whether epochs may pass the sinks by."""
        return any(each.after is not None for each in self.prepared.values())

    @property
    def back_to(self) -> int | None:
        """The epoch that a rewind goes back to; 0: before the first one. None: the epoch is no rewind."""
        told = (each.back_to for each in self.prepared.values())
        return next((epoch for epoch in (self.of_rewind, *told) if epoch is not None), None)

    def left_at(self, sink: str) -> int | None:
        """The epoch that a sink is at after this decision, if the epoch passes it by. None: it is at this epoch."""
        prepared = self.prepared.get(sink)
        return prepared.after if prepared is not None and prepared.passes_by else None


@dataclass(frozen=True)
class LogHeld:
    """What the log holds, as far as it matters: its last entry, and the last epoch that was decided."""

    number: int = 0
    """Of the last entry; 0: there is none."""
    last: Row | None = None
    decided: Row | None = None

    @property
    def in_doubt(self) -> Row | None:
        """An epoch that was begun or decided, and isn't known to be done."""
        return self.last if self.last is not None and self.last.state in (State.BEGUN, State.DECIDED) else None

    @property
    def all_hold_it(self) -> bool:
        """Whether all sinks are known to hold the last decided epoch: nobody begins the next one before."""
        return self.in_doubt is None or self.in_doubt.state is State.BEGUN

    @property
    def over(self) -> int:
        """What is prepared under attempts below this number nobody will decide on, or commit: also not a run that is
        at work, whose attempt is the entry that is in doubt, or the next one."""
        return self.number + 1 if self.in_doubt is None else self.in_doubt.epoch.attempt


def is_at(position: Position | None, decided: Row | None, sink: str) -> bool:
    """Whether a sink is where this decision leaves it. Without a decision, whether it has no commit."""
    if decided is None:
        return position is None
    left_at = decided.left_at(sink)
    if left_at is not None:
        return _is_left_at(position, left_at)
    if sink not in decided.prepared:  # it has caught up since, by an epoch of its own
        return position is not None and position.same_place(decided.epoch.position())
    return position is not None and position.holds(decided.epoch)


def is_before(position: Position | None, decided: Row, sink: str) -> bool:
    """Whether a sink is where it was before this decision, so that the epoch may be committed."""
    prepared = decided.prepared.get(sink)
    if prepared is not None and prepared.restores is not None:
        # It goes back to a version, wherever it stands; maybe it has, and lacks the epoch.
        return position is None or position.epoch < decided.epoch.number
    if prepared is None or prepared.after is None:
        return decided.epoch.follows(position)
    return _is_left_at(position, prepared.after)


def strayed(positions: Mapping[str, Position | None], known: LogHeld) -> str:
    """The sinks that somebody else has replaced, or that don't hold what the log says, in words. A run stops there.

    Empty: there are none. The log was read before the positions: a run may have gone on since.
    """
    decided, told = known.decided, []
    for name, position in positions.items():
        if position is not None and position.replaced:
            told.append(f"{name}: {position.replaced}")
        elif decided is not None and not _may_be_at(position, decided, name, settled=known.all_hold_it):
            holds = "holds no epoch" if position is None else f"stands at {position.describe()}"
            told.append(f"{name} {holds}, and the coordinator log is at epoch {decided.epoch.number}")
    return "; ".join(told)


def _may_be_at(position: Position | None, decided: Row, sink: str, *, settled: bool) -> bool:
    if position is not None and position.epoch > decided.epoch.number:
        return True
    if is_at(position, decided, sink) or joins(position, decided, sink):
        return True
    return not settled and is_before(position, decided, sink)


def joins(position: Position | None, decided: Row | None, sink: str) -> bool:
    """Whether a sink was added to the file after this decision, and has yet to catch up with the others."""
    if decided is None or decided.of_route or sink in decided.prepared:
        return False
    if position is None:
        return True
    if position.delivery != "transactional":  # its commit says only where it began
        return False
    return position.epoch < decided.epoch.number and decided.epoch.offsets.reaches(position.offsets)


def _is_left_at(position: Position | None, number: int) -> bool:
    """Whether a sink's last commit is the epoch of this number (0: it has none), and no RESTORE has undone it since."""
    if position is None:
        return number == 0
    return position.epoch == number and not position.lacks_epochs


def disagree(decided: Row | None, positions: Mapping[str, Position | None]) -> PositionMismatch:
    """The error that sinks aren't where the last decision leaves them."""
    if decided is not None and decided.of_route:
        return _tables_disagree(decided, positions)
    stands = decided.epoch if decided is not None else None
    log = stands.position().describe() if stands else "no epoch"
    sinks = "; ".join(
        f"{name} {position.describe() if position else 'no epoch'}" for name, position in positions.items()
    )
    more = any(each is not None and (stands is None or each.epoch > stands.number) for each in positions.values())
    return PositionMismatch(
        f"The sinks of the pipeline don't stand where its coordinator log says: expected {log} in all of them, found "
        f"{sinks}. Nothing was written.",
        hint="A sink holds more than the log knows: give the coordinator log that it was written with, or write to "
        "new, empty places."
        if more
        else "A sink that was restored or emptied misses what the others hold. If all are tables, `lakelock rewind "
        "FILE --to-epoch N` takes them back to one epoch. Or write to new, empty places.",
    )


def _tables_disagree(decided: Row, positions: Mapping[str, Position | None]) -> PositionMismatch:
    wrong = []
    for name, position in positions.items():
        if not is_at(position, decided, name) and not is_before(position, decided, name):
            left_at = decided.left_at(name)
            expected = decided.epoch.number if left_at is None else left_at
            found = "has no epoch, as a new table" if position is None else f"is at {position.describe()}"
            restored = ", by a RESTORE" if position is not None and position.lacks_epochs else ""
            wrong.append(f"{name} {found}{restored}, not at epoch {expected}")
    return PositionMismatch(
        f"Tables of the pipeline don't stand where its coordinator log says: {'; '.join(wrong)}. Nothing was written.",
        hint="A table that was dropped, moved, emptied or restored misses records that the pipeline has passed. Bring "
        "it back to its newest epoch (RESTORE, UNDROP, a copy). Or take all tables back to an epoch that each still "
        "has: `lakelock rewind FILE --to-epoch N`. Or start a pipeline of another name in new places.",
    )


def refuse_other_file(lost: Collection[str], decided: Row, config: str) -> None:
    """Refuse to read an epoch again as another pipeline file says, where no checksum would tell other rows.

    Raises Diverged.
    """
    changed = differences(decided.config, config)
    if not changed or all(decided.prepared[name].checksum for name in lost):
        return
    raise Diverged(
        f"Epoch {decided.epoch.number} was decided, and some of its tables don't have their rows yet."
        f"{_edited(changed)} So the epoch would be split between two versions. Nothing was written.",
        hint=_put_back(changed, decided),
    )


def refuse_other_rows(sink: str, decided: Row, anew: Prepared, config: str) -> None:
    """Refuse what a sink has prepared again, if it isn't what was decided. Raises Diverged."""
    before = decided.prepared[sink]
    if (anew.rows, anew.checksum) == (before.rows, before.checksum):
        return
    changed = differences(decided.config, config)
    give_up = _give_up(decided, " --allow-data-loss" if anew.rows < before.rows else "")
    if decided.of_route:  # its tables stage nothing
        lost = "Kafka may have lost some of its records since, by retention or compaction. Or somebody"
        undo = "may have changed a table since, such as by a new column: undo that, and run `lakelock recover FILE`."
        give_up = f"{lost if anew.rows < before.rows else 'Somebody'} {undo} {give_up}"
    raise Diverged(
        f"Epoch {decided.epoch.number} was decided, and what {sink!r} had prepared for it is gone. Read from Kafka "
        f"again, its ranges give {_counted(anew)}, where {_counted(before)} were prepared."
        f"{_edited(changed)} Nothing was written.",
        hint="One epoch must not mix two versions. " + (_put_back(changed, decided) if changed else give_up),
    )


def _edited(changed: Sequence[str]) -> str:
    """What has been changed, as a sentence. ``changed``: see ``differences``."""
    if not changed:
        return ""
    named = " and ".join(changed)
    return f" {named[0].upper()}{named[1:]} {'has' if len(changed) == 1 else 'have'} been changed since."


def _put_back(changed: Sequence[str], decided: Row) -> str:
    hint = "Put back what has been changed, run `lakelock recover FILE`, and change it then."
    if not any(each.startswith(OF_SCHEMA) for each in changed):
        return hint
    own = "A run takes the older schema by itself if the registry has its ID."
    return f"{hint} {own} If it was deleted: {_give_up(decided)}"


def gone_from_kafka(decided: Row) -> OffsetsLost:
    """The error that a decided epoch has to be read again, and Kafka doesn't hold its records any more."""
    return OffsetsLost(
        f"Epoch {decided.epoch.number} was decided, and some of its sinks don't have their rows yet. They have to be "
        "read again, and Kafka no longer holds all of the epoch's records.",
        hint=_give_up(decided, " --allow-data-loss"),
    )


def _give_up(decided: Row, option: str = "") -> str:
    """What to do about an epoch that can't be completed. ``option``: one that the command needs."""
    back = (
        f"To give the epoch up, take all tables back: `lakelock rewind FILE --to-epoch {decided.epoch.number - 1}"
        f"{option}`. Tables with merge: on_read can't go back: `lakelock replay FILE --into PATH` fills new ones from "
        "what Kafka holds."
    )
    if decided.of_route:
        return back
    return (
        f"Bring the staged files back. {back} Nor can a topic or a bucket: then write a pipeline file of another name, "
        "with new places, and run it."
    )


def _counted(prepared: Prepared) -> str:
    return plural(prepared.rows, "row") + (f" (checksum {prepared.checksum})" if prepared.checksum else "")
