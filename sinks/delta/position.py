"""Where a pipeline stands, decided from its table's history: :func:`find` is the rule. Pure: the table is read through
two functions."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sinks.delta.metadata import CommitMetadata
from sinks.errors import PositionMismatch
from sinks.offsets import Offsets


@dataclass(frozen=True)
class Written:
    """What a commit's metrics say, of which Delta may leave out any."""

    rows: int | None = None
    """Added or changed."""
    bytes: int | None = None
    """Of the files that were added."""
    unchanged: int | None = None
    """Rows of a MERGE's source that changed nothing."""
    changed: int | None = None
    """Of the rows those that were there before a MERGE, and that it updated or deleted."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Of a MERGE, seconds per part: ``read`` its source, ``match`` it with the table, ``write`` files."""


@dataclass(frozen=True)
class Commit:
    """One entry of the table's history."""

    version: int
    timestamp: datetime
    operation: str
    parameters: Mapping[str, str | None]
    user_metadata: str | None
    written: Written = Written()
    user: str | None = None
    """Who made it, where the platform says so."""

    @property
    def goes_on_from(self) -> int | None:
        """The version whose state it changes: the one before it, of a RESTORE the one that it restored.

        None: ``RESTORE ... TO TIMESTAMP`` keeps no version, and a clone takes the state of another table.
        """
        if self.operation == "CLONE":
            return None
        if self.operation != "RESTORE":
            return self.version - 1
        target = self.parameters.get("version")
        return None if target is None else int(target)


_REPLACING = ("REPLACE", "CREATE OR REPLACE", "TRUNCATE")


def replaces(commit: Commit) -> bool:
    """Whether this commit left no row of those before it, for another reason than that they were to be deleted."""
    named = any(commit.operation.startswith(operation) for operation in _REPLACING)
    return named or (_overwrites(commit) and not _partly(commit))


def changes_rows(commit: Commit) -> bool:
    """Whether this commit has, or may have, taken away or changed rows, and isn't that of a pipeline."""
    changes = commit.operation in ("DELETE", "UPDATE", "MERGE") or (_overwrites(commit) and _partly(commit))
    return changes and '"lakelock"' not in (commit.user_metadata or "")


def _overwrites(commit: Commit) -> bool:
    said = _said(commit)
    return said.get("mode") == "overwrite" or said.get("outputMode") == "complete"


def _partly(commit: Commit) -> bool:
    """Whether an overwrite is about some rows only: those of a condition, or of the partitions that it writes."""
    said = _said(commit)
    return bool(said.get("predicate")) or said.get("isDynamicPartitionOverwrite") == "true"


def _said(commit: Commit) -> Mapping[str, str]:
    return {name: (value or "").strip('"').lower() for name, value in commit.parameters.items()}


def in_words(commit: Commit) -> str:
    """A commit for messages: its version, operation, user and time."""
    by = f" by {commit.user}" if commit.user else ""
    mode = ""
    if commit.operation == "WRITE" and _overwrites(commit):
        mode = " (overwrite of some rows)" if _partly(commit) else " (overwrite)"
    return f"version {commit.version}, {commit.operation}{mode}{by} at {commit.timestamp:%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True)
class Own:
    """The table's state is that of this commit of ours."""

    metadata: CommitMetadata
    commit: Commit
    restored: bool
    """A RESTORE lies in between: higher epoch numbers may have been taken."""
    replaced: Commit | None = None
    """Somebody else's newest commit since that this one was planned which replaced what the pipeline had written."""


@dataclass(frozen=True)
class Cloned:
    """The table was cloned from this version of another."""

    source: str
    version: int
    at: datetime
    """When: what its source committed later is not of what was cloned."""
    replaced: Commit | None = None
    """The newest commit since that has replaced all rows."""
    over: Commit | None = None
    """The clone's commit, if it took the place of what the table held before."""
    restored: bool = False
    """A RESTORE lies in between, to before the pipeline's first epoch in the clone."""


@dataclass(frozen=True)
class Unwritten:
    """The table was restored to before the pipeline's first epoch, which this commit is: the pipeline stands where that
    epoch began."""

    first: Own


@dataclass(frozen=True)
class FromRows:
    """Only the rows can tell: the history has been cleaned, or holds no commit of ours."""

    replaced: Commit | None = None
    """The newest commit of the history that has replaced all rows of the table."""
    candidates: tuple[Own, ...] = ()
    """After ``RESTORE ... TO TIMESTAMP``, which leaves no version behind: the commits that it may have gone back to,
    oldest first. The first whose offsets reach the rows' coordinates is the one: up to the next, no row was added."""
    every: bool = False
    """Whether these are all that the pipeline had made until then: the history goes back to the table's beginning."""
    restored: bool = False
    """A RESTORE lies in between, and nothing tells which epochs it has undone."""


