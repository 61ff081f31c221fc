"""Takes back an epoch whose topic changed while it was being read."""

from __future__ import annotations

from connector.engine.fold import Folding
from sinks.contract import Epoch, Position
from sinks.delta.commit import PipelineCommits
from sinks.delta.restore import restore
from sinks.delta.table import DeltaTable
from sinks.errors import LakelockError, SinkError, SourceError
from sinks.spark.row_errors import problem


def undo(table: DeltaTable, commits: PipelineCommits, committed: Position, why: SourceError) -> None:
    """RESTORE the table to the version before an epoch that may hold records of two topics or of two logs.

    A crash before the RESTORE leaves the epoch in the table, and the next run stops with ``why``. A crash after it
    leaves the table as before the epoch. Raises SinkError, which names the epoch, if somebody else has committed since,
    as their commit would be undone too, or if the RESTORE fails: the epoch then stays in the table.

    ``committed``: the table's position with the epoch.
    """
    epoch, version = committed.epoch, committed.version
    hint = f"Before any other run, RESTORE the table to what it was before epoch {epoch} (version {version})."
    if version is None or commits.committed_after(version):
        raise _suspect(table, epoch, why, "", hint)
    try:
        restore(table, version - 1)
    except Exception as error:
        raise _suspect(table, epoch, why, _not_taken_back(error), hint) from error


def undo_on_read(folding: Folding, table: DeltaTable, epoch: Epoch, why: SourceError) -> None:
    """Take such an epoch out of the change log that it was appended to. See ``MergeOnRead.take_back``.

    A crash before leaves the epoch in the log, and the next run stops with ``why``. Raises SinkError, which names the
    epoch, if it can't be taken out.
    """
    try:
        folding.take_back(epoch)
    except Exception as error:
        hint = (
            f"Before any other run or fold, `lakelock rewind FILE --to-epoch` the last epoch before {epoch.number} "
            "that `lakelock history FILE` shows of the table. This gives up what came after it, also in the change log."
        )
        raise _suspect(table, epoch.number, why, _not_taken_back(error), hint) from error


def _not_taken_back(error: Exception) -> str:
    return f" It couldn't be taken back: {_in_words(error)}"


def _in_words(error: Exception) -> str:
    return error.message if isinstance(error, LakelockError) else problem(error) if str(error).strip() else repr(error)


def _suspect(table: DeltaTable, epoch: int, why: SourceError, failed: str, hint: str) -> SinkError:
    """The error for an epoch that can't be taken back: it names the epoch."""
    return SinkError(
        f"{why.message} It happened while epoch {epoch} was being read, which is committed to {table.label!r}. Its "
        f"rows may be of either log.{failed}",
        hint=hint,
    )
