"""Decides when the epochs of a change log are folded into their table. ``sinks.delta.merge_on_read`` does the fold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone

from connector.config import Fold
from connector.protocol.steps import Event, Observer, Step
from sinks.contract import Committed, Epoch, Position
from sinks.delta.merge_on_read import MergeOnRead


@dataclass(frozen=True)
class Folding:
    """The folds of one run, between its epochs. ``owner`` is the run's id, ``when`` the options ``fold:``."""

    log: MergeOnRead
    when: Fold
    pipeline: str
    owner: str
    observe: Observer

    def after(self, position: Position) -> None:
        """Fold if a fold is due.

        Called after an epoch, or at the end of a round without any, with the pipeline's position.
        """
        if self._due(position):
            self.now(position)

    def now(self, position: Position) -> Committed | None:
        """Fold what isn't folded yet. Returns the commit, or None if there was nothing to fold.

        The fold is one commit of the table: it merges the change log's epochs and says in its metadata up to which
        offsets. It removes nothing from the change log, and the epoch numbers say which of its rows count.

        ====================  ==========================================================================================
        crash                 what is left
        ====================  ==========================================================================================
        before the commit     The table is behind the change log, as before. Readers of both see every row. The next
                              fold begins anew.
        after the commit      The table has the epochs. The change log still holds them, but by their number they no
                              longer count.
        ====================  ==========================================================================================

        Raises what ``MergeOnRead.fold`` raises.
        """
        epoch = replace(Epoch.that_left(position, pipeline=self.pipeline), owner=self.owner)
        self.observe(Event(Step.FOLDING, epoch))
        committed = self.log.fold(self.owner)
        if committed is not None:
            self.observe(Event(Step.FOLDED, epoch, committed))
        return committed

    def _due(self, position: Position) -> bool:
        """Whether one of the bounds is reached: epochs, records, time, or Delta's retention of the table's history."""
        folded = self.log.folded
        if folded is None or position.epoch <= folded.epoch:
            return False
        if position.epoch - folded.epoch >= self.when.epochs:
            return True
        if position.offsets.ahead_of(folded.offsets) >= self.when.records:
            return True
        now = datetime.now(timezone.utc)
        if folded.refresh_after is not None and now >= folded.refresh_after:
            return True  # otherwise Delta's retention would remove the table's last position
        waited = now - folded.committed_at if folded.committed_at is not None else None
        return waited is not None and self.when.interval is not None and waited >= self.when.interval