Standing = Own | Cloned | FromRows | Unwritten


def how_replaced(standing: Standing, table_id: str) -> str:
    """How somebody else has replaced what the pipeline had written, in words; empty: nobody has."""
    if isinstance(standing, Unwritten):
        return ""
    if standing.replaced is not None:
        return in_words(standing.replaced)
    made_for = standing.metadata.table if isinstance(standing, Own) else ""
    return another_table(made_for, table_id) if made_for and made_for != table_id else ""


def another_table(before: str, now: str) -> str:
    """Says for messages that Delta's id of the table has changed."""
    made = f"Delta's id is {now}" if now else "there is none now"
    return f"the table was removed, or recreated under its name ({made}, it was {before})"


def find(
    newest: int,
    commit_at: Callable[[int], Commit | None],
    is_own: Callable[[int, CommitMetadata], bool],
    *,
    pipeline: str,
    former: str | None = None,
    stops: Callable[[Commit], bool] = replaces,
) -> Standing:
    """Walk back from version ``newest`` to the commit that says where the pipeline stands.

    This is the rule "position": the table alone says it, so a table that is restored, cloned or copied takes its
    position along. The newest commit that is provably the pipeline's own counts (``Own``). On the way back to it:

    * commits of others (another pipeline, OPTIMIZE, VACUUM, a person's UPDATE) change nothing;
    * after a RESTORE the table is what it was at the restored version, so the search goes on from there. Epoch numbers
      that were taken stay taken. If the pipeline had no epoch by then, it stands where its first one began
      (``Unwritten``). A RESTORE to a time names no version: the rows decide between the commits before it;
    * of a clone, the history of its source holds the position (``Cloned``);
    * if the history ends, because Delta has cleaned its log, the rows' own coordinates say what the table holds
      (``FromRows``).

    A RESTORE or a clone that slipped in between the plan of an epoch and its commit is refused: the epoch's rows don't
    follow what was restored. Nothing is written here, so a crash leaves nothing.
    Tests: tests/unit/sinks/delta/test_position.py.

    ``commit_at`` gives the entry of a version, None once the log was cleaned. ``is_own`` tells whether the commit of
    that version really took the epoch: user metadata alone can be a stale copy in anybody's commit. ``former``: the
    pipeline from which this one has taken the table over, whose commits count as its own. ``stops``: whether the
    pipeline doesn't go on after a commit of somebody else.

    Raises PositionMismatch where one slipped in under an epoch that was being written, UnsupportedFormat.
    """
    version, restored = newest, False
    replaced: Commit | None = None
    while version >= 0 and (commit := commit_at(version)) is not None:
        metadata = _metadata(commit, pipeline, former)
        if metadata is not None and is_own(version, metadata):
            _refuse_overtaken(metadata, commit, commit_at)
            return Own(metadata, commit, restored, replaced or _replaced_under(metadata, commit, commit_at, stops))
        if replaced is None and stops(commit):
            replaced = commit
        if commit.operation == "RESTORE":
            restored = True
        elif commit.operation == "CLONE":
            source, of = commit.parameters["source"], commit.parameters["sourceVersion"]
            over = commit if version > 0 else None
            return Cloned(str(source), int(of or 0), commit.timestamp, replaced, over, restored)
        if commit.goes_on_from is None:
            before = tuple(_own(range(version - 1, -1, -1), commit_at, is_own, pipeline, former))
            return FromRows(replaced, before[::-1], every=commit_at(0) is not None, restored=True)
        version = commit.goes_on_from
    # With all of its history the table says that the pipeline had no commit yet: not that it was cleaned away.
    every = _own(range(newest), commit_at, is_own, pipeline, former) if restored and version < 0 else iter(())
    first = next(every, None)
    if first is not None and first.metadata.position.since:
        return Unwritten(first)
    return FromRows(replaced, restored=restored)


def lineage(
    newest: int, commit_at: Callable[[int], Commit | None], *, pipeline: str
) -> Iterator[tuple[Commit, CommitMetadata]]:
    """The commits with the pipeline's metadata that led to version ``newest``, newest first, as far back as the history
    goes. A RESTORE to a time names no version: the history is followed no further."""
    version: int | None = newest
    while version is not None and version >= 0 and (commit := commit_at(version)) is not None:
        metadata = CommitMetadata.from_json(commit.user_metadata, pipeline=pipeline)
        if metadata is not None:
            yield commit, metadata
        version = commit.goes_on_from


