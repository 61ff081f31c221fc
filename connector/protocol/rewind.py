"""Rewinds all tables of a pipeline with a coordinator log to one earlier epoch: where to, and why it is safe. Pure.

The steps are ``two_phase.rewind``.

A rewind is an epoch of no records, with a number of its own. Its decision says which version each table goes back to.
To commit it, a table is restored to that version, forgets the deletes of records that are read again, and then gets the
epoch with the earlier offsets. When all have it, the dead letters are taken back, and only then the rewind is done.

====================  ==================================================================================================
crash                 what is left, and what the next process does
====================  ==================================================================================================
before the decision   Nothing has changed.
after the decision    The rewind counts, and is in doubt as any epoch. The next run, ``recover`` or second ``rewind``
                      takes the other tables back before it reads a record, so no epoch follows on mixed positions.
between RESTORE and   A table with the rows of the earlier epoch, and without the new number. It is restored to the same
commit of a table     version once more, and gets the epoch. A version never changes, so this can be repeated.
all committed         Every commit is a no-op that says so. The dead letters are taken back, and ``done`` is appended.
letters taken back    The same. Taken back once more, they stay as they are.
====================  ==================================================================================================

The decision takes the next number of the log. So a run that was at work can decide nothing any more, and is fenced. A
run that commits an epoch which was decided before finds a higher number in the table.

A RESTORE has no number, and nothing fences it. A process that is paused right before it, while another one finishes the
rewind and goes on, takes one table back later. That table then isn't where the log says, and the next run stops with
``PositionMismatch`` before it writes anything. Another rewind brings all tables to one epoch again: it asks no table
where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from connector.protocol.decided import Row, State
from sinks.contract import Epoch, Position
from sinks.event_time import Clock


@dataclass(frozen=True)
class Goal:
    """The epoch that all tables go back to. ``epoch`` 0: before the first one."""

    epoch: int
    stood: Position | None
    """Where the pipeline stood after it. None: before its first epoch."""
    began: Position
    """A position that says where it began."""

    @property
    def position(self) -> Position:
        """Where the pipeline is going to stand."""
        if self.stood is not None:
            return self.stood
        began = self.began.moved_to(self.began.since)
        return replace(began, clock=Clock(), lost=(), missed=(), gone={}, read_to=None, read_to_of={})

    def epoch_after(self, stands: Position, *, pipeline: str, owner: str) -> Epoch:
        """The epoch of the rewind. ``stands``: where the pipeline stands now: numbers only grow."""
        nothing = Epoch.of_no_records(self.position, pipeline=pipeline, owner=owner)
        return replace(nothing, number=stands.epoch + 1, expected=stands)


def goal(rows: Sequence[Row], wanted: Callable[[Row], bool]) -> Goal | None:
    """The newest epoch that is wanted, of those that led to the last one. None: these rows have none.

    ``rows``: of the newest epochs, oldest first. Epochs that an earlier rewind took back aren't looked at. If none is
    wanted, and the rows reach back to the first epoch, the goal is before that.
    """
    decided = {row.epoch.number: row for row in rows if row.state is State.DECIDED}
    done = {row.epoch.number: row for row in rows if row.state is State.DONE}
    number = max(decided, default=0)
    while number in decided:
        row = decided[number]
        if number in done and wanted(done[number]):
            stands = row.epoch.position()
            return Goal(number, stands, stands)
        if row.epoch.expected is None and row.back_to is None:
            return Goal(0, None, row.epoch.position())
        number = number - 1 if row.back_to is None else row.back_to
        if number == 0:
            return Goal(0, None, row.epoch.position())
    return None


def versions(
    goal: Goal, rows: Sequence[Row], names: Collection[str], *, of_route: bool
) -> tuple[Mapping[str, int], Sequence[str]]:
    """The version of each table as of the goal, and the tables that had none.

    A table that got its first rows later goes back to the version before them. Of several sinks, that is for a goal
    before the first epoch only: a sink that was added later would lack what the others have of earlier epochs. Nothing
    says which version was before the first rows of a table that was merged on read then.

    ``rows``: of the goal and all later epochs, oldest first.
    """
    done = [row for row in rows if row.state is State.DONE and row.epoch.number >= max(goal.epoch, 1)]
    found: dict[str, int] = {}
    for name in names:
        reads = [row for row in done if row.reads.get(name)]
        first = next((row for row in reads if "version" in row.reads[name]), None)
        if first is None or (reads[0] is not first and reads[0].epoch.number != goal.epoch):
            continue
        version = int(first.reads[name]["version"])
        if first.epoch.number == goal.epoch:
            found[name] = version
        elif version > 0 and (of_route or (goal.epoch == 0 and first is done[0])):
            found[name] = version - 1
    return found, [name for name in names if name not in found]
