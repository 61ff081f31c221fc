"""A table's commits, from its history, read only as far back as needed."""

from __future__ import annotations

from dataclasses import dataclass, field

from sinks.delta.position import Commit
from sinks.delta.table import DeltaTable

_FIRST_LOOK = 20


@dataclass
class PastCommits:
    """The table's commits, read in growing steps: mostly the newest few are enough."""

    table: DeltaTable
    _commits: dict[int, Commit] = field(default_factory=dict)
    _limit: int = 0
    _complete: bool = False

    def newest(self) -> Commit:
        """The newest commit."""
        if not self._commits:
            self._read(_FIRST_LOOK)
        return self._commits[max(self._commits)]

    def at(self, version: int) -> Commit | None:
        """The commit of a version; None: Delta has cleaned it from the log."""
        newest = self.newest().version
        while version not in self._commits and not self._complete and version <= newest:
            self._read(max(self._limit * 8, newest - version + _FIRST_LOOK))
        return self._commits.get(version)

    def after(self, version: int | None) -> list[Commit]:
        """Commits newer than ``version``, newest first; None: only those that the first look shows."""
        newest = self.newest().version
        oldest = max(self._commits) - _FIRST_LOOK if version is None else version
        commits = (self.at(number) for number in range(newest, max(oldest, -1), -1))
        return [commit for commit in commits if commit is not None]

    def _read(self, limit: int) -> None:
        read = self.table.history(limit)
        self._commits = {commit.version: commit for commit in read}
        self._limit, self._complete = limit, len(read) < limit