def ids_of_rows(
    newest: int,
    commit_at: Callable[[int], Commit | None],
    is_own: Callable[[int, CommitMetadata], bool],
    topics: Container[str],
) -> dict[str, str]:
    """Topic -> its id, of these topics, by the newest commit of any pipeline that led to version ``newest``, as far
    back as the history goes."""
    found: dict[str, str] = {}
    version: int | None = newest
    while version is not None and version >= 0 and (commit := commit_at(version)) is not None:
        metadata = CommitMetadata.of_anybody(commit.user_metadata)
        told = metadata.position.topics.items() if metadata is not None else ()
        new = {topic: its_id for topic, its_id in told if topic in topics and topic not in found}
        if metadata is not None and new and is_own(version, metadata):
            found |= new
        version = commit.goes_on_from
    return found


def taken_in(
    newest: int,
    commit_at: Callable[[int], Commit | None],
    *,
    pipeline: str,
    restored_to: int,
    topics: Mapping[str, str],
) -> set[str]:
    """The topics that epochs after ``restored_to``, which a RESTORE has undone, knew by another id: they were recreated
    and taken in. Found as far back as the history goes.

    ``topics``: topic -> id, as of the epoch ``restored_to``.
    """
    found: set[str] = set()
    for version in range(newest, -1, -1):
        commit = commit_at(version)
        metadata = CommitMetadata.from_json(commit.user_metadata, pipeline=pipeline) if commit is not None else None
        if commit is None or (metadata is not None and metadata.epoch <= restored_to):
            break
        if metadata is not None:
            later = metadata.position.topics
            found |= {topic for topic, its_id in topics.items() if its_id and later.get(topic, its_id) != its_id}
    return found


def undid_offsets(newest: int, commit_at: Callable[[int], Commit | None], *, pipeline: str, restored_to: int) -> bool:
    """Whether a RESTORE to the epoch ``restored_to`` has undone a transactional one, as far back as the history goes"""
    for version in range(newest, -1, -1):
        commit = commit_at(version)
        metadata = CommitMetadata.from_json(commit.user_metadata, pipeline=pipeline) if commit is not None else None
        if commit is None or (metadata is not None and metadata.epoch <= restored_to):
            break
        if metadata is not None and metadata.position.delivery == "transactional":
            return True
    return False


def from_rows(rows: Offsets, standing: FromRows) -> Own | Unwritten | None:
    """Where the pipeline stands by the rows' coordinates. None: only the coordinates tell.

    A commit is known to be the one if the rows are beyond the commit before it. Of the oldest that is known they have
    to be beyond where its epoch began. If not, the table went back further. If that epoch has left no row, it is read
    again, and leaves none.
    """
    own = next((own for own in standing.candidates if own.metadata.offsets.reaches(rows)), None)
    if own is None or own is not standing.candidates[0]:
        return own
    if not standing.every:
        return None
    since = own.metadata.position.since
    if any(next_ > since.get(at, 0) for at, next_ in rows.items()):
        return own
    return Unwritten(own) if since else None


def _metadata(commit: Commit, pipeline: str, former: str | None) -> CommitMetadata | None:
    """The metadata of a commit of the pipeline, or of the former one; None: it is somebody else's."""
    own = CommitMetadata.from_json(commit.user_metadata, pipeline=pipeline)
    if own is not None or former is None:
        return own
    return CommitMetadata.from_json(commit.user_metadata, pipeline=former)


def _own(
    versions: Iterable[int],
    commit_at: Callable[[int], Commit | None],
    is_own: Callable[[int, CommitMetadata], bool],
    pipeline: str,
    former: str | None,
) -> Iterator[Own]:
    """The pipeline's commits of these versions, as far as the history has them."""
    for version in versions:
        commit = commit_at(version)
        if commit is None:
            return
        metadata = _metadata(commit, pipeline, former)
        if metadata is not None and is_own(version, metadata):
            yield Own(metadata, commit, restored=True)


def _replaced_under(
    metadata: CommitMetadata,
    commit: Commit,
    commit_at: Callable[[int], Commit | None],
    stops: Callable[[Commit], bool],
) -> Commit | None:
    """A commit that replaced all rows between the version that an epoch was planned on and the epoch's own."""
    if metadata.base is None:
        return None
    between = (commit_at(version) for version in range(commit.version - 1, metadata.base, -1))
    return next((found for found in between if found is not None and stops(found)), None)


def _refuse_overtaken(metadata: CommitMetadata, commit: Commit, commit_at: Callable[[int], Commit | None]) -> None:
    """Between the version that an epoch was planned on and its commit nobody may have restored the table, or put a
    clone in its place."""
    if metadata.base is None:
        return
    for version in range(metadata.base + 1, commit.version):
        between = commit_at(version)
        if between is not None and between.operation in ("RESTORE", "CLONE"):
            how = "restored" if between.operation == "RESTORE" else "replaced by a clone"
            raise PositionMismatch(
                f"The table was {how} (version {version}) while epoch {metadata.epoch} was being written (version "
                f"{commit.version}). What the epoch holds doesn't follow what was there by then.",
                hint=f"RESTORE the table TO VERSION AS OF {version}: the pipeline then goes on from there.",
            )
