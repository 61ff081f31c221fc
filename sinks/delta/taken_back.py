"""Takes a table back to an earlier version, as one of several that go back together: see ``connector.protocol.rewind``.

====================  ==================================================================================================
crash                 what is left in the table
====================  ==================================================================================================
before the RESTORE    The table as it was.
before the commit     The earlier version, without the epoch's number, and maybe without the tombstones of records that
                      are read again, or of epochs that are undone, or with those that an earlier rewind had forgotten.
                      ``take`` restores it once more, deletes what is left of the former, and brings the rest of the
                      latter back.
after the commit      The earlier version, and the epoch. ``take`` isn't called again: the table says that it has it.
====================  ==================================================================================================

The tombstones are found before ``take`` asks where the table stands. If the table lacks the epoch even then, no later
epoch was decided yet, so none of those found is of a later one. They are deleted before the commit: a table with the
epoch has none of them left.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from sinks.contract import Committed, Epoch
from sinks.delta.append import DeltaAppend
from sinks.delta.commit import PipelineCommits
from sinks.delta.refusals import append_only
from sinks.delta.restore import BY_REWIND, restore
from sinks.delta.table import DeltaTable
from sinks.delta.tombstones import Tombstones
from sinks.delta.two_phase import holds
from sinks.errors import PositionMismatch
from sinks.recreated import with_retired_names
from sinks.spark.row_errors import problem
from sinks.spark.sql import identifier


@dataclass(frozen=True)
class TakesBack:
    """Takes one table back."""

    table: DeltaTable
    commits: PipelineCommits
    columns: Collection[str]
    """Those that the pipeline writes."""
    tombstones: Tombstones | None = None

    def wrong(self, version: int, epoch: int | None, *, goal: int) -> str | None:
        """Why the table can't go back to a version, in words; None: it can. Changes nothing.

        ``epoch``: the pipeline's last epoch at that version; None: the table got its first rows after the epoch
        ``goal``, so that version has no later one. Opens every file of the version.
        """
        from pyspark.errors import PySparkException

        detail = self.table.detail()
        if detail is None:
            return "there is no such table"
        if detail.append_only:
            return append_only(self.table.label, "a rewind removes rows").message
        stood = self.commits.at(version)
        another = of_another(version, stood.metadata.epoch if stood is not None else None, epoch, goal=goal)
        if another is not None:
            return another
        others = self.commits.undone(version).why_not
        if others is not None:
            return others
        try:
            # A count alone is answered by the log; the path of a row's file isn't.
            every = f"{self.table.sql} VERSION AS OF {int(version)}"
            self.table.spark.sql(f"SELECT max(length(_metadata.file_path)) FROM {every}").collect()
        except PySparkException as error:
            return f"version {version} can't be read any more: {problem(error)}"
        return None

    def take(self, epoch: Epoch, version: int, *, goal: int | None) -> Committed:
        """Restore the table, wherever it stands, and commit the epoch, which has no rows. Does nothing if it has it.

        ``goal``: the epoch that all tables go back to. It may have passed this one by, whose last one is an earlier
        then: what was forgotten between the two stays forgotten. None: an earlier version didn't say it.

        Raises SinkError, SchemaMismatch, Fenced.
        """
        left = None
        if self.tombstones is not None and self.table.detail() is not None:
            left = self.tombstones.left_over(epoch.offsets, self.commits.topics)
        stands = None
        with suppress(PositionMismatch):  # somebody has restored it, and another run has written meanwhile
            stands = self.commits.position()
        if stands is not None and holds(self.table.label, epoch.pipeline, stands, epoch):
            return Committed(stands, rows=0, already=True)
        restore(self.table, version, by=BY_REWIND)
        self.table.forget()  # the earlier version may have other columns
        if left is not None:
            left.delete(epoch.number)
        stands = self.commits.position()
        if self.tombstones is not None and stands is not None and stands.restored_to is not None:
            passed = with_retired_names(stands.offsets, stands.topics)
            self.tombstones.went_back(passed, max(stands.restored_to, goal or 0), epoch.number)
        there = [name for name in self.table.schema.names if name in self.columns]
        nothing = self.table.spark.table(self.table.sql).where("false").select(*map(identifier, there))
        return DeltaAppend(self.table, self.commits).write(epoch.of_table(stands), nothing)


def of_another(version: int, found: int | None, epoch: int | None, *, goal: int) -> str | None:
    """Why a version isn't the one that a rewind to the epoch ``goal`` needs, in words; None: it is. Pure.

    ``found``: the pipeline's last epoch at that version, by the table's history; ``epoch``: by the coordinator log.
    """
    if epoch is None:
        if found is None or found <= goal:
            return None
        return f"version {version}, before which the log has no rows of it, holds epoch {found} already"
    if found == epoch:
        return None
    told = f"is of epoch {found}" if found is not None else "isn't in its history any more"
    return f"version {version}, which the log has for epoch {epoch}, {told}"
