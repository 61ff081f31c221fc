"""When changes that were appended are folded into their table. See ``sinks.delta.merge_on_read``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone

from connector.config import Fold
from connector.protocol.steps import Event, Observer, Step
from sinks.contract import Committed, Epoch, Position
from sinks.delta.merge_on_read import MergeOnRead


@dataclass(frozen=True)
class Folding:
    """The folds of one run, between its epochs."""

    log: MergeOnRead
    when: Fold
    pipeline: str
    owner: str
    observe: Observer

    def after(self, position: Position) -> None:
        """After an epoch, or at the end of a round without any; ``position``: of the pipeline."""
        if self._due(position):
            self.now(position)

    def now(self, position: Position) -> Committed | None:
        """None: there was nothing to fold."""
        epoch = replace(Epoch.that_left(position, pipeline=self.pipeline), owner=self.owner)
        self.observe(Event(Step.FOLDING, epoch))
        committed = self.log.fold(self.owner)
        if committed is not None:
            self.observe(Event(Step.FOLDED, epoch, committed))
        return committed

    def _due(self, position: Position) -> bool:
        folded = self.log.folded
        if folded is None or position.epoch <= folded.epoch:
            return False
        if position.epoch - folded.epoch >= self.when.epochs:
            return True
        if position.offsets.ahead_of(folded.offsets) >= self.when.records:
            return True
        now = datetime.now(timezone.utc)
        if folded.refresh_after is not None and now >= folded.refresh_after:
            return True  # or the table would forget where it stands
        waited = now - folded.committed_at if folded.committed_at is not None else None
        return waited is not None and self.when.interval is not None and waited >= self.when.interval
