"""Takes an epoch back whose topic changed while it was read."""

from __future__ import annotations

from sinks.contract import Committed
from sinks.delta.commit import PipelineCommits
from sinks.delta.restore import restore
from sinks.delta.table import DeltaTable
from sinks.errors import SinkError, SourceError


def undo(table: DeltaTable, commits: PipelineCommits, committed: Committed, why: SourceError) -> None:
    """Take back an epoch that was read while its topic became another. Raises SinkError where somebody else has
    committed since."""
    version = committed.position.version
    if version is None or commits.committed_after(version):
        raise suspect(table, committed, why)
    restore(table, version - 1)


def suspect(table: DeltaTable, committed: Committed, why: SourceError) -> SinkError:
    epoch, version = committed.position.epoch, committed.position.version
    return SinkError(
        f"{why.message} It happened while epoch {epoch} was being read, which is committed to {table.label!r}: its "
        "rows may be of either log.",
        hint=f"Before any other run, RESTORE the table to what it was before epoch {epoch} (version {version}).",
    )
