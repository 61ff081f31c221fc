"""Merged on read: an epoch is an append to a log of changes, which is folded into the table now and then.

The log and the table are two Delta tables, so no commit is of both. Each takes an epoch's number and offsets with its
rows, and the two numbers say which of them counts:

* *log > table*: the log goes on. The pipeline stands where the log does; what is unfolded are its epochs > the table's.
* *log = table*, with the same offsets: as before, and everything is folded.
* *log < table*, other offsets, no log, a table that was restored, or one without a commit of its own in its history
  (which was cleaned, and may hide a RESTORE; a run folds before): the log is of another time, and nothing in it counts.
  The pipeline stands where the table does. The next epoch is merged into the table, and then the log started with its
  number, empty. A crash in between leaves *log < table*, so the next epoch does the same.

*Folding* is the MERGE of the unfolded changes, with the log's number and offsets: after it log = table. It takes
nothing away from the log, so a crash on either side of its commit leaves a table that is right, as is the view. Of two
that fold at once Delta lets one through. An epoch that is appended meanwhile has a higher number, and stays unfolded.

*A table that is restored while a run appends* is noticed before the next append: whatever was committed to the table
since has to leave the log standing.

*Of two runs, one that merges on write* (its file was changed, and the old run still lives): it first takes the log's
next number with an epoch of no records, which fences the run that appends, folds, and leaves the table's number above
the log's. The other way round the first epoch is merged into the table, whose fence stops a run that merges there.

What is folded stays in the log for an hour, for readers that saw the table as it was before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Protocol

from sinks.contract import Committed, Epoch, Position
from sinks.delta.change_log import ChangeLog
from sinks.delta.commit import PipelineCommits, fenced
from sinks.delta.table import DeltaTable
from sinks.delta.values import digits_sql, value_sql
from sinks.errors import Fenced, PositionMismatch, TableReplaced
from sinks.spark.row_errors import problem
from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

logger = logging.getLogger("lakelock.delta")

_READERS_TAKE = timedelta(hours=1)
_BROADCAST_OFFSETS = 2_000_000


class Merging(Protocol):
    """The sink that merges reduced changes into the table."""

    def write(self, epoch: Epoch, rows: DataFrame, *, within: str = "") -> Committed:
        """``within``: SQL of what holds of every row ``t`` of the table that the rows are about."""
        ...

    def merged_sql(self, rows: str, keys: str, at: Position | None, *, hint: str) -> str:
        """A query for the rows that the table at this position (None: as it is) would have after the write.

        ``rows``: what comes after FROM for them; ``keys``: the same of their keys, in any number; ``hint``: how to join
        them.
        """
        ...


class Reduces(Protocol):
    """From changes to what is merged. Done to several epochs at once, it gives what their records together would."""

    def of(self, changes: DataFrame) -> DataFrame: ...

    def sql(self, changes: str) -> str: ...


@dataclass(frozen=True)
class Standing:
    """The table and its log, as they were found one after the other."""

    table: Position | None
    log: Position | None

    @property
    def goes_on(self) -> bool:
        """Whether the log counts."""
        if self.table is None or self.log is None:
            return False
        if self.table.source != "commit" or self.log.source != "commit":
            return False
        same = self.log.epoch == self.table.epoch and self.log.offsets == self.table.offsets
        return self.log.epoch > self.table.epoch or same

    @property
    def unfolded(self) -> int:
        """Epochs that are in the log only."""
        return self.log.epoch - self.table.epoch if self.goes_on and self.log and self.table else 0

    @property
    def position(self) -> Position | None:
        if self.table is None:
            return None
        if self.goes_on and self.log is not None:
            return replace(self.log, replaced=self.table.replaced)
        # Numbers only grow: those that the log has taken aren't free.
        return replace(self.table, epoch=max(self.table.epoch, self.log.epoch if self.log else 0))


class MergeOnRead:
    """Rows are changes, any number per key or group. The table's session must be the sink's own."""

    def __init__(
        self,
        of: DeltaTable,
        table: Merging,
        commits: PipelineCommits,
        log: ChangeLog,
        reduce: Reduces,
        *,
        key: Sequence[str],
        changes: Callable[[], StructType],
        pipeline: str,
    ) -> None:
        """``key``: columns of table and changes; ``changes``: the columns of the rows."""
        self._spark = of.spark
        self._of = of
        self._table = table
        self._commits = commits
        self._log = log
        self._reduce = reduce
        self._key = key
        self._changes = changes
        self._pipeline = pipeline
        self._goes_on = False
        self._folded: Position | None = None
        self._published = ""

    @property
    def appends(self) -> bool:
        return self._goes_on

    @property
    def folded(self) -> Position | None:
        """Where the table stood when it was last looked at: ``lakelock fold`` may have moved it since."""
        return self._folded

    def standing(self) -> Standing:
        # The table first: a fold in between makes less unfolded than there was, and a log that holds it all the same.
        table = self._commits.position()
        return Standing(table, self._log.position() if table is not None else None)

    def make_ready(self) -> None:
        """Before a run: the log takes what the table takes by now, and the view is there."""
        if self.position() is not None and self._goes_on:
            self._log.add_columns(self._changes())
            self.publish_view()

    def position(self) -> Position | None:
        found = self.standing()
        self._goes_on, self._folded = found.goes_on, found.table
        return found.position

    def unfolded(self) -> int:
        """Epochs that are in the log only. Of a table without one nothing is asked."""
        return self.standing().unfolded if self._log.table.exists() else 0

    def rehearse(self, rows: DataFrame, _: Epoch) -> None:
        """An append: what the table holds makes no difference before the fold."""

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        if self._goes_on:
            self._refuse_changed(epoch)
            return self._log.append(epoch, rows)
        committed = self._table.write(epoch, self._reduce.of(rows))
        # What stands, which may be an earlier try of this run that had read less.
        started = self._log.start(Epoch.that_left(committed.position, pipeline=self._pipeline), rows)
        self._goes_on, self._folded = True, committed.position
        self.publish_view()
        return replace(committed, position=started.position)

    def _refuse_changed(self, epoch: Epoch) -> None:
        if self._folded is None or not self._commits.committed_after(self._folded.version):
            return
        found = self.standing()
        stands = found.position
        if stands is not None and stands.epoch >= epoch.number and stands.owner != epoch.owner:
            raise fenced(epoch, self._of.label, owner=stands.owner, number=stands.epoch)
        if not found.goes_on or stands != epoch.expected:
            raise PositionMismatch(
                f"{self._of.label!r} was changed under the run: the log of changes stands no longer where epoch "
                f"{epoch.number} was planned to go on. Nothing of it was written.",
                hint="Run the pipeline again: it goes on from what the table now holds.",
            )
        self._folded = found.table

    def fold(self, owner: str) -> Committed | None:
        """Bring what is unfolded into the table. ``owner``: this run. None: nothing was, or another run has folded."""
        found = self.standing()
        if not found.unfolded or found.table is None or found.log is None:
            return None
        if found.table.replaced:
            raise TableReplaced.by(found.table.replaced, repr(self._of.label))
        try:
            return self._fold(found.table, found.log, owner, found.log.epoch)
        except Fenced:
            return None

    def close(self, owner: str) -> None:
        """Before a run that merges on write: what is unfolded is folded, and nobody can append to the log any more.

        Raises Fenced where another run folds or appends at the same time.
        """
        found = self.standing()
        stands = found.position
        if stands is None or found.table is None or found.log is None or found.log.epoch < found.table.epoch:
            return
        last = Epoch.of_no_records(stands, pipeline=self._pipeline, owner=owner)
        nothing = self._spark.sql(f"SELECT * FROM {self._log.rows_sql(last.number)}")
        if not found.goes_on:
            # The table was restored: were its next number one that the log has taken, the log would seem to go on.
            self._table.write(replace(last, expected=found.table), self._reduce.of(nothing))
            return
        log = self._log.append(last, nothing).position
        self._fold(found.table, log, owner, log.epoch + 1)
        # The view would take what is left for newer than what the table gets from now on.
        self._log.forget(log.epoch)

    def live(self) -> DataFrame:
        """The current rows, at the versions of table and log that are the newest now."""
        return self._spark.sql(self.live_sql())

    def live_sql(self) -> str:
        found = self.standing()
        table, log = found.table, found.log
        if table is None or table.version is None:
            return f"SELECT * FROM {self._of.sql}"
        if not found.unfolded or log is None:
            return f"SELECT * FROM {self._of.sql} VERSION AS OF {table.version}"
        changes = self._log.rows_sql(table.epoch, version=log.version)
        # Only so nothing of the table is moved; what is too large for that is joined as Spark thinks best.
        small = log.offsets.ahead_of(table.offsets) <= _BROADCAST_OFFSETS
        return self._merged_sql(changes, table, hint="/*+ BROADCAST(s) */" if small else "")

    def _merged_sql(self, changes: str, at: Position | None, *, hint: str = "") -> str:
        return self._table.merged_sql(f"({self._reduce.sql(changes)})", changes, at, hint=hint)

    def publish_view(self) -> None:
        """Make the view for the current rows, where the table has a name, anew after each fold.

        It reads both tables as they are: between a fold's commit and the new view it finds changes that are in the
        table already, and ignores them, as a MERGE does.
        """
        if self._of.live_view is None or not self._goes_on or self._folded is None:
            return
        query = self._merged_sql(self._log.rows_sql(self._folded.epoch), None)
        if query == self._published:
            return
        from pyspark.errors import PySparkException

        try:
            self._spark.sql(f"CREATE OR REPLACE VIEW {self._of.live_view} AS {query}")
        except PySparkException as error:
            logger.warning("the view %s can't be made: %s", self._of.live_view, problem(error))
        self._published = query

    def _fold(self, table: Position, log: Position, owner: str, number: int) -> Committed:
        changes = self._spark.sql(f"SELECT * FROM {self._log.rows_sql(table.epoch, log.epoch)}")
        epoch = replace(Epoch.that_left(log, pipeline=self._pipeline), number=number, owner=owner, expected=table)
        committed = self._table.write(epoch, self._reduce.of(changes), within=self._within(changes))
        self._folded = committed.position
        self.publish_view()
        self._forget()
        return committed

    def _within(self, changes: DataFrame) -> str:
        """SQL of a range of keys that all changes are in. Where new keys are higher than old ones, or the table is
        clustered by them, most of its files needn't be read; one query on the changes tells."""
        keys = [name for name in self._key if _has_exact_text(changes.schema[name].dataType)]
        kinds = [changes.schema[name].dataType for name in keys]
        ends = [
            digits_sql(f"{end}({identifier(name)})", kind)
            for name, kind in zip(keys, kinds, strict=True)
            for end in ("min", "max")
        ]
        found = changes.selectExpr(*ends).first() if keys else None
        ranges = []
        for index, (name, kind) in enumerate(zip(keys, kinds, strict=True)):
            least, greatest = (found[2 * index], found[2 * index + 1]) if found else (None, None)
            if least is not None and greatest is not None:
                column = f"t.{identifier(name)}"
                low, high = (value_sql(end, kind) for end in (least, greatest))
                ranges.append(f"({column} IS NULL OR {column} BETWEEN {low} AND {high})")
        return " AND ".join(ranges)

    def _forget(self) -> None:
        """What was folded longer ago than a reader takes."""
        before = datetime.now(timezone.utc) - _READERS_TAKE
        for commit, metadata in self._commits.lineage():
            if commit.timestamp < before:
                self._log.forget(metadata.epoch)
                return


def _has_exact_text(kind: DataType) -> bool:
    """Whether a value is what its text is cast to, in any session, and texts are compared byte by byte."""
    from pyspark.sql.types import ByteType, DateType, DecimalType, IntegerType, LongType, ShortType, StringType

    if isinstance(kind, StringType):
        return kind == StringType()
    return isinstance(kind, ByteType | ShortType | IntegerType | LongType | DecimalType | DateType)
