"""Another pipeline that keeps its rows in a table, of other topics. What each pipeline leaves in the table tells of it:
its commits, and the property that ``sinks.delta.shape`` has for each.

One that goes on with the same topics, under another name, is no second one. A commit names its topics. Of a property
whose pipeline has no commit in the history, nothing tells the topics: a clone has no commits of its source's, and Delta
cleans its log.

Tests: tests/unit/sinks/delta/test_other_pipelines.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass

from sinks.delta.change_log import ChangeLog
from sinks.delta.commit import PipelineCommits
from sinks.delta.metadata import CommitMetadata
from sinks.delta.past_commits import PastCommits
from sinks.delta.shape import holds_changes, pipelines
from sinks.delta.standing import Standing
from sinks.delta.table import DeltaTable


@dataclass(frozen=True)
class Other:
    """Another pipeline of a table."""

    name: str
    topics: Collection[str] = ()
    """Those that its commits name. Empty: the table's history has none."""

    def merges_on_read(self, table: DeltaTable) -> bool:
        """Whether it does, or may after a RESTORE: its change log counts."""
        log = ChangeLog(table, pipeline=self.name, topics=self.topics)
        if not log.table.exists():
            return False
        stands = PipelineCommits(table, pipeline=self.name, topics=self.topics).position()
        known = stands is not None and stands.source == "commit"
        return not known or Standing(stands, log.position()).goes_on


def named(table: DeltaTable, pipeline: str) -> Sequence[str]:
    """The other pipelines that the table's properties name. They are read with its details, and cost nothing."""
    detail = table.detail()
    return [name for name in pipelines(detail.properties) if name != pipeline] if detail is not None else ()


def of_other_topics(table: DeltaTable, pipeline: str, topics: Container[str], *, begun: bool) -> Other | None:
    """Another pipeline of the table that reads none of these topics; None: there is none.

    ``begun``: whether ``pipeline`` has a position in the table. Then only a pipeline with a property counts, so that
    mostly the history isn't read: of the two that an earlier release has let in, it may be the other one that is found.
    """
    others = named(table, pipeline)
    if table.detail() is None or (begun and not others):
        return None
    written: dict[str, set[str]] = {}
    for commit in PastCommits(table).after(-1):
        found = CommitMetadata.of_anybody(commit.user_metadata)
        if found is not None and found.offsets:
            written.setdefault(found.pipeline, set()).update(at.topic for at in found.offsets)
    name = which(written, others, pipeline, topics, begun=begun, holds_rows=lambda: holds_changes(table))
    return Other(name, written.get(name, ())) if name is not None else None


def which(
    written: Mapping[str, Collection[str]],
    others: Sequence[str],
    pipeline: str,
    topics: Container[str],
    *,
    begun: bool,
    holds_rows: Callable[[], bool],
) -> str | None:
    """The name of the pipeline that ``of_other_topics`` looks for. Pure.

    ``written``: pipeline -> the topics of its commits, the newest one first; ``others``: those that a property names;
    ``holds_rows``: whether the table has rows of any pipeline.
    """
    strangers = [
        name for name, theirs in written.items() if name != pipeline and not any(each in topics for each in theirs)
    ]
    if begun:
        return next((name for name in strangers if name in others), None)
    if len(strangers) < len(written):
        return None  # it goes on under another name
    if strangers:
        return strangers[0]
    # No row is of these topics, or there would be a position.
    return others[0] if others and holds_rows() else None
