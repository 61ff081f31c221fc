"""Merge on read: an epoch is appended to a change log. From time to time the log is folded into the table.

The log and the table are two Delta tables, which can't share one commit. Each commit to either has the number and the
offsets of its epoch. Comparing the two numbers tells whether the log counts:

* *log > table*: the log counts. The pipeline's position is the log's. Epochs of the log that are higher than the
  table's are unfolded.
* *log = table*, with the same offsets: the log counts, and everything is folded.
* Otherwise nothing in the log counts, and the pipeline's position is the table's. This is so if *log < table*, if the
  offsets differ, if there is no log or somebody has replaced it, if the table was restored, or if the table's history
  has no commit of the pipeline (a cleaned history may hide a RESTORE; a run folds before that). Each commit of the log
  also says of which table it is (Delta's id), and an epoch that this table had by then. So the log of a table that was
  removed doesn't count for the one in its place, nor does a log for a table whose files were set back. The next epoch
  is then merged into the table, and the log is started again, empty, with that epoch's number. A crash between the two
  leaves *log < table*, so the next epoch does the same.

*If the table is restored while a run appends*, the run notices before its next append: it checks that every commit to
the table since its last look leaves the log counting.

*If a second run merges on write* (the configuration was changed, and the old run is still alive), it first takes the
log's next number with an epoch without records. This fences the appending run. Then it folds, which leaves the table's
number above the log's, and empties the log with the number between them. The other way round, a run that starts to
append merges its first epoch into the table, whose fence stops the run that merges on write.

An epoch means what it meant when it was appended, whatever the pipeline file or a registry says now: see
``sinks.delta.meaning``.

Folded changes stay in the log for an hour, for readers that opened the table before the fold, and until the log's
newest commit says that they are folded. So a log that counts has every epoch that the table lacks: see the law in
tests/unit/sinks/delta/test_standing.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from sinks.contract import Committed, Epoch, Folded, Position
from sinks.delta.change_log import ChangeLog
from sinks.delta.commit import PipelineCommits
from sinks.delta.fence import fenced
from sinks.delta.key_ranges import range_of
from sinks.delta.meaning import Kept, Meaning
from sinks.delta.standing import Standing, settled
from sinks.delta.table import DeltaTable
from sinks.errors import Fenced, PositionMismatch, TableReplaced
from sinks.spark.row_errors import problem
from sinks.spark.types import no_rows, sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

logger = logging.getLogger("lakelock.delta")

_READERS_TAKE = timedelta(hours=1)
_BROADCAST_OFFSETS = 2_000_000
"""Records (by their offsets) up to which the unfolded changes are broadcast to join them with the table."""


class MergeOnRead:
    """The sink that merges on read. Its rows are changes, any number per key or group.

    The table's session must be the sink's own.
    """

    def __init__(
        self,
        of: DeltaTable,
        commits: PipelineCommits,
        log: ChangeLog,
        now: Callable[[], Meaning],
        kept: Kept,
        *,
        pipeline: str,
    ) -> None:
        """``of``: the table; ``commits``: the table's commits; ``now``: what this run's changes mean, which reading the
        current rows needn't know; ``kept``: what those of the log do."""
        self._spark = of.spark
        self._of = of
        self._commits = commits
        self._log = log
        self.now = now
        self._kept = kept
        self._pipeline = pipeline
        self._goes_on = False
        self._fits = True
        self._given_up = 0
        self._folded: Position | None = None
        self._published = ""
        self._taken: StructType | None = None

    @property
    def appends(self) -> bool:
        """Whether the next epoch is appended to the log. False: it is merged into the table."""
        return self._goes_on and self._fits

    @property
    def folded(self) -> Position | None:
        """The table's position when it was last read. ``lakelock fold`` may have moved it since."""
        return self._folded

    @property
    def given_up(self) -> int:
        """Number of epochs of the log that no longer count, and that the table lacks, when it was last read."""
        return self._given_up

    @property
    def table_changed(self) -> bool:
        """Whether somebody may have committed to the table since this run looked last. Needs no Spark job."""
        return self._folded is not None and self._commits.committed_after(self._folded.version)

    def standing(self) -> Standing:
        """The positions of the table and of its log."""
        return settled(self._read)

    def _read(self) -> Standing:
        with self._log.looked_for():
            table = self._commits.position()
        return Standing(table, self._log.position() if table is not None else None)

    def make_ready(self, owner: str) -> None:
        """Before a run: fold what was appended with other columns or options, and publish the view. The next epoch is
        then merged into the table, and starts the log again.

        ``owner``: id of this run. Raises what ``fold`` raises.
        """
        if self.position() is None or not self._goes_on:
            return
        self._fits = self._log.takes(self.now().columns(), self.now().options())
        if self._fits:
            self.publish_view()
        else:
            self.fold(owner)

    def position(self) -> Position | None:
        """The pipeline's position, read from table and log; None: no epoch was committed."""
        standing = self.standing()
        self._goes_on, self._folded, self._given_up = standing.goes_on, standing.table, standing.given_up
        return standing.position

    def left_behind(self) -> int:
        """Number of the last epoch in the log of a table that was removed without it. For a table without epochs."""
        if self._of.path is None and self._of.detail() is None:
            return 0  # nobody knows where it will lie
        left = self._log.position()
        return left.epoch if left is not None else 0

    @property
    def started(self) -> bool:
        """Whether there is a log. Reads no position."""
        return self._log.table.exists()

    def rehearse(self, rows: DataFrame, epoch: Epoch) -> None:
        """Fail if the epoch can't be merged into the table. An append doesn't depend on the table's rows."""
        if not self.appends:
            self.now().table.rehearse(self.now().reduce.of(rows), epoch)

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        """Append the epoch to the log, or merge it into the table if the log doesn't count.

        If the log doesn't take the rows as they are, it is folded, and starts again after this epoch. Raises Fenced or
        PositionMismatch if the table was changed under the run, and what ``sinks.delta.proof.Proof`` raises.
        """
        if self._goes_on:
            self._refuse_changed(epoch)
            if self._log_takes(rows):
                return self._log.append(epoch, rows, _seen(self._folded))
            epoch = self._after_a_fold(epoch)
        committed = self.now().table.write(epoch, self.now().reduce.of(rows))
        # The position that stands: an earlier attempt of this run may have committed it, having read less.
        left = Epoch.that_left(committed.position, pipeline=self._pipeline)
        started = self._log.start(left, rows, self.now().options(), _seen(committed.position))
        self._goes_on, self._fits, self._folded = True, True, committed.position
        self.publish_view()
        return replace(committed, position=started.position)

    def _log_takes(self, rows: DataFrame) -> bool:
        """Whether the log holds the rows as they are. Asks once for each schema."""
        if self._taken != rows.schema:
            if not self._log.takes(rows.schema, self.now().options()):
                return False
            self._taken = rows.schema
        return True

    def _after_a_fold(self, epoch: Epoch) -> Epoch:
        """Fold what is unfolded. Returns the epoch as one that follows the table's last one, not the log's."""
        self.fold(epoch.owner)
        standing = self.standing()
        if standing.unfolded or standing.table is None or standing.position != epoch.expected:
            raise self._changed(epoch)
        return replace(epoch, expected=standing.table)

    def _changed(self, epoch: Epoch) -> PositionMismatch:
        return PositionMismatch(
            f"{self._of.label!r} was changed under the run: the change log stands no longer where epoch "
            f"{epoch.number} was planned to go on. Nothing of it was written.",
            hint="Run the pipeline again: it goes on from what the table now holds.",
        )

    def _refuse_changed(self, epoch: Epoch) -> None:
        if not self.table_changed:
            return
        standing = self.standing()
        position = standing.position
        if position is not None and position.epoch >= epoch.number and position.owner != epoch.owner:
            raise fenced(epoch, self._of.label, owner=position.owner, number=position.epoch)
        if not standing.goes_on or position != epoch.expected:
            raise self._changed(epoch)
        self._folded = standing.table

    def fold(self, owner: str) -> Committed | None:
        """Merge the unfolded changes into the table.

        This is the rule "fold": the table takes the number and offsets of the change log in the commit of the merged
        rows, so each change counts once, in the log or in the table. An epoch that is appended meanwhile has a higher
        number and stays unfolded. If two runs fold at once, Delta lets one commit through.

        ====================  ==========================================================================================
        crash                 what is left
        ====================  ==========================================================================================
        before the commit     Log > table: the log's changes are unfolded, and readers merge them as they read.
        after the commit      Log = table. Its changes are still in the log, and nobody reads them, but for readers that
                              opened the table before the fold.
        after the cleaning    The same, without the changes that were folded more than an hour ago.
        ====================  ==========================================================================================

        Tests: tests/integration/test_merge_on_read.py, ``test_killed_around_a_fold`` and
        ``test_two_that_fold_at_once_fold_once``.

        Raises TableReplaced if somebody replaced the table's rows, and SchemaMismatch if the table can't take the
        log's changes any more.

        ``owner``: id of this run. Returns None if nothing was unfolded, or if another run has folded it.
        """
        standing = self.standing()
        if not standing.unfolded or standing.table is None or standing.log is None:
            return None
        if standing.table.replaced:
            raise TableReplaced.by(standing.table.replaced, repr(self._of.label))
        try:
            return self._fold(standing.table, standing.log, owner, standing.log.epoch)
        except Fenced:
            return None

    def take_back(self, epoch: Epoch) -> None:
        """Fold what was appended before the epoch, the log's last one, and empty the log: the pipeline then stands
        where the epoch was planned. A crash before the fold's commit leaves the epoch in the log; after it the log
        doesn't count. Raises PositionMismatch if others have gone on from the epoch, and what ``fold`` raises.
        """
        standing = self.standing()
        table, log, before = standing.table, standing.log, epoch.expected
        ours = log is not None and (log.epoch, log.owner) == (epoch.number, epoch.owner)
        if table is None or log is None or before is None or not (ours and standing.unfolded):
            raise PositionMismatch("Another run has gone on from it, or has folded it.")
        folded = self._fold(table, before, epoch.owner, log.epoch + 2)  # above that with which the log is emptied
        self._empty(log, folded.position, epoch.owner)

    def close(self, owner: str) -> None:
        """Before a run that merges on write: fold what is unfolded, and fence every run that appends to the log.

        ``owner``: id of this run. Raises Fenced if another run folds or appends at the same time.
        """
        standing = self.standing()
        position, table, log = standing.position, standing.table, standing.log
        if position is None or table is None or log is None or log.replaced:
            return  # what another pipeline has put into the log's place is its own
        if log.epoch < table.epoch:
            # A crash may have come before the log was emptied below, or before an epoch's start of the log.
            self._empty(log, table, owner)
            return
        last = Epoch.of_no_records(position, pipeline=self._pipeline, owner=owner)
        if not standing.goes_on:
            # The table was restored. If its next number were one that the log has taken, or takes now, the log would
            # seem to count.
            above = replace(last, number=last.number + 1, expected=table)
            self._empty(log, self.now().table.write(above, self._nothing()).position, owner)
            return
        no_changes = self._spark.sql(f"SELECT * FROM {self._log.rows_sql(last.number)}")
        log = self._log.append(last, no_changes, _seen(table)).position
        number = log.epoch + 2  # above that with which the log is emptied
        if standing.unfolded:
            committed = self._fold(table, log, owner, number)
        else:  # whatever its changes meant: none is left to be merged
            committed = self.now().table.write(self._folding(table, log, owner, number), self._nothing())
        self._empty(log, committed.position, owner)

    def _empty(self, log: Position, table: Position, owner: str) -> None:
        """Take all changes out of a log that counts no more. The view would take those that stay for newer than what
        the table gets from now on."""
        if log.folded is not None and log.folded.epoch >= log.epoch:
            return  # nothing was appended since it was emptied
        self._log.empty(Epoch.of_no_records(log, pipeline=self._pipeline, owner=owner), _seen(table))

    def live(self) -> DataFrame:
        """The current rows: the table's with the unfolded changes merged. Reads the present versions of both."""
        return self._spark.sql(self.live_sql())

    def live_sql(self) -> str:
        """A query for the current rows."""
        standing = self.standing()
        table, log = standing.table, standing.log
        if table is None or table.version is None:
            return self._of.fixed_sql()
        if not standing.unfolded or log is None:
            return f"SELECT * FROM {self._of.sql} VERSION AS OF {table.version}"
        columns, options = self._log.started_with(log.version)
        changes = self._log.rows_sql(table.epoch, version=log.version, names=columns.names)
        # A broadcast spares the shuffle of the table. For more changes Spark chooses the join.
        small = log.offsets.ahead_of(table.offsets) <= _BROADCAST_OFFSETS
        return _merged_sql(self._kept(columns, options), changes, table, hint="/*+ BROADCAST(s) */" if small else "")

    def _then(self) -> Meaning:
        return self._kept(*self._log.started_with())

    def view_sql(self, name: str) -> str | None:
        """The statement that makes a view of the current rows; ``name``: SQL of its name. None: the log doesn't count.

        The view reads the newest versions of table and log. It doesn't know what was folded since it was made, and it
        needn't:

        * Spark fixes the versions in the order in which the query names the tables: tombstones, table, log. So the log
          is the newest. It holds every change that this version of the table lacks, and all newer changes of the keys.
        * A change that is in the table too is ignored by its order, as a MERGE ignores a replay. A delete that was
          folded doesn't come back: the log holds the delete as well, as long as it holds an update before it, because
          changes are removed from the log in the order of their epochs.

        Tests: tests/integration/test_view.py, ``test_whatever_versions_a_view_meets_its_rows_are_those_of_the_log``.
        """
        table = self.position() and self._folded
        if table is None or not self._goes_on:
            return None
        changes = self._log.rows_sql(table.epoch)
        then = self._then()
        then.table.make_ready_for_views(f"({then.reduce.sql(changes)})")
        return self._view_sql(name, table.epoch, self._log.first_epoch(table.epoch))

    def _view_sql(self, name: str, folded: int, first: int | None = None) -> str:
        """``folded``: an epoch that the table has; the view is faster the higher it is. ``first``: see ``rows_sql``."""
        then = self._then()
        changes = then.table.not_merged_sql(self._log.rows_sql(folded, first=first))
        return f"CREATE OR REPLACE VIEW {name} AS\n{_merged_sql(then, changes, None)}"

    def publish_view(self) -> None:
        """Create or replace the view beside a table with a name. Call it after each fold, which keeps the view fast.

        If the view can't be created, this is logged.
        """
        if self._of.live_view is None or not self._goes_on or self._folded is None:
            return
        statement = self._view_sql(self._of.live_view, self._folded.epoch)
        if statement == self._published:
            return
        from pyspark.errors import PySparkException

        try:
            self._spark.sql(statement)
        except PySparkException as error:
            logger.warning("the view %s can't be made: %s", self._of.live_view, problem(error))
        self._published = statement

    def _fold(self, table: Position, log: Position, owner: str, number: int) -> Committed:
        then = self._then()
        changes = self._spark.sql(f"SELECT * FROM {self._log.rows_sql(table.epoch, log.epoch)}")
        epoch = self._folding(table, log, owner, number)
        committed = then.table.write(epoch, then.reduce.of(changes), within=range_of(changes, then.key))
        self._folded = committed.position
        self.publish_view()
        self._forget(log)
        return committed

    def _folding(self, table: Position, log: Position, owner: str, number: int) -> Epoch:
        return replace(Epoch.that_left(log, pipeline=self._pipeline), number=number, owner=owner, expected=table)

    def _nothing(self) -> DataFrame:
        columns = {column.name: sql_type(column.dataType) for column in self.now().columns()}
        return self.now().reduce.of(no_rows(self._spark, columns))

    def _forget(self, log: Position) -> None:
        """Delete the changes that were folded longer ago than a reader takes, as far as the log knows it.

        ``log``: a position of the log.
        """
        before = datetime.now(timezone.utc) - _READERS_TAKE
        for commit, metadata in self._commits.lineage():
            if commit.timestamp < before:
                self._log.clean_up(metadata.epoch if log.folded is None else min(metadata.epoch, log.folded.epoch))
                return


def _seen(table: Position | None) -> Folded:
    assert table is not None
    return Folded(table.table, table.epoch)


def _merged_sql(meaning: Meaning, changes: str, at: Position | None, *, hint: str = "") -> str:
    return meaning.table.merged_sql(f"({meaning.reduce.sql(changes)})", changes, at, hint=hint)
