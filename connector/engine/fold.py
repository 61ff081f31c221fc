"""Decides when the epochs of a change log are folded into their table. ``sinks.delta.merge_on_read`` does the fold."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from connector.config import Fold, PipelineConfig
from connector.engine.fold_beside import Beside, Folded
from connector.engine.outputs import Table
from connector.protocol.steps import Event, Observer, Step
from sinks.contract import Committed, Epoch, Position
from sinks.delta.merge_on_read import MergeOnRead
from sinks.errors import ConfigurationError, PositionMismatch
from sinks.plurals import plural


@dataclass
class Folding:
    """The folds of one run, between its epochs or beside them. ``owner`` is the run's id, ``when`` the options
    ``fold:``."""

    log: MergeOnRead
    when: Fold
    pipeline: str
    owner: str
    observe: Observer
    beside: Beside | None = None
    """None: a fold comes between two epochs."""
    _going_on: Future[Folded] | None = field(default=None, init=False)
    _last: Position | None = field(default=None, init=False)
    """The table's position after the last fold that went on beside the epochs."""

    @classmethod
    def of(
        cls,
        log: MergeOnRead | None,
        config: PipelineConfig,
        owner: str,
        observe: Observer,
        beside: Beside | None = None,
    ) -> Folding | None:
        """The folds of a pipeline with one table; None if it isn't merged on read."""
        sink = config.merged_on_read
        if sink is None or log is None:
            return None
        return cls(log, sink.fold or Fold(), config.name, owner, observe, beside)

    def after(self, position: Position) -> Committed | None:
        """Fold if a fold is due, or begin one that goes on beside the epochs. Returns what was folded since.

        Called after an epoch, or at the end of a round without any, with the pipeline's position. Raises what a fold
        that went on beside the epochs has raised.
        """
        if self._going_on is not None and not self._going_on.done():
            return None
        committed = self.finish()
        if not self._due(position):
            return committed
        if self.beside is None:
            return self.now(position)
        self._going_on = self.beside.start()
        return committed

    def finish(self) -> Committed | None:
        """Wait for a fold that goes on beside the epochs, and return its commit. Raises what it raises."""
        if self._going_on is None:
            return None
        going_on, self._going_on = self._going_on, None
        folded = going_on.result()
        if folded.committed is not None:
            self._last = folded.committed.position
            self.observe(Event(Step.FOLDED, self._epoch(self._last), folded.committed, took=folded.seconds))
        return folded.committed

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
        epoch = self._epoch(position)
        self.observe(Event(Step.FOLDING, epoch))
        committed = self.log.fold(self.owner)
        if committed is not None:
            self.observe(Event(Step.FOLDED, epoch, committed))
        return committed

    def take_back(self, epoch: Epoch) -> None:
        """Take the epoch out of the change log again, see ``MergeOnRead.take_back``. Raises what that raises, and what
        a fold that went on beside the epochs has raised."""
        self.finish()
        self.log.take_back(epoch)

    def into_table(self, position: Position) -> None:
        """Fold until the table itself has the epoch of this position, whatever becomes of the change log afterwards.

        Raises PositionMismatch if the log has ceased to count before, and what ``now`` raises.
        """
        self.now(position)
        stands = self.log.standing().table
        if stands is None or stands.epoch < position.epoch:
            raise PositionMismatch(
                f"The table was changed meanwhile: epoch {position.epoch} of its change log no longer counts.",
                hint="Retry again: the letters are still open.",
            )

    def _epoch(self, position: Position) -> Epoch:
        return replace(Epoch.that_left(position, pipeline=self.pipeline), owner=self.owner)

    def _due(self, position: Position) -> bool:
        """Whether one of the bounds is reached: epochs, records, time, or Delta's retention of the table's history."""
        folded = self.log.folded
        # The sink of the epochs looks at the table again only before its next append.
        if folded is not None and self._last is not None and self._last.epoch > folded.epoch:
            folded = self._last
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


def refuse_unfolded(config: PipelineConfig, output: Table) -> MergeOnRead | None:
    """Refuse a table that was merged on read, no longer is, and lacks epochs of its change log. For tables that move
    together: they keep the numbers that a table of its own may take.

    Returns that which has merged it, if its change log still counts. Raises ConfigurationError.
    """
    log = output.derivation.log
    if log is None or config.merged_on_read is not None or not log.started:
        return None
    standing = log.standing()
    if standing.unfolded:
        waiting = plural(standing.unfolded, "epoch isn't", "epochs aren't")
        raise ConfigurationError(
            f"The table {output.label!r} was merged on read, and {waiting} folded into it yet. "
            "A run with several sinks would leave out what the table lacks.",
            hint="Run `lakelock fold` with the pipeline file as it was before.",
        )
    return log if standing.goes_on else None
