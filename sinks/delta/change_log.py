"""The change log: changes that are still to be merged into a table. An epoch is one small append, with its offsets.

The log is a Delta table in the folder ``_lakelock/changes`` under the table. Delta's readers and VACUUM ignore that
folder. Each row is a change, with the number of its epoch.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sinks.contract import Committed, Epoch, Folded, Position
from sinks.delta.commit import PipelineCommits
from sinks.delta.conflicts import done_or_left
from sinks.delta.fence import options
from sinks.delta.proof import proven
from sinks.delta.table import CHANGING, DeltaTable
from sinks.spark.schema_changes import differences
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

FOLDER = "_lakelock/changes"
EPOCH = "_epoch"
_RECORDS_PER_FILE = 100_000
_LAYOUT = CHANGING.with_properties(
    {
        # The epoch, which is the first column, is the only one by which a reader can skip files.
        "delta.dataSkippingNumIndexedCols": "1",
        # A checkpoint costs as much as several epochs. Readers mostly need the few commits since the last fold.
        "delta.checkpointInterval": "100",
    }
)


class ChangeLog:
    """The log of one table. Folding and reading it: ``sinks.delta.merge_on_read``."""

    def __init__(self, of: DeltaTable, *, pipeline: str, topics: Container[str]) -> None:
        """``of``: the table that the changes are for; ``pipeline``: its name; ``topics``: those that it reads."""
        self._of = of
        self._pipeline = pipeline
        self._topics = topics
        self._at: DeltaTable | None = None
        self._commits: PipelineCommits | None = None

    @contextmanager
    def looked_for(self) -> Iterator[None]:
        """Look for the log while the block runs. Its place and details are the same before and after the block; its
        position isn't, and is asked for afterwards, as is what this look failed at."""
        if self._commits is not None or self._of.detail() is None:  # without the table nobody knows the place
            yield
            return
        place = self.table
        pool = ThreadPoolExecutor(1, thread_name_prefix="lakelock-log")
        try:
            there = pool.submit(place.exists)
            yield
            wait([there])
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # who is being killed waits for no look

    def position(self) -> Position | None:
        """The position of the log; None: there is no log."""
        commits = self._find()
        return commits.position() if commits else None

    def append(self, epoch: Epoch, changes: DataFrame, folded: Folded) -> Committed:
        """Commit the epoch with its changes. ``folded``: the table, as this run has seen it last.

        Raises ValueError if the log wasn't started, and what ``sinks.delta.proof.Proof`` raises."""
        commits = self._find()
        if commits is None:
            raise ValueError("start the log first")
        rows = changes.selectExpr(f"{epoch.number}L AS {EPOCH}", *map(identifier, changes.columns))
        # A small epoch is one file, from however many partitions it was read.
        rows = rows.coalesce(1 + epoch.span // _RECORDS_PER_FILE)
        writer = rows.writeTo(self.table.sql)
        for name, value in options(self.table, epoch, folded).items():
            writer = writer.option(name, value)
        return proven(commits, epoch, writer.append)

    def start(self, epoch: Epoch, changes: DataFrame, by: str, folded: Folded) -> Committed:
        """Empty the log, or create it, with the number and offsets of an epoch that is in the table. It gets the
        columns of the changes, if it has others.

        ``changes``: rows with the columns of the changes; none of them is written. ``by``: the options that their
        meaning depends on, see ``sinks.delta.meaning``. ``folded``: the table with the epoch. Raises what
        ``sinks.delta.proof.Proof`` raises.
        """
        no_rows = changes.selectExpr(f"{epoch.number}L AS {EPOCH}", *map(identifier, changes.columns)).limit(0)
        # As the column's comment the options are in the same commit as the columns, and each version has its own.
        no_rows = no_rows.withMetadata(EPOCH, {"comment": by})
        table = self.table
        if self._find() is None:
            table.create(no_rows.schema, _LAYOUT)
        commits = self._find()
        assert commits is not None
        stands = commits.position()
        # The log of a table that was removed has taken numbers that the table in its place hasn't.
        number = max(epoch.number, stands.epoch + 1 if stands is not None else 0)
        anew = replace(epoch, number=number, expected=stands)
        return self._overwrite(anew, no_rows, folded, keeps_columns=self.takes(changes.schema, by))

    def empty(self, epoch: Epoch, folded: Folded) -> Committed:
        """Take out all changes, as the commit of an epoch without records. ``folded``: the table, with them.

        Raises what ``sinks.delta.proof.Proof`` raises.
        """
        no_rows = self.table.spark.sql(f"SELECT * FROM {self.table.sql}").limit(0)
        return self._overwrite(epoch, no_rows, folded)

    def _overwrite(self, epoch: Epoch, rows: DataFrame, folded: Folded, *, keeps_columns: bool = True) -> Committed:
        table, commits = self.table, self._find()
        assert commits is not None
        assert table.path is not None
        writer = rows.write.format("delta").mode("overwrite").options(**options(table, epoch, folded))
        if not keeps_columns:
            writer = writer.option("overwriteSchema", "true")
        return proven(commits, epoch, partial(writer.save, table.path))

    def rows_sql(
        self,
        after: int,
        until: int | None = None,
        *,
        version: int | None = None,
        names: Sequence[str] | None = None,
        first: int | None = None,
    ) -> str:
        """SQL, as in FROM, of the changes of epochs > ``after`` and <= ``until`` (None: no limit).

        ``version``: version of the log to read; None: the newest when the query runs. ``names``: of the changes'
        columns at this version, where they are known; None: they are asked for. ``first``: the query fails if the log
        has an epoch below, as this log never will.
        """
        bound = f" AND {EPOCH} <= {until}" if until is not None else ""
        which = f"{EPOCH} > {after}{bound}"
        if first is not None:
            anew = literal(
                f"The table {self._of.label} was made anew or set back since this view was made: its change log has an "
                f"epoch below {first}. Make the view again: lakelock view FILE --name VIEW --create."
            )
            fails = f"CASE WHEN {EPOCH} < {first} THEN CAST(raise_error({anew}) AS BOOLEAN) ELSE {which} END"
            # By statistics Delta skips files for the first condition alone, as it doesn't look into a CASE.
            which = f"({which} OR {EPOCH} < {first}) AND {fails}"
        at = f" VERSION AS OF {version}" if version is not None else ""
        changes = ", ".join(map(identifier, self.started_with(version)[0].names if names is None else names))
        return f"(SELECT {changes} FROM {self.table.sql}{at} WHERE {which})"

    def first_epoch(self, folded: int) -> int:
        """A number below which this log will have no epoch. ``folded``: one that the table has.

        The log of a table that was made anew begins with such numbers, as a table counts its epochs from 1. A view of
        the former table would leave them out, because its text says what is folded.
        """
        ((lowest,),) = self.table.spark.sql(f"SELECT min({EPOCH}) FROM {self.table.sql}").collect()
        return folded + 1 if lowest is None else min(folded + 1, int(lowest))

    def started_with(self, version: int | None = None) -> tuple[StructType, str]:
        """The columns and the options of the changes. Options are empty if an older release has started the log.

        ``version``: version of the log; None: the newest.
        """
        return _parted(self.table.spark.sql(f"SELECT * FROM {self.table.sql_at(version)}").schema)

    def takes(self, changes: StructType, options: str) -> bool:
        """Whether the log holds these changes as they are: it has the same columns, as wide types, the same options.

        Delta rounds what it appends to a narrower type, and a column that is missing on one side would be NULL there.
        """
        columns, kept = self.started_with()
        found = differences(columns, changes)
        lacks = {name.lower() for name in columns.names} - {name.lower() for name in changes.names}
        return kept == options and not (lacks or found.new or found.wider or found.others)

    def clean_up(self, until: int) -> None:
        """Delete the changes of epochs <= ``until``. These are whole files, so no file is rewritten.

        No commit says so. So these have to be epochs that the log's newest commit knows as folded: then a log that
        lacks them doesn't count for a table that lacks them too. If others' commits come first again and again, the
        changes stay for now.
        """
        done_or_left(lambda: self._delete(until), f"folded changes of {self._of.label!r}")

    def _delete(self, until: int) -> None:
        table = self.table
        table.spark.sql(f"DELETE FROM {table.sql} WHERE {EPOCH} <= {until}").collect()

    def _find(self) -> PipelineCommits | None:
        """The commits of the log. Looks until the log exists; None: it doesn't exist yet."""
        if self._commits is None and self.table.exists():
            self._commits = PipelineCommits(self.table, pipeline=self._pipeline, topics=self._topics)
        return self._commits

    @property
    def table(self) -> DeltaTable:
        """The Delta table of the log, which may not exist yet."""
        if self._at is None:
            self._at = DeltaTable(self._of.spark, path=f"{self._of.location.rstrip('/')}/{FOLDER}")
        return self._at


def _parted(schema: StructType) -> tuple[StructType, str]:
    from pyspark.sql.types import StructType

    columns = StructType([field for field in schema if field.name != EPOCH])
    return columns, str(schema[EPOCH].metadata.get("comment", ""))
