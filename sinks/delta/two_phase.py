"""A Delta table in two-phase commit: an epoch's rows are staged beside the table, then written by the usual commit.

A decided epoch must be committed. So ``rehearse`` finds out before the decision whether the table takes the rows, for
example if a key has left its partition, or a sum overflows. It costs a join that an upsert or a sum needs anyway.

Staged rows are in ``_lakelock/staging`` under the table, where Delta's readers and VACUUM don't look. As in any commit,
Delta's ``txn`` allows one commit per epoch. A second process that commits the same epoch finds it committed already.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from sinks.contract import Committed, Epoch, Position, Prepared, Sink, describe
from sinks.delta.early_state import compute_state, state_beside
from sinks.delta.moved import about_moved_keys
from sinks.delta.staged_options import StagedOptions
from sinks.delta.table import DeltaTable
from sinks.errors import Fenced, PositionMismatch, PreparedLost, TableReplaced
from sinks.spark.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sinks.delta.taken_back import TakesBack


class Rehearsed(Sink["DataFrame"], Protocol):
    """A sink that writes an epoch in one commit, and can check before whether the write will succeed."""

    @property
    def appends(self) -> bool:
        """Whether the next epoch is only appended, so that its cost doesn't depend on the table's rows."""
        ...

    def rehearse(self, rows: DataFrame, epoch: Epoch) -> None:
        """Fail if ``write`` would fail because of the rows. Changes nothing."""
        ...


class TwoPhaseDelta:
    """A Delta table in two-phase commit. The table's session must be the sink's own."""

    def __init__(
        self,
        table: DeltaTable,
        sink: Rehearsed,
        *,
        pipeline: str,
        back: TakesBack | None = None,
        options: StagedOptions | None = None,
    ) -> None:
        """``back``: takes the table back in a rewind. None: it never is. ``options``: those that the rows of ``sink``
        are reduced by. None: there are none."""
        self.name = table.label
        self._table = table
        self._sink = sink
        self._back = back
        self._pipeline = pipeline
        self._options = options or StagedOptions()
        self._own = ""
        """What this process has staged last: its options are the same."""
        self._stagings: dict[str, Staging] = {}
        self._accepts = False
        self._last: Position | None = None
        """The position of this process's last commit. The sink itself checks whether other commits came after it."""

    def position(self) -> Position | None:
        """The pipeline's position in the table. Raises TableReplaced if another writer replaced the pipeline's rows."""
        stands = self._sink.position()
        if stands is not None and stands.replaced and not self._accepts:
            raise TableReplaced.by(stands.replaced, repr(self._table.label))
        return stands

    def accept(self) -> bool:
        """Go on with rows that another writer has put there, from the next commit on. Returns whether there are any."""
        stands = self._sink.position()
        self._accepts = True
        return stands is not None and bool(stands.replaced)

    def prepare(self, epoch: Epoch, rows: DataFrame) -> Prepared:
        """Stage the rows. Fails if their commit would fail because of the rows."""
        staging = self._staging
        if self._last is not None and self._table.committed_after(self._last.version):
            self._table.forget()  # somebody may have given the table another rule
        # The rehearsal of an append mostly asks nothing of the table. Its commit does, when others need the cores.
        early = nullcontext() if self._sink.appends else state_beside(self._table)
        with about_moved_keys(self._table.label), early:
            put, staged = staging.put_and_read(rows, epoch.attempt)
        prepared = self._options.noted(put)
        self._own = prepared.receipt["staged"]
        self._sink.rehearse(staged, epoch)
        if self._sink.appends:
            compute_state(self._table)
        return prepared

    def commit(self, epoch: Epoch, prepared: Prepared) -> Committed:
        """Commit the staged rows. Does nothing if this run's epoch is committed already.

        Raises Fenced if another run has committed this epoch or a later one, PositionMismatch if the table is at
        another position than expected, PreparedLost if the rows are gone, Diverged if other options have reduced them.
        """
        if prepared.restores is not None and self._back is not None:
            self._last = None
            return readable(self._back.take(epoch, prepared.restores, goal=prepared.back_to), self._table)
        stands, self._last = self._last or self.position(), None
        if stands is not None and holds(self._table.label, self._pipeline, stands, epoch):
            return readable(Committed(stands, rows=0, already=True), self._table)
        if not epoch.follows(stands):
            raise PositionMismatch(
                f"expected {describe(epoch.expected)} in {self._table.label!r}, found {describe(stands)}",
                hint="Run `lakelock recover FILE`: it says where each sink of the pipeline stands.",
            )
        try:
            rows = self._staging.get(prepared)
            if prepared.receipt["staged"] != self._own:
                self._options.refuse_others(self._table.label, epoch, prepared)
            committed = self._sink.write(epoch.of_table(stands), rows)
        except PreparedLost:
            # Another process may have committed this epoch, continued, and removed the staged rows.
            stands = self._sink.position()
            if stands is None or (stands.epoch, stands.owner) != (epoch.number, epoch.owner):
                raise
            return readable(Committed(stands, rows=0, already=True), self._table)
        self._last = committed.position
        return readable(committed, self._table)

    def abort(self, before: int) -> None:
        """Remove the rows staged under attempts below ``before``."""
        self._staging.clear(before)

    @property
    def _staging(self) -> Staging:
        detail = self._table.detail()
        if detail is None:
            raise ValueError(f"{self._table.label!r} has to be made first")
        if detail.location not in self._stagings:  # each knows what it has staged
            self._stagings[detail.location] = staging(self._table, detail.location, self._pipeline)
        return self._stagings[detail.location]


def staging(table: DeltaTable, location: str, pipeline: str) -> Staging:
    """The staging of a pipeline's rows for a table. ``location``: the table's folder or URI."""
    return Staging(table.spark, f"{location.rstrip('/')}/_lakelock/staging/{pipeline}")


def holds(label: str, pipeline: str, stands: Position, epoch: Epoch) -> bool:
    """Whether a table with this position holds this very epoch. Raises Fenced if it holds another run's, or more."""
    if stands.epoch < epoch.number:
        return False
    if (stands.epoch, stands.owner) == (epoch.number, epoch.owner):
        return True
    raise Fenced(
        f"Pipeline {pipeline!r} was replaced: run {stands.owner} has committed epoch {stands.epoch} to "
        f"{label!r}; nothing of this run's epoch {epoch.number} was written there.",
        owner=stands.owner,
        epoch=stands.epoch,
        hint="Two runs of one pipeline were active, of which one had no part in the coordinator log: does "
        "another pipeline file of this name write to the table?",
    )


def readable(committed: Committed, table: DeltaTable) -> Committed:
    """The commit, with how a reader sees the table as of it. The version is of this very table: Delta's id names it."""
    return replace(committed, reads={"version": committed.position.version, "id": table.id})
