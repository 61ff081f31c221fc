"""The history of a table that is merged on read: its own commits and those of its change log, in the order of epochs.

An epoch is appended to the change log, or merged into the table at once. A fold takes the number of the last epoch that
it brings into the table. So that epoch has a version of the table, and the epochs before it have none.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sinks.delta.metadata import CommitMetadata
from sinks.delta.position import Commit, replaces

IN_LOG = "change log"


@dataclass
class MergedHistory:
    """The commits of both, numbered anew from ``first`` on, oldest first."""

    first: int
    commits: list[Commit] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    """The new number -> the commit in words."""

    def add(self, commit: Commit, name: str) -> int:
        """Add the next commit. Returns its new number."""
        number = self.first + len(self.commits)
        self.commits.append(replace(commit, version=number))
        self.names[number] = name
        return number


def merged(table: Sequence[Commit], log: Sequence[Commit], pipeline: str) -> MergedHistory:
    """Both histories as one. Commits that only copy the pipeline's metadata must come without it. Pure.

    A RESTORE comes after all epochs that were in the log by then. The next epoch is merged into the table, and numbers
    only grow. So these are the epochs with a lower number than the next one in the table.
    """
    history = MergedHistory(0 if any(commit.version == 0 for commit in table) else 1)
    epochs = {commit.version: number for commit, number in _numbered(table, pipeline)}
    # The log is started with an epoch that is in the table.
    appended = deque(entry for entry in _numbered(log, pipeline) if not replaces(entry[0]))

    def add_from_log(upto: float) -> int | None:
        """Add the epochs up to this number. Returns where this very epoch is, if the log has it."""
        at = None
        while appended and appended[0][1] <= upto:
            commit, number = appended.popleft()
            place = history.add(commit, IN_LOG)
            at = place if number == upto else None
        return at

    places: dict[int, int] = {}
    in_order = sorted(table, key=lambda each: each.version)
    for index, commit in enumerate(in_order):
        name = f"version {commit.version}"
        if commit.version in epochs:
            folded = add_from_log(epochs[commit.version])
            if folded is not None:
                places[commit.version], history.names[folded] = folded, name
                continue
        elif commit.operation == "RESTORE":
            add_from_log(_before_next(in_order[index:], epochs))
        places[commit.version] = history.add(_going_back(commit, places), name)
    add_from_log(math.inf)
    return history


def _numbered(commits: Sequence[Commit], pipeline: str) -> Iterator[tuple[Commit, int]]:
    """The pipeline's commits and the numbers of their epochs, oldest first."""
    for commit in sorted(commits, key=lambda each: each.version):
        metadata = CommitMetadata.from_json(commit.user_metadata, pipeline=pipeline)
        if metadata is not None:
            yield commit, metadata.epoch


def _before_next(commits: Sequence[Commit], epochs: Mapping[int, int]) -> float:
    """The highest number that an epoch may have before the next one in the table."""
    return next((epochs[commit.version] - 1 for commit in commits if commit.version in epochs), math.inf)


def _going_back(commit: Commit, places: Mapping[int, int]) -> Commit:
    """A RESTORE with the new number of its version. If the history has that version no more: a number below all."""
    target = commit.parameters.get("version") if commit.operation == "RESTORE" else None
    if target is None:
        return commit
    return replace(commit, parameters={**commit.parameters, "version": str(places.get(int(target), -1))})
