"""Deletes that an epoch notes before its commit, and forgets if another run was sooner.

Tombstones and rows are two tables, so a run that was replaced can note deletes before it learns of it. They would count
at once, because the other run's position has passed their records. It may have read them by another pipeline file, in
which they delete nothing.

So a run asks right before it notes anything whether it was replaced, and a write that is fenced removes its own notes.
Each tombstone says whose it is (``Tombstones``), so those that the other run has written of the same records stay.

====================  ==================================================================================================
crash                 what is left
====================  ==================================================================================================
before the question   Nothing has changed.
before the notes      The same.
before the commit     Tombstones of records that the position hasn't passed: they don't count, and the next run removes
                      them. Where another run commits the epoch between the question and the notes, they count until
                      this one has removed them; if it is killed before, until ``tombstone_retention``: nobody else
                      knows that it was fenced.
after the commit      Tombstones, rows and position. Nothing is left to do.
before the removal    As before the commit.
after the removal     The tombstones as before the epoch.
====================  ==================================================================================================
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sinks.contract import Epoch
from sinks.errors import CommitSkipped, Fenced

if TYPE_CHECKING:
    from sinks.delta.commit import PipelineCommits
    from sinks.delta.tombstones import Tombstones

log = logging.getLogger("lakelock.delta")


def noted_by(epoch: Epoch) -> str:
    """What the tombstones of an epoch say of whose they are."""
    return f"{epoch.owner}/{epoch.number}"


def noted_in(noted_by: str) -> str:
    """SQL of the number of the epoch in what ``noted_by`` has written; NULL: unknown."""
    return f"CAST(substring_index({noted_by}, '/', -1) AS BIGINT)"


@contextmanager
def forgotten_if_fenced(tombstones: Tombstones, commits: PipelineCommits, epoch: Epoch) -> Iterator[None]:
    """Around a write that may note deletes: if another run was sooner, remove what the epoch has noted.

    ``CommitSkipped`` says the same as ``Fenced``: Delta has a higher number, so this one can't be committed any more.
    """
    try:
        yield
    except (Fenced, CommitSkipped):
        try:
            # Another run may have gone on from a commit of this epoch whose answer was lost.
            if not commits.stands(epoch):
                tombstones.forget_noted(noted_by(epoch))
        except Exception as error:  # the run has to say that it was replaced
            log.warning("deletes that epoch %s has noted may count: %s", epoch.number, error)
        raise
