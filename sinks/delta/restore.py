"""Rewinds a table: finds the version to go back to, and restores it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from sinks.contract import Position
from sinks.delta.fence import USER_METADATA
from sinks.delta.metadata import CommitMetadata
from sinks.delta.position import Commit
from sinks.delta.refusals import refused
from sinks.delta.table import DeltaTable
from sinks.errors import SinkError
from sinks.offsets import Offsets
from sinks.spark.row_errors import problem
from sinks.spark.settings import with_settings

_REWOUND = "lakelock.rewound"
BY_REWIND = '{"restored_by": "lakelock rewind"}'
"""The metadata of a RESTORE that a rewind made: JSON, as in the other commits. It has no epoch, and no position."""


@dataclass(frozen=True)
class Target:
    """A version of the table, and the pipeline's position at that version. None: before the first epoch."""

    version: int | None
    """None: of several tables, each of which has another one."""
    stood: Position | None

    @property
    def epoch(self) -> int:
        """The pipeline's epoch at that version. 0: before the first epoch."""
        return self.stood.epoch if self.stood else 0


Commits = Iterable[tuple[Commit, CommitMetadata]]
"""The pipeline's commits, newest first."""
IsOwn = Callable[[int, CommitMetadata], bool]
"""Whether the commit of a version really committed the epoch. Its metadata alone may be a copy."""
BeforeFirst = Callable[[int], bool]
"""Whether the table, at a version, was restored to before the pipeline's first epoch."""


def _unknown(_: int) -> bool:
    return False


def before_event_time(
    commits: Commits, time: datetime, column: str, is_own: IsOwn, before_first: BeforeFirst = _unknown
) -> Target | None:
    """The newest version without a record at or after an event time. None if the history doesn't reach back that far.

    Compares the highest event time of each partition up to a version, which never falls. The table goes back as far as
    the partition that must go furthest. A version doesn't qualify if its commit doesn't know the time of every row by
    this column, because these rows may have any time. Pure.
    """

    def holds_none(metadata: CommitMetadata) -> bool:
        position = metadata.position
        return position.clock.all_before(time, column, position.partitions_read)

    return _newest(commits, holds_none, is_own, before_first)


def of_epoch(commits: Commits, epoch: int, is_own: IsOwn, before_first: BeforeFirst = _unknown) -> Target | None:
    """The version that an epoch left, of those that led to the table's rows; of 0, one before the first record.

    None: the history has none. Pure.
    """
    found = _newest(commits, lambda metadata: metadata.epoch == epoch, is_own, before_first)
    return found if found is not None and found.epoch == epoch else None


def before_offsets(
    commits: Commits, offsets: Offsets, is_own: IsOwn, before_first: BeforeFirst = _unknown
) -> Target | None:
    """The newest version without a record at or after these offsets. None if the history doesn't reach back that far.

    Partitions without an offset here don't count, because their topics are no longer read. Pure.
    """

    def holds_none(metadata: CommitMetadata) -> bool:
        return all(offsets.get(at, next_) >= next_ for at, next_ in metadata.offsets.items())

    return _newest(commits, holds_none, is_own, before_first)


def _newest(
    commits: Commits, wanted: Callable[[CommitMetadata], bool], is_own: IsOwn, before_first: BeforeFirst
) -> Target | None:
    first: tuple[Commit, CommitMetadata] | None = None
    for commit, metadata in commits:
        if wanted(metadata) and is_own(commit.version, metadata):
            return Target(commit.version, metadata.position)
        first = commit, metadata
    if first is None or first[0].version == 0:
        return None
    commit, metadata = first
    if metadata.epoch > 1 and metadata.position.passed_none:
        # A rewind to before the first record committed it.
        return Target(commit.version, None)
    if metadata.epoch == 1 or before_first(commit.version - 1):
        return Target(commit.version - 1, None)
    return None


def restore(table: DeltaTable, version: int, *, by: str | None = None) -> None:
    """RESTORE the table to a version, also to the newest one. ``by``: what its commit says about who did it.

    Raises SinkError if files of that version are gone, SchemaMismatch if the table has delta.appendOnly.
    """
    from pyspark.errors import PySparkException

    try:
        if not table.committed_after(version):
            # Delta commits no RESTORE to the newest version, and a change log would still count. This property makes
            # another version the newest one, and the RESTORE removes it.
            table.spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ('{_REWOUND}' = 'true')").collect()
        with with_settings(table.spark, {USER_METADATA: by} if by else {}):
            table.spark.sql(f"RESTORE TABLE {table.sql} TO VERSION AS OF {int(version)}").collect()
    except PySparkException as error:
        rule = refused(error, table.label)
        if rule is not None:
            raise rule from None
        raise SinkError(
            f"{table.label!r} can't be restored to version {version}: {problem(error)}",
            hint="VACUUM, or the cleaning of the log, has removed what that version needs. `lakelock rewind` may still "
            "reach a newer epoch, and `lakelock replay` builds a table anew from what Kafka still holds.",
        ) from None
