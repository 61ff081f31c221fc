"""What a RESTORE of a table would take back that isn't of the pipeline itself. Pure: reads the history by a function.

Another pipeline that keeps its offsets in the table goes back with it, and reads its records again. One that keeps them
in a consumer group goes on behind them: its rows would be lost. Its commits carry no position, and its appends nothing
at all, as a person's don't; only the epoch with which it took the table over names it. So any append or MERGE that is
no epoch's counts as one of such a pipeline, if the table has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sinks.delta.metadata import CommitMetadata, pipeline_of
from sinks.delta.position import Commit, in_words, replaces
from sinks.plurals import plural

_CHANGING = ("WRITE", "STREAMING UPDATE", "DELETE", "UPDATE", "MERGE", "COPY INTO", "CLONE")
_SHOWN = 10
TRANSACTIONAL = "transactional"


@dataclass(frozen=True)
class OtherPipeline:
    """Another pipeline that has committed epochs to the table since."""

    name: str
    first: int
    last: int
    """Its epochs."""

    def __str__(self) -> str:
        epochs = f"epoch {self.first}" if self.first == self.last else f"epochs {self.first} to {self.last}"
        return f"{epochs} of pipeline {self.name!r}, which reads them again if Kafka still holds their records"


@dataclass(frozen=True)
class Undone:
    """What a RESTORE takes back of others."""

    pipelines: Sequence[OtherPipeline] = ()
    """Those that go back with the table."""
    lost: Sequence[str] = ()
    """The names of pipelines that keep their offsets in a consumer group, and whose rows nobody would read again."""
    commits: Sequence[Commit] = ()
    """Those of no pipeline that is known that change rows, newest first."""

    @property
    def lines(self) -> Sequence[str]:
        """Each in words, for the plan that the user confirms."""
        shown, more = self.commits[:_SHOWN], len(self.commits) - _SHOWN
        others = [f"{in_words(commit)}, which is of no pipeline's epoch" for commit in shown]
        rest = [f"{plural(more, 'older commit')} of no pipeline's epoch"] if more > 0 else []
        return [*map(str, self.pipelines), *others, *rest]

    @property
    def why_not(self) -> str | None:
        """Why the table must not go back, in words. None: it may."""
        if not self.lost:
            return None
        names = ", ".join(map(repr, self.lost))
        return (
            f"it would take back rows that pipeline {names} may have written since, which keeps its offsets in a "
            "consumer group and wouldn't read their records again"
        )


def undone(newest: int, target: int, commit_at: Callable[[int], Commit | None], *, pipeline: str) -> Undone:
    """What a RESTORE from version ``newest`` to ``target`` takes back that isn't of this pipeline.

    Follows the history as ``sinks.delta.position.find`` does: what an earlier RESTORE took back is gone already.
    """
    others: dict[str, list[CommitMetadata]] = {}
    unknown = []
    for commit in _apart(newest, target, commit_at):
        name = pipeline_of(commit.user_metadata)
        if name is None and _changes(commit):
            unknown.append(commit)
        elif name is not None and name != pipeline:
            metadata = CommitMetadata.from_json(commit.user_metadata, pipeline=name)
            others.setdefault(name, []).extend([metadata] if metadata is not None else [])
    suspects = any(_adds(commit) for commit in unknown)
    lost: list[str] = []
    if suspects or others:
        began = {name: commits[-1].position.delivery for name, commits in others.items() if commits}
        at_target = _deliveries(target, commit_at, pipeline, before_history=began)
        lost = [name for name, kept in at_target.items() if kept != TRANSACTIONAL and (suspects or name in others)]
    back = [
        OtherPipeline(name, commits[-1].epoch, commits[0].epoch)
        for name, commits in others.items()
        if commits and name not in lost
    ]
    return Undone(back, lost, unknown)


def _apart(newest: int, target: int, commit_at: Callable[[int], Commit | None]) -> Iterator[Commit]:
    """The commits that led to ``newest`` and not to ``target``, newest first."""
    version, goal = newest, target
    while version != goal and version >= 0:
        commit = commit_at(max(version, goal))
        if commit is None:
            return
        # Of a RESTORE to a time nobody knows the version: then all that came before it counts.
        before = commit.version - 1 if commit.goes_on_from is None else commit.goes_on_from
        if version > goal:
            yield commit
            version = before
        else:
            goal = before


def _deliveries(
    target: int, commit_at: Callable[[int], Commit | None], pipeline: str, *, before_history: Mapping[str, str]
) -> dict[str, str]:
    """The delivery of each other pipeline at the version ``target``.

    ``before_history``: of pipelines with later commits the first known one, which counts where the history is cleaned.
    """
    last: dict[str, str] = {}
    version: int | None = target
    while version is not None and version >= 0:
        commit = commit_at(version)
        if commit is None:
            return {**before_history, **last}
        name = pipeline_of(commit.user_metadata)
        if name is not None and name != pipeline and name not in last:
            metadata = CommitMetadata.from_json(commit.user_metadata, pipeline=name)
            if metadata is not None:
                last[name] = metadata.position.delivery
        version = commit.goes_on_from
    return last


def _changes(commit: Commit) -> bool:
    return commit.operation in _CHANGING or replaces(commit)


def _adds(commit: Commit) -> bool:
    """Whether the commit may be one of a pipeline whose commits carry no position."""
    return commit.operation in ("WRITE", "MERGE") and not replaces(commit)
