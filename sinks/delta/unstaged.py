"""A Delta table that takes its part of a decided epoch without staging it: one of many tables of a route.

What it prepares is a frame in this process. A decided epoch whose process is gone is read from Kafka again, over the
ranges in the coordinator log. A table that gets no rows of an epoch makes no commit.

====================  ==================================================================================================
crash                 what is left in the table
====================  ==================================================================================================
before ``commit``     The epoch that it held before. The next run finds what it held gone (PreparedLost), and reads the
                      epoch again.
after ``commit``      The epoch, with its rows, in one commit. The next run's ``commit`` says that it is there already.
====================  ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from sinks.contract import Committed, Epoch, Position, Prepared, describe
from sinks.delta.merge_on_read import MergeOnRead
from sinks.delta.moved import about_moved_keys
from sinks.delta.standing import no_longer_counts
from sinks.delta.table import DeltaTable
from sinks.delta.two_phase import Rehearsed, holds, readable
from sinks.errors import PositionMismatch, PreparedLost, TableReplaced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sinks.delta.taken_back import TakesBack

CHANGE_LOG = "change log"
"""Says of a commit that its epoch is in the change log of a table that is merged on read, and the log's version."""


class Unstaged:
    """A Delta table that commits what it holds of a decided epoch."""

    def __init__(
        self,
        name: str,
        table: DeltaTable,
        sink: Rehearsed,
        *,
        pipeline: str,
        back: TakesBack | None = None,
        folded: MergeOnRead | None = None,
        around: Callable[[int | None], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """``name``: what the coordinator log calls it. ``around``: entered for each question and each commit, as tables
        that share a session have to take turns. It gets the number of rows to append; 0: none, None: they are merged.
        ``back``: takes the table back in a rewind. None: it never is. ``folded``: that which has merged the table on
        read before, if all of it is folded.
        """
        self.name = name
        self._table = table
        self._sink = sink
        self._pipeline = pipeline
        self._around = around
        self._back = back
        self._folded = folded
        self._on_read = sink if isinstance(sink, MergeOnRead) else None
        self._held: tuple[Epoch, DataFrame] | None = None
        self._asked = False
        """Whether anybody has asked for its position: for a table that the log knows, a recovery has."""
        self._stands: Position | None = None

    @property
    def holds_rows(self) -> bool:
        """Whether it holds rows that aren't known to be committed."""
        return self._held is not None

    def alone(self) -> AbstractContextManager[object]:
        """For questions about the table: nothing else uses its session meanwhile."""
        return self._around(0)

    def position(self) -> Position | None:
        """The pipeline's position in the table. Raises TableReplaced if another writer replaced the pipeline's rows."""
        with self.alone():
            return self._position()

    def look(self) -> Position | None:
        """The same for somebody who writes nothing. It says of a table whether it was replaced."""
        with self.alone():
            return self._look()

    def _look(self) -> Position | None:
        stands = self._sink.position()
        before = self._folded.standing() if self._folded is not None else None
        if stands is not None and before is not None and before.goes_on and before.log is not None:
            stands = replace(stands, owner=before.log.owner)  # the table has that of the run that folded the epoch
        return stands

    def _position(self) -> Position | None:
        stands = self._look()
        if stands is not None and stands.replaced:
            raise TableReplaced.by(stands.replaced, repr(self._table.label))
        if self._on_read is not None and self._on_read.given_up:
            # The coordinator log has no offsets of each table: by the number alone it would take these epochs for held.
            raise no_longer_counts(
                self._table.label,
                self._on_read.given_up,
                done="written",
                hint="Bring the table back to its newest version, if it was restored. Else write to new places: "
                "`lakelock replay` reads the records again, while Kafka holds them.",
            )
        if stands is None and self._on_read is not None and (left := self._on_read.left_behind()):
            raise PositionMismatch(
                f"{self._table.label!r} holds no epoch, and its folder has the change log of a table that was removed, "
                f"up to epoch {left}. Nothing was written.",
                hint="Remove the folder `_lakelock` there, too. Or write to another place.",
            )
        self._asked, self._stands = True, stands
        return stands

    def changed(self) -> bool:
        """Whether others have committed to the table since. Needs no Spark job."""
        if self._on_read is not None:  # its position is that of its change log
            return self._on_read.table_changed
        return self._stands is not None and self._table.committed_after(self._stands.version)

    def hold(self, epoch: Epoch, rows: DataFrame, count: int) -> Prepared:
        """Hold the rows of an epoch until it is decided. ``count``: their number, more than 0.

        Raises PositionMismatch if the log doesn't know the table, and the table has epochs of the pipeline.
        """
        if not self._asked and self.position() is not None:
            raise self._mismatch(0, self._stands)
        self._held = (epoch, rows)
        return Prepared(count, "", {}, self._stands.epoch if self._stands is not None else 0)

    def rehearse(self) -> None:
        """Fail if the commit would fail because of the rows that it holds. Changes nothing. Raises KeyMoved.

        Once an epoch is decided it has to be committed. So whatever its rows could make fail, fails before.
        """
        if self._held is None or self._sink.appends:  # what an append can't take is found record by record
            return
        epoch, rows = self._held
        with self._around(None):
            if "_sequence" not in rows.columns:
                # Of a key in two partitions, and of a sum that is too large. Nothing else computes all rows: Spark
                # passes over them where the table is empty.
                with about_moved_keys(self._table.label):
                    rows.write.format("noop").mode("append").save()
            self._sink.rehearse(rows, epoch)

    def pass_by(self) -> Prepared | None:
        """What the log says of a table that gets no rows. None: it has no part in the pipeline yet."""
        self._held = None
        return Prepared(0, "", {}, self._stands.epoch) if self._stands is not None else None

    def commit(self, epoch: Epoch, prepared: Prepared) -> Committed:
        """Write the rows that it holds, in one commit. Does nothing if the epoch is there, or passes the table by.

        Raises Fenced if another run has committed this epoch or a later one, PositionMismatch if the table isn't where
        the log says, PreparedLost if it holds no rows of this epoch.
        """
        rows = 0 if prepared.passes_by else prepared.rows if self._sink.appends else None
        with self._around(rows):
            if prepared.restores is not None and self._back is not None:
                taken = self._back.take(epoch, prepared.restores, goal=prepared.back_to)
                self._held, self._asked, self._stands = None, True, taken.position
                return self._readable(taken)
            stands, after = self._position(), prepared.after or 0
            if stands is not None and holds(self._table.label, self._pipeline, stands, epoch):
                return self._readable(Committed(stands, rows=0, already=True))
            if (stands.epoch if stands is not None else 0) != after or (stands and stands.lacks_epochs):
                raise self._mismatch(after, stands)
            if prepared.passes_by:
                assert stands is not None
                return self._readable(Committed(stands, rows=0, already=True))
            held = self._held
            if held is None or not _same(held[0], epoch):
                raise PreparedLost(f"The rows of epoch {epoch.number} have to be read again for {self._table.label!r}.")
            committed = self._sink.write(replace(epoch, expected=stands), held[1])
            self._held, self._stands = None, committed.position
            return self._readable(committed)

    def fold(self, fold: Callable[[Position], Committed | None]) -> Committed | None:
        """Have the change log folded into the table, if there is one. ``fold``: gets where the table stands."""
        if self._on_read is None or self._stands is None:
            return None
        with self._around(None):
            return fold(self._stands)

    def _readable(self, committed: Committed) -> Committed:
        if self._on_read is None:
            return readable(committed, self._table)
        return replace(committed, reads={CHANGE_LOG: committed.position.version})

    def abort(self, _: int) -> None:
        """Let go of the rows that it holds."""
        self._held = None

    def _mismatch(self, after: int, stands: Position | None) -> PositionMismatch:
        expected = f"epoch {after}" if after else "no epoch"
        return PositionMismatch(
            f"expected {expected} in {self._table.label!r}, by the coordinator log, found {describe(stands)}",
            hint="Run `lakelock recover FILE`: it says where each table of the pipeline stands.",
        )


def _same(one: Epoch, other: Epoch) -> bool:
    """Whether they have the same records: a run may plan a number twice, if it could not see that the first stood."""
    return (one.number, one.owner, one.ranges) == (other.number, other.owner, other.ranges)
