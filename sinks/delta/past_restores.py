"""What RESTOREs have undone, by a table's history: the newest one, and those before it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from sinks.contract import Position
from sinks.delta.commit import PipelineCommits
from sinks.delta.metadata import CommitMetadata
from sinks.delta.past_commits import PastCommits
from sinks.delta.position import Commit, taken_in
from sinks.delta.table import DeltaTable

CommitAt = Callable[[int], Commit | None]
IsOwn = Callable[[int, CommitMetadata], bool]
"""Whether the commit of a version really committed the epoch: its metadata alone may be a copy. Costs a Spark job."""


@dataclass(frozen=True)
class PastRestore:
    """A RESTORE that led to the table's rows of now."""

    to: Position
    """The pipeline's position at the version that it went back to."""
    highest: int
    """The highest epoch that it has undone."""
    taken_in: Collection[str] = ()
    """The topics that these epochs had taken in as recreated ones."""


def restores(newest: int, commit_at: CommitAt, is_own: IsOwn, *, pipeline: str, since: int) -> Iterator[PastRestore]:
    """The RESTOREs that led to version ``newest`` and have undone an epoch from ``since`` on, newest first. Pure.

    One that a later RESTORE has taken back isn't among them: its epochs are in the table again. Neither is one to
    before the first epoch, as all records are read again after it. Found as far back as the history goes, and not
    beyond a RESTORE to a time, which names no version.
    """
    waiting: list[int] = []
    version: int | None = newest
    while version is not None and version >= 0 and (commit := commit_at(version)) is not None:
        metadata = CommitMetadata.from_json(commit.user_metadata, pipeline=pipeline)
        if metadata is not None and (not waiting or is_own(version, metadata)):
            for at in waiting:
                undone = _own(range(at - 1, version, -1), commit_at, pipeline)
                highest = max((found.epoch for _, found in undone), default=0)
                if highest >= max(since, metadata.epoch + 1):
                    to = metadata.position
                    new = taken_in(at, commit_at, pipeline=pipeline, restored_to=to.epoch, topics=to.topics)
                    yield PastRestore(to, highest, new)
            waiting.clear()
            if metadata.epoch < since:
                return  # numbers only grow: what was undone before it is older
        before = commit.goes_on_from
        if commit.operation == "RESTORE" and before is not None:
            waiting.append(version)
        version = before


def past_restores(table: DeltaTable, commits: PipelineCommits, pipeline: str, *, since: int) -> Iterator[PastRestore]:
    """Those of a table, see ``restores``."""
    if table.detail() is not None:
        history = PastCommits(table)
        yield from restores(history.newest().version, history.at, commits.is_own, pipeline=pipeline, since=since)


def undone_ids(
    newest: int, commit_at: CommitAt, is_own: IsOwn, *, pipeline: str, restored_to: int, now: str
) -> set[str]:
    """Delta's ids of the table, other than that of ``now``, for which epochs after ``restored_to`` were committed, that
    a RESTORE has undone. Pure."""
    found: set[str] = set()
    for version, metadata in _own(range(newest, -1, -1), commit_at, pipeline):
        if metadata.epoch <= restored_to:
            break
        if metadata.table and metadata.table not in {*found, now} and is_own(version, metadata):
            found.add(metadata.table)
    return found


def former_ids(table: DeltaTable, commits: PipelineCommits, pipeline: str, position: Position) -> set[str]:
    """The ids that the table had in the epochs which a RESTORE has undone, see ``undone_ids``: it brings back the id of
    the version, where somebody had replaced the table since. ``position``: it shows the RESTORE."""
    # The id of a clone, which takes another table's place, was never this table's.
    if position.source != "restored" or position.restored_to is None or table.detail() is None:
        return set()
    history, restored_to = PastCommits(table), position.restored_to
    return undone_ids(
        history.newest().version, history.at, commits.is_own, pipeline=pipeline, restored_to=restored_to, now=table.id
    )


def _own(versions: Iterable[int], commit_at: CommitAt, pipeline: str) -> Iterator[tuple[int, CommitMetadata]]:
    """The commits of these versions that have the pipeline's metadata, as far as the history has them."""
    for version in versions:
        commit = commit_at(version)
        if commit is None:
            return
        metadata = CommitMetadata.from_json(commit.user_metadata, pipeline=pipeline)
        if metadata is not None:
            yield version, metadata
