"""Takes back an epoch whose topic changed while it was being read."""

from __future__ import annotations

from sinks.contract import Committed
from sinks.delta.commit import PipelineCommits
from sinks.delta.restore import restore
from sinks.delta.table import DeltaTable
from sinks.errors import LakelockError, SinkError, SourceError
from sinks.spark.row_errors import problem


def undo(table: DeltaTable, commits: PipelineCommits, committed: Committed, why: SourceError) -> None:
    """RESTORE the table to the version before an epoch that may hold records of two topics or of two logs.

    A crash before the RESTORE leaves the epoch in the table, and the next run stops with ``why``. A crash after it
    leaves the table as before the epoch. Raises SinkError, which names the epoch, if somebody else has committed since,
    as their commit would be undone too, or if the RESTORE fails: the epoch then stays in the table.
    """
    version = committed.position.version
    if version is None or commits.committed_after(version):
        raise suspect(table, committed, why)
    try:
        restore(table, version - 1)
    except Exception as error:
        raise suspect(table, committed, why, f" It couldn't be taken back: {_in_words(error)}") from error


def _in_words(error: Exception) -> str:
    return error.message if isinstance(error, LakelockError) else problem(error) if str(error).strip() else repr(error)


def suspect(table: DeltaTable, committed: Committed, why: SourceError, failed: str = "") -> SinkError:
    """The error for an epoch that can't be taken back: it names the epoch and the version to RESTORE."""
    epoch, version = committed.position.epoch, committed.position.version
    return SinkError(
        f"{why.message} It happened while epoch {epoch} was being read, which is committed to {table.label!r}. Its "
        f"rows may be of either log.{failed}",
        hint=f"Before any other run, RESTORE the table to what it was before epoch {epoch} (version {version}).",
    )
