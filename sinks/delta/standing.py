"""Where a table that is merged on read stands, and its change log: which of the two counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sinks.contract import Position
from sinks.errors import PositionMismatch
from sinks.plurals import plural


@dataclass(frozen=True)
class Standing:
    """The positions of the table and of its log, read one after the other. None: there is none."""

    table: Position | None
    log: Position | None

    @property
    def goes_on(self) -> bool:
        """Whether the log counts, see ``sinks.delta.merge_on_read``."""
        if self.table is None or self.log is None:
            return False
        if self.table.source != "commit" or self.log.source != "commit" or self.log.replaced:
            return False
        if self.set_back or self._of_another:
            return False
        same = self.log.epoch == self.table.epoch and self.log.offsets == self.table.offsets
        return self.log.epoch > self.table.epoch or same

    @property
    def set_back(self) -> bool:
        """Whether the table lacks an epoch that it had when the log was written: its files are those of a backup, or it
        was read before a fold, and the log after it."""
        folded = self.log.folded if self.log is not None else None
        return folded is not None and self.table is not None and self.table.epoch < folded.epoch

    @property
    def _of_another(self) -> bool:
        """Whether the log is of another table, which lay here before."""
        if self.log is None or self.log.folded is None or self.table is None:
            return False
        of = self.log.folded.table
        return bool(of and self.table.table) and of != self.table.table

    @property
    def unfolded(self) -> int:
        """Number of epochs that are in the log only."""
        return self.log.epoch - self.table.epoch if self.goes_on and self.log and self.table else 0

    @property
    def given_up(self) -> int:
        """Number of epochs that were in the log only when the log ceased to count: a run reads their records again."""
        if self.goes_on or self.log is None or self.table is None:
            return 0
        return max(0, self.log.epoch - self.table.epoch)

    @property
    def position(self) -> Position | None:
        """The pipeline's position; None: no epoch was committed."""
        if self.table is None:
            return None
        if self.goes_on and self.log is not None:
            return replace(self.log, replaced=self.table.replaced)
        # Numbers only grow: those that the log has taken aren't free.
        return replace(self.table, epoch=max(self.table.epoch, self.log.epoch if self.log else 0))


def settled(read: Callable[[], Standing]) -> Standing:
    """The standing of a table that another run may fold meanwhile. ``read``: reads the table first, and then the log.

    After a fold between the two the folded epochs still count as unfolded, and the log still holds them. If an epoch
    was appended since the fold, it says that the table has more than was read: then both are read again.
    """
    standing, before = read(), None
    while standing.set_back and standing.table != before:
        before, standing = standing.table, read()
    return standing


def no_longer_counts(label: str, epochs: int, *, done: str, hint: str) -> PositionMismatch:
    """The error that the change log of a table has epochs that the table lacks, and that nobody will fold.

    ``epochs``: their number, see ``Standing.given_up``; ``done``: what wasn't done.
    """
    return PositionMismatch(
        f"The change log of {label!r} has {plural(epochs, 'epoch')} that the table lacks, and no longer counts: the "
        "table was restored, set back or removed, or Delta has cleaned the history that would show a RESTORE. Nothing "
        f"was {done}.",
        hint=hint,
    )
