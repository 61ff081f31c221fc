"""One Delta commit holds an epoch's rows, next offsets and number: how it is made, proven, and found again.

The steps, and why their order is safe:

1. *Check the expected position.* Nobody has committed an epoch, or restored the table, since the epoch was planned.
   Mostly the table has no newer version, which is checked first.
2. *Commit.* One Delta transaction has the rows, ``txn`` (pipeline, epoch) and the metadata with the offsets: the rule
   *fence*, argued in :func:`sinks.delta.fence.options`.
3. *Prove the commit* from the table's history: the rule *proof*, argued in :class:`sinks.delta.proof.Proof`.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from sinks.contract import Committed, Epoch, Position, describe
from sinks.delta.closed_windows import clock_of_rows
from sinks.delta.delta_log import DeltaLog
from sinks.delta.fence import fenced
from sinks.delta.metadata import CommitMetadata
from sinks.delta.past_commits import PastCommits
from sinks.delta.position import (
    Cloned,
    Commit,
    FromRows,
    Own,
    Standing,
    Unwritten,
    another_table,
    changes_rows,
    find,
    from_rows,
    how_replaced,
    ids_of_rows,
    in_words,
    lineage,
    replaces,
    taken_in,
    undid_offsets,
)
from sinks.delta.table import DeltaTable
from sinks.delta.taken_over import cleaned_away, refuse_gone_back
from sinks.delta.undone import Undone, undone
from sinks.errors import NotADeltaTable, PositionMismatch, TableReplaced

_READ_AGAIN_SECONDS = 60.0
_LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)


class PipelineCommits:
    """The commits of one pipeline in one table."""

    def __init__(
        self,
        table: DeltaTable,
        *,
        pipeline: str,
        topics: Container[str],
        stops_at_changes: bool = False,
        former: str | None = None,
        allowed_lateness: timedelta | None = None,
    ) -> None:
        """``topics``: topics that the pipeline reads; ``stops_at_changes``: rows that somebody else has deleted or
        changed count as replaced; ``former``: see `taken_over`; ``allowed_lateness``: of the table's windows."""
        self._table = table
        self._pipeline = pipeline
        self._former = former
        self._allowed_lateness = allowed_lateness
        self.topics = topics
        self._stops_at_changes = stops_at_changes
        self._log_retention = timedelta(days=30)
        self._known: tuple[Position, float] | None = None
        """The position in the table's newest version, and when it was read (monotonic clock, seconds)."""

    @property
    def label(self) -> str:
        """The table's name or path, for messages."""
        return self._table.label

    def position(self) -> Position | None:
        """The pipeline's position, read from the table; None: there is no table, or no epoch was committed to it.
        Raises TableReplaced if the table's folder holds another table by now."""
        detail, log = self._table.detail(), self._table.log
        if detail is None or log is None:
            return None
        self._log_retention = detail.log_retention
        if self._known is None and self._table.is_new:
            return None
        if self._known is not None:
            known, read_at = self._known
            # The position is the same as long as nothing was committed to the table.
            if not self.committed_after(known.version) and time.monotonic() - read_at < _READ_AGAIN_SECONDS:
                return known
        position = self._read(log)
        self._known = (position, time.monotonic()) if position is not None else None
        return position

    def refuse_another(self) -> None:
        """Raises TableReplaced if the folder holds another table by now, or none."""
        before = self._table.id
        self._known = None
        self._table.forget()
        if self._table.id != before:
            raise TableReplaced.by(another_table(before, self._table.id), repr(self._table.label))

    def _read(self, log: DeltaLog) -> Position | None:
        history = PastCommits(self._table)
        newest = history.newest().version
        standing = self._standing(log, history, newest)
        if isinstance(standing, Own) and standing.metadata.table != self._table.id:
            self._table.forget()  # a RESTORE brings back the old id
        how, replaced, went_back = "commit", how_replaced(standing, self._table.id), False
        if isinstance(standing, Cloned):
            # A clone over what the table held goes back to its source's epoch, as a RESTORE does.
            over, went_back = standing.over, standing.restored or standing.over is not None
            standing, how = self._in_source(standing), "cloned"
            if over is not None and isinstance(standing, FromRows):
                replaced = replaced or in_words(over)
        if isinstance(standing, FromRows):
            rows = self._table.coordinates(self.topics)
            from_these = from_rows(rows, standing)
            if from_these is None:
                epoch = log.highest_txn(self._pipeline)
                if not epoch and self._former is not None and log.highest_txn(self._former):
                    raise cleaned_away(self._table.label, self._pipeline, self._former)
                if not rows and not epoch:
                    return None
                # Rows that were replaced before the pipeline's first epoch were never its own.
                replaced = replaced if epoch else ""
                return Position(
                    epoch, rows, version=newest, refresh_after=_LONG_AGO, source="rows", replaced=replaced,
                    went_back=epoch > 0 and (standing.restored or went_back),
                    of_others={} if epoch else self._ids_of_rows(log, history, rows.topics),
                    clock=clock_of_rows(self._table, self.topics, self._allowed_lateness),
                )  # fmt: skip
            standing = from_these
        if isinstance(standing, Unwritten):
            return self._before(standing.first, newest, log.highest_txn(self._pipeline))
        if standing.metadata.pipeline != self._pipeline and not standing.restored and how == "commit":
            refuse_gone_back(self._table.label, standing.metadata, log.highest_txn(self._pipeline), self._pipeline)
        epoch = standing.metadata.epoch
        restored_to = epoch if went_back or (standing.restored and how == "commit") else None
        if standing.restored or how == "cloned":
            epoch = max(epoch, log.highest_txn(self._pipeline))
            how = "restored" if how == "commit" else how
        found_at = self._position(standing.commit, standing.metadata)
        of_group = restored_to is not None and found_at.delivery != "transactional"
        undid = of_group and undid_offsets(newest, history.at, pipeline=self._pipeline, restored_to=found_at.epoch)
        found_at = replace(found_at, epoch=epoch, version=newest, source=how, undid_offsets=undid)
        return replace(found_at, restored_to=restored_to, replaced=replaced)

    def _before(self, first: Own, newest: int, highest: int) -> Position:
        """The position before the pipeline's first epoch, when the numbers up to ``highest`` are taken."""
        began = first.metadata.position
        before = Position(highest, began.since, owner=began.owner)
        return replace(
            self._position(first.commit, CommitMetadata(self._pipeline, before)),
            topics=began.topics,
            since=began.since,
            version=newest,
            source="restored",
            restored_to=0,
        )

    def lineage(self) -> Iterator[tuple[Commit, CommitMetadata]]:
        """The pipeline's commits that led to the table's rows, newest first, as far back as the history goes."""
        if self._table.detail() is not None:
            history = PastCommits(self._table)
            yield from lineage(history.newest().version, history.at, pipeline=self._pipeline)

    def undone(self, target: int) -> Undone:
        """What a RESTORE to the version ``target`` takes back that isn't of this pipeline."""
        history = PastCommits(self._table)
        return undone(history.newest().version, target, history.at, pipeline=self._pipeline)

    def taken_in_since(self, restored: Position) -> set[str]:
        """The topics that were taken in, as recreated ones, after the epoch that a RESTORE went back to."""
        if restored.restored_to is None or self._table.detail() is None:
            return set()
        history = PastCommits(self._table)
        return taken_in(
            history.newest().version,
            history.at,
            pipeline=self._pipeline,
            restored_to=restored.restored_to,
            topics=restored.topics,
        )

    def is_own(self, version: int, metadata: CommitMetadata) -> bool:
        """Whether the commit of this version really is the epoch's: its user metadata alone can be a stale copy."""
        log = self._table.log
        return log is not None and log.holds_txn(version, self._pipeline, metadata.epoch)

    def before_first(self, version: int) -> bool:
        """Whether the table, at a version, was restored to before the pipeline's first epoch."""
        log = self._table.log
        return log is not None and isinstance(self._standing(log, PastCommits(self._table), version), Unwritten)

    def at(self, version: int) -> Own | None:
        """The commit that tells the pipeline's position at a version of the table; None: no commit does."""
        log, history = self._table.log, PastCommits(self._table)
        if log is None or not 0 <= version <= history.newest().version:
            return None
        standing = self._standing(log, history, version)
        return standing if isinstance(standing, Own) else None

    def committed_after(self, version: int | None) -> bool:
        """Whether the table may have commits newer than ``version``. Needs no Spark job.

        A catalog may keep the newest commits elsewhere for a while. Then this returns False too early, and the commit
        itself stops the run. Raises TableReplaced if this version is gone because its table is gone.
        """
        log = self._table.log
        if version is None or log is None:
            return True
        there = log.among(version, version + 1)
        if version not in there:
            self.refuse_another()  # if it is the same table, Delta has cleaned its log up to here
            return True
        return version + 1 in there

    def _base(self, epoch: Epoch) -> int | None:
        """The table's version that the epoch was planned on; None: unknown."""
        if epoch.expected is not None:
            return epoch.expected.version
        return 0 if self._table.was_missing else None

    def already(self, epoch: Epoch) -> Committed | None:
        """The commit of this epoch that this run has made before; None: there is none.

        Raises Fenced, PositionMismatch or TableReplaced if the epoch can't follow what was committed since its plan.
        """
        base = self._base(epoch)
        if not self.committed_after(base):
            return None
        for commit in PastCommits(self._table).after(base):
            metadata = self._own(commit)
            if metadata is not None:
                if metadata.owner != epoch.owner:
                    raise fenced(epoch, self._table.label, owner=metadata.owner, number=metadata.epoch)
                if metadata.epoch == epoch.number:
                    return self._committed(commit, metadata, already=True)
                raise PositionMismatch(
                    f"expected {describe(epoch.expected)} in {self._table.label!r}, found "
                    f"{metadata.position.describe()}"
                )
            if base is not None and self._stops(commit):
                raise TableReplaced.by(in_words(commit), repr(self._table.label))
            if base is not None and commit.operation in ("RESTORE", "CLONE"):
                raise PositionMismatch(
                    f"expected {describe(epoch.expected)} in {self._table.label!r}, found a {commit.operation} at "
                    f"version {commit.version}",
                    hint="Run the pipeline again: it goes on from what the table now holds.",
                )
        return None

    def stands(self, epoch: Epoch) -> bool:
        """Whether the history since the epoch's plan has its own run's commit of it, whatever came after."""
        base = self._base(epoch)
        for commit in PastCommits(self._table).after(-1 if base is None else base):
            metadata = self._own(commit)
            if metadata is not None and (metadata.owner, metadata.epoch) == (epoch.owner, epoch.number):
                return True
        return False

    def find(self, epoch: Epoch) -> Committed | None:
        """The commit of this epoch; None: there is none. Raises Fenced if another run has made it."""
        base = self._base(epoch)
        landed = self._next(base, epoch) if base is not None else None
        if landed is not None:
            return landed
        history = PastCommits(self._table)
        for commit in history.after(base):
            metadata = CommitMetadata.from_json(commit.user_metadata, pipeline=self._pipeline)
            if metadata is None or metadata.epoch < epoch.number:
                continue
            if metadata.owner == epoch.owner and metadata.epoch == epoch.number:
                # A RESTORE or an overwrite may have slipped in while the epoch was being written.
                at = find(commit.version, history.at, lambda *_: True, pipeline=self._pipeline, stops=self._stops)
                if isinstance(at, Own) and at.replaced is not None:
                    raise TableReplaced.by(in_words(at.replaced), repr(self._table.label))
                return self._committed(commit, metadata)
            if metadata.owner != epoch.owner and self._own(commit) is not None:
                raise fenced(epoch, self._table.label, owner=metadata.owner, number=metadata.epoch)
        return None

    def _next(self, base: int, epoch: Epoch) -> Committed | None:
        """The commit of this epoch, if it is the one after ``base``. Mostly it is: then nothing came in between, and
        the rest of the history needn't be read."""
        log = self._table.log
        commit = log.commit_with_txn(base + 1, self._pipeline, epoch.number) if log else None
        if commit is None:
            return None
        metadata = CommitMetadata.from_json(commit.user_metadata, pipeline=self._pipeline)
        if metadata is None or (metadata.owner, metadata.epoch) != (epoch.owner, epoch.number):
            return None
        return self._committed(commit, metadata)

    def _own(self, commit: Commit) -> CommitMetadata | None:
        """The commit's metadata, if it really is an epoch's. A copy of metadata in somebody else's commit isn't."""
        metadata = CommitMetadata.from_json(commit.user_metadata, pipeline=self._pipeline)
        return metadata if metadata is not None and self.is_own(commit.version, metadata) else None

    def _standing(self, log: DeltaLog, history: PastCommits, version: int) -> Standing:
        return find(
            version,
            history.at,
            lambda at, metadata: log.holds_txn(at, metadata.pipeline, metadata.epoch),
            pipeline=self._pipeline,
            former=self._former,
            stops=self._stops,
        )

    def _ids_of_rows(self, log: DeltaLog, history: PastCommits, topics: Container[str]) -> dict[str, str]:
        return ids_of_rows(
            history.newest().version,
            history.at,
            lambda at, metadata: log.holds_txn(at, metadata.pipeline, metadata.epoch),
            topics,
        )

    def _stops(self, commit: Commit) -> bool:
        return replaces(commit) or (self._stops_at_changes and changes_rows(commit))

    def _in_source(self, clone: Cloned) -> Own | FromRows | Unwritten:
        """The clone's position from its source's history. From the clone's rows, if that history is gone, or if another
        table has the source's name by now: its version came after the clone, or its offsets don't reach the rows."""
        from pyspark.errors import PySparkException

        standing: Standing = clone
        try:
            while isinstance(standing, Cloned):
                table = self._source(standing)
                if table is None or table.log is None:
                    return FromRows()
                standing = self._standing(table.log, PastCommits(table), standing.version)
        except (PySparkException, NotADeltaTable):
            return FromRows()
        if isinstance(standing, Own) and not standing.metadata.offsets.reaches(self._table.coordinates(self.topics)):
            return FromRows()
        return standing

    def _source(self, clone: Cloned) -> DeltaTable | None:
        """The table that was cloned. None: its history is gone, or another table has its name by now."""
        path = clone.source[len("delta.`") : -1] if clone.source.startswith("delta.`") else None
        table = DeltaTable(self._table.spark, path=path, name=None if path else clone.source)
        version = PastCommits(table).at(clone.version) if table.log is not None else None
        return table if version is not None and version.timestamp <= clone.at else None

    def cloned_from(self) -> tuple[Sequence[DeltaTable], int | None] | None:
        """The tables whose clone this is, and a clone's source in turn, up to the pipeline's last commit, and the epoch
        of that; None: only the rows tell. No tables: it has committed to this table itself. None: not all of them can
        be found."""
        from pyspark.errors import PySparkException

        table: DeltaTable | None = self._table
        sources: list[DeltaTable] = []
        at: int | None = None
        try:
            while table is not None and table.log is not None:
                history = PastCommits(table)
                standing = self._standing(table.log, history, history.newest().version if at is None else at)
                if not isinstance(standing, Cloned):
                    return sources, standing.metadata.epoch if isinstance(standing, Own) else None
                table, at = self._source(standing), standing.version
                sources += [table] if table is not None else []
        except (PySparkException, NotADeltaTable):
            pass
        return None

    def _committed(self, commit: Commit, metadata: CommitMetadata, *, already: bool = False) -> Committed:
        position = self._position(commit, metadata)
        self._known = position, time.monotonic()
        written = commit.written
        return Committed(
            position, written.rows, already, bytes=written.bytes, unchanged=written.unchanged, changed=written.changed
        )

    def _position(self, commit: Commit, metadata: CommitMetadata) -> Position:
        own = metadata.pipeline == self._pipeline
        return replace(
            metadata.position,
            version=commit.version,
            table=metadata.table,
            folded=metadata.folded,
            committed_at=commit.timestamp,
            refresh_after=commit.timestamp + self._log_retention / 2 if own else _LONG_AGO,
        )


def without_position(epoch: Epoch, rows: int | None) -> Committed:
    """The result of a write that keeps no offsets; ``rows``: number of rows written, None: unknown.

    Only the consumer group knows the position of such a pipeline.
    """
    return Committed(Position(epoch.number, epoch.offsets, owner=epoch.owner, delivery=epoch.delivery), rows)
