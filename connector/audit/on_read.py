"""A table that is merged on read: how far the table is, how far its change log is, and whether that log counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from connector.audit.claim import Metadata
from connector.config import PipelineConfig
from connector.config.sinks import MergedSink
from connector.spark.rights import denied

if TYPE_CHECKING:
    from connector.audit.table import AuditedTable


@dataclass(frozen=True)
class OnRead:
    """The last epoch that is in the table (0: none), and the last one of its change log (None: there is no log)."""

    folded: int
    logged: int | None
    counts: bool = True
    """Whether the log's epochs count. Those of before a RESTORE don't, nor those that somebody has replaced, those of
    another table, and those beside a table whose files were set back."""
    left: bool = False
    """Whether the file merges on write by now, and no run has folded the log since."""

    @classmethod
    def of(cls, table: AuditedTable, log: AuditedTable | None, pipeline: str, found: Metadata | None) -> OnRead:
        """``log``: the change log; ``found``: the pipeline's newest commit to the table."""
        last = log.metadata(pipeline, log.newest)[1] if log is not None else None
        counts = (
            log is not None and found is not None and last is not None
            and not table.restored_after(found) and not log.restored_after(last)
            and not log.replaced_after(last) and _of_this(found, last)
        )  # fmt: skip
        return cls(found.epoch if found is not None else 0, last.epoch if last is not None else None, counts)

    @property
    def unfolded(self) -> bool:
        """Whether epochs that count are in the log only."""
        return self.counts and self.logged is not None and self.logged > self.folded

    @property
    def notes(self) -> list[str]:
        """A note on the epochs that are in the change log only."""
        if self.logged is None or self.logged <= self.folded:
            return []
        one = self.logged == self.folded + 1
        which = f"epoch {self.logged}" if one else f"epochs {self.folded + 1} to {self.logged}"
        beside = (
            f"{which} beside it, which {'was' if one else 'were'} not compared."
            if self.counts
            else f"{which}, which no longer {'counts' if one else 'count'}: the table was restored, set back or "
            "removed, the log replaced, or the history that would show a RESTORE is gone."
        )
        now = " The file says merge: on_write by now, and no run has folded them since." if self.left else ""
        is_or_was = "was" if self.left else "is"
        return [
            f"The table {is_or_was} merged on read, and was compared as of its last fold, at epoch {self.folded}. The "
            f"change log has {beside}{now}"
        ]

    def lacks(self, holds: int) -> list[str]:
        """Why the table can't be called exact, if it and its log lack epochs. ``holds``: its last epoch, by the
        coordinator log.

        What it lacks was in the change log, so the rows of the last fold don't show it."""
        has = max(self.folded, self.logged or 0) if self.counts else self.folded
        if has >= holds:
            return []
        return [
            f"By the coordinator log the table has epoch {holds}, and with its change log it has none after epoch "
            f"{has}: the change log was deleted, or the table was restored. What later epochs changed is in neither."
        ]


def on_read(config: PipelineConfig, table: AuditedTable, found: Metadata | None) -> OnRead | None:
    """How a table is merged on read whose newest version is audited. None: all its epochs are merged into it.

    An option that was changed folds nothing: until the next run the table lacks what is in its change log.
    """
    sink = config.sinks[0]
    if not isinstance(sink, MergedSink):
        return None
    if sink.merge == "on_read":
        return OnRead.of(table, table.change_log(), config.name, found)
    try:
        log = table.change_log()
    except Exception as error:
        if not denied(error):
            raise
        return None  # who may read a table by its name needn't be let into the folders under it
    left = replace(OnRead.of(table, log, config.name, found), left=True)
    return left if left.unfolded else None


def _of_this(found: Metadata, last: Metadata) -> bool:
    """Whether the newest commit of the log knows the table, and no epoch that it lacks. Older versions didn't say."""
    if last.folded is None:
        return True
    of, epoch = last.folded
    return epoch <= found.epoch and (of == found.table or not of or not found.table)
