"""The proof: a write counts only if the table's history shows its commit."""

from __future__ import annotations

from collections.abc import Callable

from sinks.contract import Committed, Epoch
from sinks.delta.commit import PipelineCommits
from sinks.delta.conflicts import Conflicts, first_line
from sinks.delta.refusals import refused
from sinks.errors import CommitSkipped, CommitUnknown, LakelockError


class Proof:
    """The way of an epoch into a table: write it, until a commit of it stands::

        proof = Proof(commits, epoch)
        while proof.wanted():
            with proof:
                ...  # a write with the options of the fence
        return proof.committed

    This is the rule "proof": only the table's history counts as success, by a commit of this epoch with this run's
    owner id. An error doesn't prove that nothing was committed, because only the answer may have been lost. A success
    doesn't prove a commit, because Delta skips a write without an error if a higher number is taken.

    ====================  ==============================================================================================
    crash                 what is left
    ====================  ==============================================================================================
    before the commit     Files that no version of the table names, and the old position. The next run writes the epoch
                          anew.
    after the commit      Rows and position, in one commit. The next run finds it as its position.
    ====================  ==============================================================================================

    There is no state in between: Delta's commit is one file, put if absent. Tests: tests/integration/test_recovery.py,
    ``test_a_write_that_delta_skips_in_silence_is_an_error`` and
    ``test_a_commit_that_landed_but_was_reported_failed_is_not_committed_twice``.

    A conflict with another writer's commit is followed by another attempt. An epoch that this run has already committed
    isn't written again. ``wanted`` and the block raise Fenced (another run has committed since the epoch was planned),
    PositionMismatch or TableReplaced (the table was restored or replaced since then), CommitSkipped (a higher number is
    taken), CommitUnknown (the write failed, and the table can't be read to see whether the commit stands), BadRecord
    or SchemaMismatch (a rule of the table refuses the write), or the block's own error, if nothing was committed.
    """

    def __init__(self, commits: PipelineCommits, epoch: Epoch) -> None:
        self._commits, self._epoch = commits, epoch
        self._conflicts = Conflicts()
        self._stands: Committed | None = None

    @property
    def committed(self) -> Committed:
        """The commit that stands, once the epoch isn't wanted any more."""
        assert self._stands is not None
        return self._stands

    def wanted(self) -> bool:
        """Whether no commit of the epoch stands yet."""
        if self._stands is None:
            self._stands = self._commits.already(self._epoch)
        return self._stands is None

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if error is not None and not isinstance(error, Exception):
            return False
        self._stands = self._found(error)
        if self._stands is not None:
            return True
        if error is not None:
            rule = None if isinstance(error, LakelockError) else refused(error, self._commits.label)
            if rule is not None:
                raise rule from None
            return self._conflicts.passed(error)
        raise CommitSkipped(
            f"Delta reported success for epoch {self._epoch.number}, but no commit of it stands in "
            f"{self._commits.label!r}: a higher number was taken under the name {self._epoch.pipeline!r}, and Delta "
            "skips lower ones without an error.",
            hint=f"Does something else write to this table with txnAppId {self._epoch.pipeline!r}? Give the pipeline "
            "a name of its own.",
        )

    def _found(self, error: Exception | None) -> Committed | None:
        try:
            stands = self._commits.find(self._epoch)
            if stands is None:
                self._commits.refuse_another()
        except LakelockError:
            raise
        except Exception:
            if error is None:
                raise
            raise CommitUnknown(
                f"Epoch {self._epoch.number} may or may not have been committed to {self._commits.label!r}: the write "
                f"failed ({first_line(error)}) and the table can't be read.",
                hint="Run the pipeline again: it reads the position from the table and goes on from there.",
            ) from error
        return stands


def proven(commits: PipelineCommits, epoch: Epoch, write: Callable[[], None]) -> Committed:
    """Commit an epoch by a write that is the same at every attempt. Raises what :class:`Proof` raises."""
    proof = Proof(commits, epoch)
    while proof.wanted():
        with proof:
            write()
    return proof.committed
