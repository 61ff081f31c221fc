"""Dead letters that epochs which failed have left: closed once their records have got in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from connector.config import PipelineConfig
from connector.engine.dead_letters import letters_table
from sinks.contract import Position
from sinks.delta.dead_letters import DeadLetters
from sinks.offsets import OffsetRange, Offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class LeftLetters:
    """Those of one run. ``letters``: the table; None: there is none.

    Letters are stored before the commit of their epoch. If that fails, its records are read again, maybe by a corrected
    file, and may be good then. So a run marks, before its first epoch, the open letters of records that are still to be
    read. An epoch that sets a record aside again takes the mark from its letter. After the commit the letters that
    still have it are closed.

    ====================  ==============================================================================================
    crash                 what is left
    ====================  ==============================================================================================
    before the commit     Open letters, with a mark that only this run looks for. The next run marks them anew. So it
                          is if another run commits the epoch.
    before the close      Open letters of records that have got in. The next run closes them: they have the mark of the
                          run that made the last epoch.
    ====================  ==============================================================================================
    """

    letters: DeadLetters | None
    run: str
    _marked: int = field(default=0, init=False)

    @classmethod
    def of(cls, config: PipelineConfig, spark: SparkSession, run: str) -> LeftLetters:
        """Those of a pipeline; none if its position is in a consumer group, or if its table joins others."""
        own = config.delivery == "transactional" and config.whole.two_phase == config.two_phase
        return cls(letters_table(config, spark) if own else None, run)

    def mark(self, position: Position | None) -> None:
        """Mark the letters of records at or after a position; None: of all records. First ``finish`` for the run of the
        last epoch."""
        if self.letters is None or not self.letters.exists():
            return
        self.finish(position)
        self._marked = self.letters.mark_ahead(self.run, position.offsets if position is not None else Offsets())

    def finish(self, position: Position | None) -> None:
        """Close the letters that the run of the last epoch has marked, if it was killed before it could.

        Call it before any other epoch is committed: only the newest one says whose marks they are. A run that was
        replaced leaves marks too, of letters that are rightly open, so not every mark counts.
        """
        if self.letters is None or position is None or not position.owner or not self.letters.exists():
            return
        self._close(self.letters, position.owner, position)

    def close(self, position: Position) -> None:
        """Close the marked letters of records that an epoch has read, which is committed with this position."""
        if self._marked and self.letters is not None:
            self._close(self.letters, self.run, position)
            self._marked = self.letters.marked_ahead(self.run, position.offsets)

    def _close(self, letters: DeadLetters, run: str, position: Position) -> None:
        # Records that nobody has read are in no table, and their letters may be all that is left of them.
        before = [OffsetRange(at.topic, at.partition, 0, first) for at, first in position.since.items()]
        # After a RESTORE that of the restored version: one that it has undone would have them opened again.
        epoch = position.stands_at
        letters.close_ahead(run, position.offsets, epoch, unread=[*before, *position.lost])
